"""Numbered rows and the condition around them: `WHERE number <= 10` is what makes a top-n of ROW_NUMBER().

Two changes of the plan that leave its answer as it is: a condition on the number becomes the bound, and a
number that nobody reads is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.expressions import Between, Column, Comparison, Expression, Literal
from headrace.expressions.rewriting import conjunction, conjuncts
from headrace.plan.nodes import Plan, Project, Select
from headrace.plan.top import TopN
from headrace.plan.trees import everywhere, walk

UNLIMITED: Final = 2**62
"""The count of a ROW_NUMBER() that nothing bounds yet."""

FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def is_unlimited(plan: Plan) -> bool:
    """Whether a number in `plan` is without a bound."""
    return any(isinstance(each, TopN) and each.count == UNLIMITED for each in walk(plan))


def is_numbered(plan: Plan) -> bool:
    """Whether there is a number in `plan`."""
    return any(isinstance(each, TopN) and each.rank for each in walk(plan))


def bounded(plan: Plan) -> Plan:
    """`plan` with its conditions on numbers as bounds, and without the numbers that nobody reads."""
    if not is_numbered(plan):
        return plan
    return everywhere(everywhere(plan, _with_bound), _without_number)


def _with_bound(plan: Plan) -> Plan:
    if not isinstance(plan, Select):
        return plan
    rank = _rank_of(plan.input)
    if rank is None:
        return plan
    conditions = conjuncts(plan.predicate)
    bounds = [_most(each, rank) for each in conditions]
    least = min((bound for bound, _ in bounds if bound is not None), default=None)
    if least is None or least < 1:
        return plan
    below = _changed(plan.input, lambda top: replace(top, count=min(top.count, least)))
    kept = [each for each, (_, done) in zip(conditions, bounds, strict=True) if not done]
    predicate = conjunction(kept)
    return below if predicate is None else Select(below, predicate)


def _most(condition: Expression, rank: str) -> tuple[int | None, bool]:
    """The greatest number that meets a condition, if it has one, and whether all up to it do."""
    number = Column(rank)
    if isinstance(condition, Between) and condition.operand == number:
        low, high = _value(condition.low), _value(condition.high)
        return high, low is not None and low <= 1
    if not isinstance(condition, Comparison) or condition.op not in FLIPPED:
        return None, False
    op, value = condition.op, _value(condition.right)
    if condition.right == number:
        op, value = FLIPPED[op], _value(condition.left)
    elif condition.left != number:
        return None, False
    if value is None or op not in ("<", "<=", "="):
        return None, False
    bound = value - 1 if op == "<" else value
    return bound, op != "=" or bound == 1


def _value(expression: Expression) -> int | None:
    value = expression.value if isinstance(expression, Literal) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rank_of(plan: Plan) -> str | None:
    """The column that holds the number, through projections that keep it."""
    if isinstance(plan, TopN):
        return plan.rank
    if isinstance(plan, Select):
        return _rank_of(plan.input)
    if not isinstance(plan, Project):
        return None
    below = _rank_of(plan.input)
    return next((name for name, e in plan.columns if below and e == Column(below)), None)


def _changed(plan: Plan, change: Callable[[TopN], TopN]) -> Plan:
    """The same with the top-n below changed."""
    if isinstance(plan, TopN):
        return change(plan)
    return plan.with_inputs((_changed(plan.inputs[0], change),))


def _without_number(plan: Plan) -> Plan:
    if not isinstance(plan, Project):
        return plan
    rank = _rank_of(plan.input)
    read = {name for _, each in plan.columns for name in each.columns()}
    return plan if rank is None or rank in read else Project(_numberless(plan.input, rank), plan.columns)


def _numberless(plan: Plan, rank: str) -> Plan:
    """The same without the number, unless a condition reads it."""
    if isinstance(plan, TopN):
        return replace(plan, rank=None)
    if isinstance(plan, Select):
        if rank in plan.predicate.columns():
            return plan
        return Select(_numberless(plan.input, rank), plan.predicate)
    assert isinstance(plan, Project)
    below = _rank_of(plan.input)
    assert below is not None
    columns = tuple((name, each) for name, each in plan.columns if name != rank)
    if any(below in each.columns() for _, each in columns) or not columns:
        return plan
    return Project(_numberless(plan.input, below), columns)
