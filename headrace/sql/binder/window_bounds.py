"""The windows of a row, computed from its time: for Flink's CUMULATE, and for windows whose rows are shown.

CUMULATE is a sliding window whose rows are grouped by their block, and of which only the last block counts. A
window function that is not aggregated gives a stream: each row once for every window that contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from headrace.expressions import Arithmetic, Column, Comparison, Expression, Function, Literal
from headrace.plan.nodes.core import Plan, Project, Select
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.windows import Sliding
from headrace.schema import Schema
from headrace.sql.binder.scope import fresh
from headrace.sql.binder.windows import Cumulating
from headrace.sql.catalog import MICROSECONDS, Relation
from headrace.sql.place import Code, fail

MOST: Final = 10_000
"""A row that is in more windows than this must be a mistake."""
SHOWN: Final = ("window_start", "window_end", "window_time")


@dataclass(frozen=True)
class Block:
    """`start`: where the block of a row begins, in ticks."""

    start: Expression
    window: Cumulating

    def is_last(self, window_end: Expression) -> Expression:
        """Whether the block is that of the last instant of a window."""
        last = Arithmetic("-", window_end, Literal(1))
        return Comparison("=", self.start, _begin(last, self.window.size, self.window.begin))


def block_of(relation: Relation, window: Cumulating) -> Block:
    """The block of each row of a stream."""
    return Block(_begin(_time_in_ticks(relation), window.size, window.begin), window)


def as_timestamp(ticks: Expression, ticks_per_second: int | None) -> Expression:
    """A number of ticks as a timestamp, unless times are sequence numbers."""
    if ticks_per_second is None:
        return ticks
    if ticks_per_second == MICROSECONDS:
        return Function("timestamp_micros", (ticks,))
    scaled = Arithmetic("DIV", Arithmetic("*", ticks, Literal(MICROSECONDS)), Literal(ticks_per_second))
    return Function("timestamp_micros", (scaled,))


def with_bounds(relation: Relation, window: Sliding, place: exp.Expr) -> Relation:
    """A stream in which each row has the bounds of its window, once for every window that contains it."""
    names = relation.plan.schema.names
    taken = {name.lower() for name in names}
    clash = next((name for name in SHOWN if name in taken), None)
    if clash is not None:
        fail(Code.SAME_COLUMN, f"the stream has a column {clash} already", place, "rename it in a subquery")
    step, begin, end = (fresh(name, taken) for name in ("window step", "window begin", "window stop"))
    kept = [(name, Column(name)) for name in names]
    plan: Plan = relation.plan
    cumulates = isinstance(window, Cumulating)
    steps = _steps(window, place)
    if len(steps) > 1:
        plan = Unnest(plan, Function("array", tuple(_ticks(each) for each in steps)), (step,))
    shift: Expression = Column(step) if len(steps) > 1 else _ticks(steps[0])
    time = _time_in_ticks(relation)
    if isinstance(window, Cumulating):
        first: Expression = _begin(time, window.size, window.begin)
        last: Expression = Arithmetic("+", Column(begin), shift)
    else:
        first = Arithmetic("-", _begin(time, window.slide, window.offset), shift)
        last = Arithmetic("+", Column(begin), _ticks(window.size))
    plan = Project(plan, (*kept, *([(step, Column(step))] * (len(steps) > 1)), (begin, first)))
    plan = Project(plan, (*kept, (begin, Column(begin)), (end, last)))
    if cumulates or window.size != window.slide:
        plan = Select(plan, Comparison(">", Column(end), time))
    ticks = (Column(begin), Column(end), Arithmetic("-", Column(end), Literal(1)))
    stamped = [as_timestamp(each, relation.ticks_per_second) for each in ticks]
    shown = Project(plan, (*kept, *zip(SHOWN, stamped, strict=True)))
    return Relation(shown, relation.ticks_per_second, relation.implicit, relation.time_column)


def knows_bounds(relation: Relation, window: object) -> bool:
    """Whether each row is in one window, which its time gives: it tumbles, and the time is a column."""
    tumbles = (
        isinstance(window, Sliding) and window.size == window.slide and not isinstance(window, Cumulating)
    )
    known = {name.lower() for name in relation.plan.schema.names}
    return tumbles and relation.time_column is not None and not known & set(SHOWN)


def _steps(window: Sliding, place: exp.Expr) -> Sequence[int]:
    """How far the windows of a row start before the last one, or how far they reach in its block."""
    count = -(-window.size // window.slide)
    if count > MOST:
        hint = "choose a longer slide, or aggregate the windows"
        fail(Code.WINDOW, f"each row would be shown in {count} windows", place, hint)
    steps = range(1, count + 1) if isinstance(window, Cumulating) else range(count)
    return [each * window.slide for each in steps]


def _begin(time: Expression, size: int, offset: int) -> Expression:
    """The greatest multiple of `size`, plus `offset`, that is not after a time."""
    since = Arithmetic("-", time, _ticks(offset))
    return Arithmetic("-", time, Function("pmod", (since, _ticks(size))))


def _ticks(number: int) -> Literal:
    return Literal(number, pa.int64())


def _time_in_ticks(relation: Relation) -> Expression:
    """The time of a row: its time column."""
    assert relation.time_column is not None
    column = Column(relation.time_column)
    schema: Schema = relation.plan.schema
    if pt.is_integer(schema.field(relation.time_column).type):
        return column
    micros = Function("unix_micros", (column,))
    if relation.ticks_per_second in (None, MICROSECONDS):
        return micros
    return Arithmetic("DIV", Arithmetic("*", micros, _ticks(relation.ticks_per_second)), _ticks(MICROSECONDS))
