"""Walking plans: finding nodes, and replacing a part of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.plan.nodes.core import Aggregate, Granularity, Plan, Source, Table, Window
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Sequence
from headrace.plan.nodes.windows import Rows


def walk(plan: Plan) -> Iterator[Plan]:
    """The plan and everything below it, the highest first."""
    level: list[Plan] = [plan]
    while level:
        yield from level
        level = [below for each in level for below in each.inputs]


def sources_of(plan: Plan) -> list[Source]:
    """Every use of a stream, in order; a stream that is read twice comes twice."""
    own = [plan] if isinstance(plan, Source) else []
    return own + [source for each in plan.inputs for source in sources_of(each)]


def is_static(plan: Plan) -> bool:
    """Whether it reads only tables, so that it changes only if one of them is reloaded."""
    if isinstance(plan, (Source, Table)):
        return isinstance(plan, Table)
    return all(is_static(each) for each in plan.inputs)


def exchange(plan: Plan, old: Plan, new: Plan) -> Plan:
    """`plan` with `new` in place of `old`."""
    return new if plan == old else over(plan, [exchange(each, old, new) for each in plan.inputs])


def over(plan: Plan, inputs: list[Plan]) -> Plan:
    """`plan` over other inputs; the same object if they are the ones it has."""
    same = all(new is old for new, old in zip(inputs, plan.inputs, strict=True))
    return plan if same else plan.with_inputs(tuple(inputs))


def everywhere(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """`change` applied to every node, inputs first."""
    return change(over(plan, [everywhere(each, change) for each in plan.inputs]))


def minds_order(plan: Plan) -> bool:
    """Whether the order of simultaneous rows changes the result of this node."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Rows)
    if isinstance(plan, Sequence):
        return any(map(plan.order_matters, range(len(plan.steps))))
    if isinstance(plan, (Lag, DistinctOn, Match)):
        return True
    if isinstance(plan, Over):
        return plan.minds_order
    return isinstance(plan, Aggregate) and any(call.minds_order for call in plan.calls)


def takes_pieces(plan: Plan) -> bool:
    """Whether a row and its pieces, each valid from the end of the one before, are the same to this node.

    Not if it rounds the validity of each row, or depends on the start of a row.
    """
    return not isinstance(plan, Granularity) and not minds_order(plan)
