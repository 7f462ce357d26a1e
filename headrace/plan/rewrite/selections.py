"""Selections move down: unwanted rows are dropped before they are windowed, joined, sorted or held.

A condition moves only if the move cannot be observed (`is_movable`); where rows with
equal keys are grouped it must also be the same for all of them (`respects_equality`). So selections run
before rows are sorted: `headrace.plan.analysis.ordering` sorts only above the selections and projections over
a source.
"""

from __future__ import annotations

from collections.abc import Callable

from headrace.expressions import Column, Expression
from headrace.expressions.substitution import (
    conjunction,
    conjuncts,
    is_movable,
    respects_equality,
    substitute,
)
from headrace.plan.analysis.candidate_keys import renaming
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan, Select, Source, Table
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded

BY_TIME = (Range, Sliding, Now, Unbounded)
"""Windows in which no row's validity depends on another row."""


def selected(plan: Plan, conditions: list[Expression]) -> Plan:
    """The rows of `plan` that meet all conditions."""
    predicate = conjunction(conditions)
    return plan if predicate is None else Select(plan, predicate)


def parted(plan: Select, goes: Callable[[Expression], bool]) -> tuple[list[Expression], list[Expression]]:
    """The conjuncts of a selection that can move down, and those that stay."""
    parts = conjuncts(plan.predicate)
    down = [each for each in parts if is_movable(each) and goes(each)]
    return down, [each for each in parts if each not in down]


def _anything(each: Expression) -> bool:
    return True


def _says_nothing_of(quality_column: str | None) -> Callable[[Expression], bool]:
    """Whether a condition does not read the quality column, so that it can be checked earlier."""
    return lambda each: quality_column not in each.columns()


def _sink(plan: Plan, goes: Callable[[Expression], bool] = _anything) -> Plan | None:
    """A selection moved below the node under it, which has one input with the same columns."""
    assert isinstance(plan, Select)
    down, stay = parted(plan, goes)
    if not down:
        return None
    (below,) = plan.input.inputs
    return selected(plan.input.with_inputs((selected(below, down),)), stay)


def merge(plan: Plan) -> Plan | None:
    """σp(σq(x)) → σq∧p(x)."""
    if not (isinstance(plan, Select) and isinstance(plan.input, Select)):
        return None
    parts = [*conjuncts(plan.input.predicate), *conjuncts(plan.predicate)]
    return selected(plan.input.input, parts) if all(map(is_movable, parts)) else None


def below_projection(plan: Plan) -> Plan | None:
    """σp(π(x)) → π(σp'(x)), but not if π only prunes a source: narrow rows are cheaper to copy."""
    if not (isinstance(plan, Select) and isinstance(plan.input, nodes.Project)) or is_pruning(plan.input):
        return None
    columns = dict(plan.input.columns)
    down, stay = parted(plan, lambda each: is_movable(substitute(each, columns)))
    if not down:
        return None
    below = selected(plan.input.input, [substitute(each, columns) for each in down])
    return selected(plan.input.with_inputs((below,)), stay)


def is_pruning(plan: nodes.Project) -> bool:
    """Whether it only drops columns of a stream or a table."""
    if not isinstance(plan.input, (Source, Table)):
        return False
    return all(isinstance(e, Column) and e.name == name for name, e in plan.columns)


def below_union(plan: Plan) -> Plan | None:
    """σp(x ∪ y) → σp(x) ∪ σp(y)."""
    if not (isinstance(plan, Select) and type(plan.input) is nodes.Union):
        return None
    union = plan.input
    down, stay = parted(plan, _anything)
    if not down:
        return None
    branches = [selected(each, _renamed(down, union, each)) for each in union.branches]
    return selected(nodes.Union(tuple(branches)), stay)


def _renamed(conditions: list[Expression], plan: Plan, branch: Plan) -> list[Expression]:
    names = renaming(plan.schema, branch.schema)
    return [each.rename(names) for each in conditions]


def below_window(plan: Plan) -> Plan | None:
    """σp(ω(x)) → ω(σp(x)); for a row window, only conditions on its PARTITION BY columns."""
    if not (isinstance(plan, Select) and isinstance(plan.input, nodes.Window)):
        return None
    spec, schema = plan.input.spec, plan.schema
    if isinstance(spec, BY_TIME):
        return _sink(plan, _says_nothing_of(plan.input.quality_column))
    if not isinstance(spec, Rows):
        return None
    keys = set(spec.keys)
    return _sink(plan, lambda each: each.columns() <= keys and respects_equality(each, schema))


def below_granularity(plan: Plan) -> Plan | None:
    """σp(γ(x)) → γ(σp(x))."""
    if not (isinstance(plan, Select) and isinstance(plan.input, nodes.Granularity)):
        return None
    return _sink(plan, _says_nothing_of(plan.input.quality_column))


def below_content(plan: Plan) -> Plan | None:
    """σp(δ(x)) → δ(σp(x))."""
    if not (isinstance(plan, Select) and isinstance(plan.input, nodes.Distinct)):
        return None
    return _sink(plan, lambda each: respects_equality(each, plan.schema))


def below_except(plan: Plan) -> Plan | None:
    """σp(x − y) → σp(x) − σp(y)."""
    if not (isinstance(plan, Select) and isinstance(plan.input, nodes.Except)):
        return None
    difference = plan.input
    down, stay = parted(plan, lambda each: respects_equality(each, plan.schema))
    if not down:
        return None
    left = selected(difference.left, down)
    right = selected(difference.right, _renamed(down, difference, difference.right))
    return selected(difference.with_inputs((left, right)), stay)


def below_aggregate(plan: Plan) -> Plan | None:
    """σp(γ(x)) → γ(σp(x)) for conditions on the keys of groups, or of a top-n: the others are never built.

    For sessions that several groups share, only conditions on the session keys: a row of another group may
    keep a session open.
    """
    if not (isinstance(plan, Select) and isinstance(plan.input, (nodes.Aggregate, TopN))):
        return None
    below = plan.input
    keys = set(below.partition_keys if isinstance(below, SessionAggregate) else below.keys)
    schema = below.input.schema
    return _sink(plan, lambda each: each.columns() <= keys and respects_equality(each, schema))


def below_stream(plan: Plan) -> Plan | None:
    """σp(ISTREAM(x)) → ISTREAM(σp(x)), also for DSTREAM and RSTREAM: equal rows are treated equally."""
    if not (
        isinstance(plan, Select) and isinstance(plan.input, (nodes.IStream, nodes.DStream, nodes.RStream))
    ):
        return None
    return _sink(plan, lambda each: respects_equality(each, plan.schema))
