"""`headrace_window(a)` and `headrace_granularity()`: the quality that a row was given, in ticks (002, §3.3).

A window that may change tells the size of each row in a column of its own; one that is fixed is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NoReturn

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Column, Expression, Literal
from headrace.plan.windows import Now, Range, Sliding
from headrace.sql.clauses import GRANULARITY, GranularityClause
from headrace.sql.codes import Code
from headrace.sql.place import fail
from headrace.sql.reading import check_read
from headrace.sql.scope import Item, Scope, fresh

WINDOW: Final = "headrace_window"
GRAIN: Final = "headrace_granularity"
WORST: Final = {WINDOW: "min", GRAIN: "max"}
"""What a group tells of its rows: the smallest window, the coarsest granularity."""

SIZES: Final[dict[type[Any], Callable[[Any], int]]] = {
    Range: lambda spec: int(spec.size),
    Sliding: lambda spec: int(spec.size),
    Now: lambda spec: 1,
}
"""The windows that hold rows for a length of time, and how long that is."""

_APART: Final = (exp.From, exp.With, exp.Subquery)


def is_quality(node: object) -> bool:
    """Whether it is a call of one of the two."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in WORST


# ------------------------------------------------------------------------------------------------- windows


def asked(node: exp.Select) -> set[str]:
    """The items whose sizes a SELECT asks for, by name; the empty name is any. Not what subqueries ask."""
    calls = [each for each in node.walk(prune=lambda n: isinstance(n, _APART)) if is_quality(each)]
    sizes = [each.expressions for each in calls if each.name.lower() == WINDOW]
    return {named[0].name.lower() if named else "" for named in sizes}


def telling(item: Item, names: set[str]) -> Item:
    """The item with a column for the sizes of its rows, if they are asked for and may change."""
    wanted = "" in names or item.name.lower() in names
    if not wanted or not isinstance(item.window, Range) or item.window.least is None:
        return item
    return replace(item, size=fresh(WINDOW, {name.lower() for name in item.input.plan.schema.names}))


def size_of(scope: Scope, node: exp.Anonymous) -> Expression:
    """The size of the window that a row of an item was given."""
    check_read(node)
    position = _position(scope, node)
    spec = scope.items[position].window
    if type(spec) not in SIZES:
        hint = "[RANGE …], [RANGE … SLIDE …] and [NOW] hold rows for a length of time"
        called = scope.items[position].name
        fail(Code.QUALITY_COLUMN, f"{called} has no window here whose size is a time", node, hint)
    told = scope.sizes.get(position)
    return Column(told) if told is not None else Literal(SIZES[type(spec)](spec), pa.int64())


def _position(scope: Scope, node: exp.Anonymous) -> int:
    arguments = node.expressions
    if len(arguments) > 1 or not all(isinstance(each, exp.Column) for each in arguments):
        hint = "headrace_window(a) names a FROM item, headrace_window() is of the only window"
        fail(Code.QUALITY_COLUMN, "headrace_window is asked of one FROM item", node, hint)
    if arguments and len(scope.labels) == len(scope.items):
        return scope.item(arguments[0])
    timed = [i for i, item in enumerate(scope.items) if type(item.window) in SIZES]
    if len(timed) > 1:
        named = " or ".join(f"headrace_window({scope.items[i].name})" for i in timed)
        fail(Code.QUALITY_COLUMN, "several windows are here", node, f"write {named}")
    if not timed or arguments:
        hint = "ask where the window is: FROM s [RANGE MIN 1 HOUR, MAX 5 HOURS]"
        fail(Code.QUALITY_COLUMN, "no window here has a size that is a time", node, hint)
    return timed[0]


# ------------------------------------------------------------------------------------------- granularities


def clause_of(nodes: Iterable[exp.Expr | None]) -> GranularityClause | None:
    """The granularity that stands after one of the aggregates."""
    calls = (call for node in nodes if node is not None for call in node.find_all(exp.Anonymous, exp.Filter))
    return next((call.meta[GRANULARITY] for call in calls if GRANULARITY in call.meta), None)


def no_granularity(node: exp.Anonymous, clause: str) -> NoReturn:
    """Refuse to tell the granularity where there is none."""
    check_read(node)
    if node.expressions:
        fail(Code.QUALITY_COLUMN, "headrace_granularity takes no argument", node, "a SELECT has one")
    hint = "it is of a SELECT with avg(x) [GRANULARITY COARSEST 1 MINUTE, FINEST 1 SECOND]"
    fail(Code.QUALITY_COLUMN, f"no granularity is known in {clause}", node, hint)
