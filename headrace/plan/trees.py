"""Walking plans: what is in them, and the same plan with a part exchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.plan.lag import Lag
from headrace.plan.nodes import Aggregate, Granularity, Plan, Source, Table, Window
from headrace.plan.sequence import Sequence
from headrace.plan.windows import Rows


def walk(plan: Plan) -> Iterator[Plan]:
    """The plan and everything below it, the highest first."""
    level: list[Plan] = [plan]
    while level:
        yield from level
        level = [below for each in level for below in each.inputs]


def sources_of(plan: Plan) -> list[Source]:
    """Every mention of a stream, in order; a stream that is read twice is mentioned twice."""
    own = [plan] if isinstance(plan, Source) else []
    return own + [source for each in plan.inputs for source in sources_of(each)]


def is_static(plan: Plan) -> bool:
    """Whether it is made of tables alone, so that nothing in it ever changes."""
    if isinstance(plan, (Source, Table)):
        return isinstance(plan, Table)
    return all(is_static(each) for each in plan.inputs)


def exchange(plan: Plan, old: Plan, new: Plan) -> Plan:
    """`plan` with `new` wherever `old` stood."""
    return new if plan == old else over(plan, [exchange(each, old, new) for each in plan.inputs])


def over(plan: Plan, inputs: list[Plan]) -> Plan:
    """`plan` over other inputs; itself where they are the ones it has."""
    same = all(new is old for new, old in zip(inputs, plan.inputs, strict=True))
    return plan if same else plan.with_inputs(tuple(inputs))


def everywhere(plan: Plan, change: Callable[[Plan], Plan]) -> Plan:
    """`change` applied to every node, inputs first."""
    return change(over(plan, [everywhere(each, change) for each in plan.inputs]))


def minds_order(plan: Plan) -> bool:
    """Whether this node's answer depends on how simultaneous rows are ordered (`headrace.plan.order`)."""
    if isinstance(plan, Window):
        return isinstance(plan.spec, Rows)
    if isinstance(plan, Sequence):
        return any(map(plan.order_matters, range(len(plan.steps))))
    if isinstance(plan, Lag):
        return True
    return isinstance(plan, Aggregate) and any(call.minds_order for call in plan.calls)


def takes_pieces(plan: Plan) -> bool:
    """Whether one row or several, each valid when the one before it ends, are the same to this node.

    Not if it rounds the validity of each row, or asks since when a row is valid.
    """
    return not isinstance(plan, Granularity) and not minds_order(plan)
