"""Spark's windows in GROUP BY: `window(ts, '10 minutes', '5 minutes')` and `session_window(ts, '5 minutes')`.

They move to the FROM item, as its window. `window.start` and `window.end` are its bounds as timestamps.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from headrace.sql.parser.clauses import TIME, WINDOW, Duration, RangeClause, SessionClause, WindowClause
from headrace.sql.place import Code, Span, fail, span_of
from headrace.time.durations import UNITS, split

FUNCTIONS: Final = {
    "window": "window(ts, '10 minutes', '5 minutes')",
    "session_window": "session_window(ts, '5 minutes')",
}
STAMPED: Final = "as timestamp"
"""The key in a column's `meta` for a bound of the window that is wanted as a timestamp."""
BOUNDS: Final = {"start": "window_start", "end": "window_end"}


def move_windows(node: exp.Select) -> None:
    """Move a window in GROUP BY to FROM, and name its bounds as CQL does."""
    group = node.args.get("group")
    calls = [each for each in group.expressions if _is_window(each)] if group else []
    if not calls:
        return
    if len(calls) > 1:
        fail(Code.WINDOW, "a query can have only one window in GROUP BY", calls[1], "use two queries")
    call, item = calls[0], _only_item(node, calls[0])
    item.meta[WINDOW], item.meta[TIME] = _clause(call), call.expressions[0]
    call.replace(_named("window_start", call))
    for column in list(node.find_all(exp.Column)):
        table = column.args.get("table")
        if table and table.name.lower() == call.name.lower() and column.name.lower() in BOUNDS:
            bound = _named(BOUNDS[column.name.lower()], column)
            bound.meta[STAMPED] = True
            listed = column.parent is node
            column.replace(exp.Alias(this=bound, alias=exp.to_identifier(column.name)) if listed else bound)


def _is_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in FUNCTIONS


def _only_item(node: exp.Select, call: exp.Expr) -> exp.Expr:
    """The FROM item that the window belongs to."""
    start = node.args.get("from_")
    item = start.this if start else None
    if not isinstance(item, (exp.Table, exp.Subquery)) or node.args.get("joins"):
        hint = "write the window on its stream: FROM a [RANGE 10 MINUTES SLIDE 5 MINUTES], b …"
        fail(Code.WINDOW, "a window in GROUP BY needs FROM with one stream", call, hint)
    if WINDOW in item.meta:
        fail(Code.WINDOW, "the stream already has a window", call, "remove one of the two")
    return item


def _clause(call: exp.Anonymous) -> WindowClause:
    """The window that a call means."""
    name, span = call.name.lower(), _span(call)
    most = 3 if name == "window" else 1
    if len(call.expressions) < 2 or not isinstance(call.expressions[0], exp.Column):
        fail(Code.WINDOW, f"{name} takes the time column and a duration", call, f"write {FUNCTIONS[name]}")
    given = [_duration(call, each) for each in call.expressions[1:]]
    if len(given) > most:
        hint = f"write {FUNCTIONS[name]}" + (", or an offset after it" if name == "window" else "")
        fail(Code.WINDOW, f"{name} takes fewer durations", given[most].span, hint)
    if name == "session_window":
        return SessionClause(given[0], span)
    offset = given[2] if len(given) > 2 else None
    return RangeClause(given[0], given[min(1, len(given) - 1)], span, offset=offset)


def _duration(call: exp.Anonymous, node: exp.Expr) -> Duration:
    """`'10 minutes'` or `INTERVAL '10' MINUTES`."""
    return interval_of(node, f"write {FUNCTIONS[call.name.lower()]}")


def interval_of(node: exp.Expr, form: str) -> Duration:
    """A duration in quotes or an INTERVAL; `form` is the hint if it is neither."""
    text = node.name if isinstance(node, exp.Literal) and node.is_string else ""
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        unit = node.args.get("unit")
        text = f"{node.this.name} {unit.name if unit else ''}"
    parts = split(text.lower().removeprefix("interval "))
    if parts is None:
        fail(Code.DURATION, "expected a duration in quotes", node, form)
    wrong = next((unit for _, unit in parts if unit and unit not in UNITS), None)
    if wrong is not None:
        hint = "units: MICROSECONDS to WEEKS; months and years vary in length"
        fail(Code.DURATION, f"{wrong.lower()!r} is not a unit of time", node, hint)
    return Duration(parts, _span(node))


def _named(name: str, place: exp.Expr) -> exp.Column:
    """A column at the place of another node."""
    column = exp.Column(this=exp.to_identifier(name))
    span = _span(place)
    column.meta.update({"start": span.start, "end": span.end - 1})
    return column


def _span(node: exp.Expr) -> Span:
    return span_of(node) or Span(0, 0)
