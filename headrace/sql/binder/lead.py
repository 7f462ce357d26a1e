"""`LEAD(x, n) OVER (PARTITION BY k ORDER BY time)`: the value of a later row of a stream.

A row is answered when the later row is there, at the time of that row, as LAG would from there: the answer
has the columns of the row n rows back, and the values in between. With several LEADs, n is the greatest of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from headrace.expressions import Column, Expression, lit
from headrace.plan.nodes.core import AggregateCall, Plan, Project, Select
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.over import Over, RowsFrame
from headrace.sql.binder.scope import fresh
from headrace.sql.place import Code, fail

FORM: Final = "LEAD(x, 1) OVER (PARTITION BY k ORDER BY ts)"


@dataclass(frozen=True)
class Ahead:
    """One LEAD: its name, its argument, partition keys and offset."""

    name: str
    argument: Expression
    keys: tuple[Expression, ...]
    offset: int


def has_lead(node: exp.Select) -> bool:
    """Whether a SELECT reads later rows, so that its rows are answered at the times of others."""
    return any(
        isinstance(each.this, exp.Anonymous) and each.this.name.lower() == "lead"
        for part in (*node.expressions, node.args.get("qualify"))
        if part is not None
        for each in part.find_all(exp.Window)
    )


def check_lead(call: exp.Anonymous) -> None:
    """Check the number of arguments; a default is for rows that have no later one, which are not answered."""
    if not 1 <= len(call.expressions) <= 3:
        fail(Code.ARGUMENTS, f"LEAD takes 1 or 2 arguments, not {len(call.expressions)}", call, FORM)
    if len(call.expressions) == 3:
        hint = "remove it: a row is answered when the later row is there"
        fail(Code.OVER, "LEAD takes no default", call.expressions[2], hint)


def check_keys(leads: Sequence[Ahead], keys: tuple[Expression, ...], node: exp.Window) -> None:
    """Check that a SELECT looks ahead in one partition only: a row has one answer, at one time."""
    if leads and leads[0].keys != keys:
        hint = "look ahead by one of them in a subquery"
        fail(Code.OVER, "two LEADs with different PARTITION BY", node, hint)


def looking_ahead(plan: Plan, leads: Sequence[Ahead], names: dict[Expression, str], taken: set[str]) -> Plan:
    """`plan` with a column for each LEAD; `names` are the columns of keys and arguments."""
    keys = tuple(names[key] for key in leads[0].keys)
    most = max(each.offset for each in leads)
    counted = fresh("rows", taken)
    own = {name: fresh("earlier", taken) for name in plan.schema.names}
    calls = [LagCall(back, name, most) for name, back in own.items()]
    calls += [
        LagCall(each.name, names[each.argument], most - each.offset) for each in leads if each.offset < most
    ]
    last = {each.name: names[each.argument] for each in leads if each.offset == most}
    there = Over(plan, keys, RowsFrame(most), (AggregateCall(counted, "count"),))
    found = Select(Lag(there, keys, tuple(calls)), Column(counted).eq(lit(most + 1)))
    columns = [(name, Column(back)) for name, back in own.items()]
    columns += [(each.name, Column(last.get(each.name, each.name))) for each in leads]
    return Project(found, tuple(columns))
