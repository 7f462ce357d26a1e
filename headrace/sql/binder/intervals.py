"""Outer and semi joins of two streams within an interval of time: each row is answered once.

`a LEFT JOIN b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 1 MINUTE AND a.ts + INTERVAL 10 SECONDS`, where
neither stream has a window. The condition bounds how far apart partners are, so windows of these sizes hold
all that can meet:

- a row of `a` that is valid from its time for the 10 seconds, and a row of `b` for the minute, meet exactly
  if both are valid at one instant: this is the inner join;
- 10 seconds after the time of a row of `a`, all its partners have come, and the last 70 seconds of `b` hold
  them: the row has no partner if it has none there at that instant.

So the answer is a stream, the union of the pairs and of the rows that are found to be alone, made of windows,
joins and DSTREAM (which delays a row by the size of its window).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headrace.expressions import (
    Arithmetic,
    Between,
    Column,
    Comparison,
    Expression,
    Function,
    Literal,
    Negate,
)
from headrace.plan.nodes.core import (
    DStream,
    Equality,
    IStream,
    Plan,
    Project,
    Select,
    Union,
    Window,
    joined,
)
from headrace.plan.nodes.outer_join import JoinKind, outer_joined
from headrace.plan.nodes.windows import Now, Range, Unbounded, WindowSpec
from headrace.sql.binder.scope import Item, Scope
from headrace.sql.catalog import TICKS


@dataclass(frozen=True)
class Interval:
    """How far the partners of a left row are from its time: at most `before` ticks earlier, `after` later.

    None: without a limit.
    """

    before: int | None
    after: int | None

    @property
    def exchanged(self) -> Interval:
        """The same for a right row."""
        return Interval(self.after, self.before)

    def decides(self, kind: JoinKind) -> bool:
        """Whether an instant comes for each row that is kept at which all its partners have come."""
        return self.after is not None and (kind is not JoinKind.FULL or self.before is not None)


# ------------------------------------------------------------------------------ what the conditions say

Term = tuple[str, int]
"""A time column and how many ticks are added to it."""
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
LOWER: Final = {"<=": 0, "<": 1, "=": 0}
"""left + x op right + y: right − left is at least x − y plus this."""
UPPER: Final = {">=": 0, ">": -1, "=": 0}
"""left + x op right + y: right − left is at most x − y plus this."""


def interval_of(conditions: Sequence[Expression], left: str, right: str) -> Interval:
    """What conditions say about the distance of two time columns."""
    lows, highs = [], []
    for one, op, other in _comparisons(conditions):
        terms = _term(one, left, right), _term(other, left, right)
        if terms[0] is None or terms[1] is None or terms[0][0] == terms[1][0]:
            continue
        if terms[0][0] == right:
            terms, op = terms[::-1], FLIPPED[op]
        distance = terms[0][1] - terms[1][1]  # type: ignore[index]
        lows += [distance + LOWER[op]] if op in LOWER else []
        highs += [distance + UPPER[op]] if op in UPPER else []
    return Interval(
        max(-max(lows), 0) if lows else None,
        max(min(highs), 0) if highs else None,
    )


def _comparisons(conditions: Sequence[Expression]) -> Iterator[tuple[Expression, str, Expression]]:
    for each in conditions:
        if isinstance(each, Between):
            yield each.operand, ">=", each.low
            yield each.operand, "<=", each.high
        elif isinstance(each, Comparison) and each.op in FLIPPED:
            yield each.left, each.op, each.right


def _term(expression: Expression, *times: str) -> Term | None:
    """A time column, or one plus or minus a number."""
    if isinstance(expression, Column):
        return (expression.name, 0) if expression.name in times else None
    sign = 1
    if isinstance(expression, Function) and expression.name == "plus_micros":
        time, number = expression.arguments
    elif isinstance(expression, Arithmetic) and expression.op in ("+", "-"):
        time, number, sign = expression.left, expression.right, 1 if expression.op == "+" else -1
    else:
        return None
    found = _term(time, *times)
    if isinstance(number, Negate):
        number, sign = number.operand, -sign
    if found is None or not isinstance(number, Literal) or not isinstance(number.value, int):
        return None
    return found[0], found[1] + sign * number.value


def time_of(scope: Scope, item: int) -> str | None:
    """The internal name of the time column of an item that is a stream without a window."""
    found: Item = scope.items[item]
    time = found.input.time_column
    if time is None or not found.input.is_stream or found.window is not None:
        return None
    as_ticks = TICKS.get(found.input.ticks_per_second)
    if as_ticks is None or not as_ticks(found.input.plan.schema.field(time).type):
        return None
    return next((each.internal for each in scope.columns[item] if each.column == time), None)


# ---------------------------------------------------------------------------------------------- the plan


@dataclass(frozen=True)
class Within:
    """A join of two streams within an interval: both as relations without a window, keys, and condition."""

    left: Plan
    right: Plan
    keys: Sequence[Equality[str]]
    residual: Expression | None
    interval: Interval

    @property
    def exchanged(self) -> Within:
        """The same with the sides exchanged."""
        keys = [Equality(b, a, safe) for a, b, safe in self.keys]
        return Within(self.right, self.left, keys, self.residual, self.interval.exchanged)

    def pairs(self) -> Plan:
        """The stream of pairs, each at the later of its times."""
        left, right = _lasting(self.left, self.interval.after), _lasting(self.right, self.interval.before)
        return IStream(joined(left, right, self.keys, self.residual))

    def decided(self, kind: JoinKind) -> Plan:
        """The stream of left rows that have a partner, or none, each when all partners have come."""
        before, after = self.interval.before, self.interval.after
        assert after is not None
        left = _on_stream(self.left, lambda stream: Window(_delayed(stream, after), Now()))
        right = _lasting(self.right, None if before is None else before + after)
        return IStream(outer_joined(kind, left, right, self.keys, self.residual))

    def alone(self, columns: Sequence[str]) -> Plan:
        """The left rows without a partner, with nulls for the other columns."""
        own = set(self.left.schema.names)
        types = {each.name: each.type for each in self.right.schema}
        shown = [(name, Column(name) if name in own else Literal(None, types[name])) for name in columns]
        return Project(self.decided(JoinKind.ANTI), tuple(shown))


def outer_within(kind: JoinKind, join: Within) -> Plan:
    """The left or full join as a relation of all answers so far."""
    pairs = join.pairs()
    names = pairs.schema.names
    parts = [pairs, join.alone(names)]
    if kind is JoinKind.FULL:
        parts.append(join.exchanged.alone(names))
    return Window(Union(tuple(parts)), Unbounded())


def semi_within(kind: JoinKind, join: Within) -> Plan:
    """The semi or anti join as a relation of all answers so far."""
    return Window(join.decided(kind), Unbounded())


def _lasting(plan: Plan, ticks: int | None) -> Plan:
    """Each row for so many ticks after its own."""
    spec: WindowSpec = Unbounded() if ticks is None else Range(ticks + 1)
    return _on_stream(plan, lambda stream: Window(stream, spec))


def _delayed(stream: Plan, ticks: int) -> Plan:
    """Each row so many ticks later."""
    return DStream(Window(stream, Range(ticks))) if ticks else stream


def _on_stream(plan: Plan, window: Callable[[Plan], Plan]) -> Plan:
    """The relation with another window on its only stream."""
    if isinstance(plan, (Select, Project)):
        return replace(plan, input=_on_stream(plan.input, window))
    assert isinstance(plan, Window)
    assert isinstance(plan.spec, Unbounded)
    return window(plan.input)


def is_one_stream(plan: Plan) -> bool:
    """Whether a relation is a stream without a window, row by row."""
    while isinstance(plan, (Select, Project)):
        plan = plan.input
    return isinstance(plan, Window) and isinstance(plan.spec, Unbounded)
