"""What may stand where in a plan so that its answer is determined, and finite."""

from __future__ import annotations

from headrace.plan.nodes.core import (
    Aggregate,
    Distinct,
    Except,
    Granularity,
    Join,
    Pairing,
    Plan,
    Project,
    Select,
    SlidingAggregate,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.sequence import Sequence
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.windows import Rows, Sliding, Ticks, Unbounded

ROWWISE = (Select, Project, Unnest)


def ends_are_known(plan: Plan) -> bool:
    """Whether each row's end is known when it starts: time windows, and what keeps intervals as they are."""
    if isinstance(plan, Window):
        return not isinstance(plan.spec, Rows)
    if isinstance(plan, Table):
        return True
    keeps = isinstance(plan, (*ROWWISE, Union, Join, Granularity))
    return keeps and all(ends_are_known(below) for below in plan.inputs)


def starts_are_known(plan: Plan) -> bool:
    """Whether `first` and `last` are determined: each row's start is, not just what is valid when.

    Aggregates, distinct and except say what is valid, not since when; copies of a row that a partition or a
    join made cannot be told apart when one of them is withdrawn.
    """
    while isinstance(plan, (Select, Project)):
        plan = plan.input
    rows = isinstance(plan, Window) and isinstance(plan.spec, Rows) and not plan.spec.keys
    return rows or ends_are_known(plan)


def is_finite(plan: Plan) -> bool:
    """Whether every row leaves in the end, so that an RStream over it is finite."""
    if isinstance(plan, Window):
        return not isinstance(plan.spec, (Rows, Unbounded))
    if isinstance(plan, (SlidingAggregate, SessionAggregate, Table)):
        return not isinstance(plan, Table)
    if isinstance(plan, Join):
        return is_finite(plan.left) or is_finite(plan.right)
    if isinstance(plan, OuterJoin):
        return all(is_finite(below) for below in plan.lasting)
    if isinstance(plan, Except):
        return is_finite(plan.left)
    assert isinstance(plan, (*ROWWISE, Union, Granularity, Aggregate, Distinct, TopN)), plan
    return all(is_finite(below) for below in plan.inputs)


def ticks_of(plan: Plan) -> set[Ticks]:
    """When the windows that a relation is made of are answered."""
    if isinstance(plan, SlidingAggregate):
        return {plan.window.ticks}
    if isinstance(plan, SessionAggregate):
        return {Ticks(1)}
    if isinstance(plan, Window):
        return {plan.spec.ticks} if isinstance(plan.spec, Sliding) else set()
    return set().union(*(ticks_of(below) for below in plan.inputs))


def joins(plan: Plan) -> int:
    """How many times a plan pairs rows."""
    pairs = len(plan.bound) - 1 if isinstance(plan, Sequence) else int(isinstance(plan, Pairing))
    return pairs + sum(joins(below) for below in plan.inputs)
