"""`headrace_window(a)` and `headrace_granularity()`: the quality of a row, in ticks (Cammert et al., §3.3).

A window that may change adds a column with the size that each row got; a fixed size is a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NoReturn

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import Column, Expression, Literal
from headrace.plan.nodes.windows import Now, Range, Sliding
from headrace.sql.binder.scope import Item, Scope, fresh
from headrace.sql.parser.clauses import GRANULARITY, GranularityClause
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail
from headrace.time.durations import Parts

WINDOW: Final = "headrace_window"
GRAIN: Final = "headrace_granularity"
WORST: Final = {WINDOW: "min", GRAIN: "max"}
"""How the rows of a group are summarized: the smallest window, the coarsest granularity."""

SIZES: Final[dict[type[Any], Callable[[Any], int]]] = {
    Range: lambda spec: int(spec.size),
    Sliding: lambda spec: int(spec.size),
    Now: lambda spec: 1,
}
"""Time windows, and how to get their size."""

_APART: Final = (exp.From, exp.With, exp.Subquery)


def is_quality(node: object) -> bool:
    """Whether it is a call of one of these two functions."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in WORST


# ------------------------------------------------------------------------------------------------- windows


def asked(node: exp.Select) -> set[str]:
    """The names of the items whose window sizes a SELECT shows; the empty name means any.

    Without subqueries.
    """
    calls = [each for each in node.walk(prune=lambda n: isinstance(n, _APART)) if is_quality(each)]
    sizes = [each.expressions for each in calls if each.name.lower() == WINDOW]
    return {named[0].name.lower() if named else "" for named in sizes}


def telling(item: Item, names: set[str]) -> Item:
    """The item with a column for the window sizes of its rows, if they are requested and can change."""
    wanted = "" in names or item.name.lower() in names
    if not wanted or not isinstance(item.window, (Range, Sliding)) or item.window.least is None:
        return item
    return replace(item, size=fresh(WINDOW, {name.lower() for name in item.input.plan.schema.names}))


def size_of(scope: Scope, node: exp.Anonymous) -> Expression:
    """The window size of a row of an item."""
    check_read(node)
    position = _position(scope, node)
    spec = scope.items[position].window
    if type(spec) not in SIZES:
        hint = "it works with [RANGE …], [RANGE … SLIDE …] and [NOW]"
        called = scope.items[position].name
        fail(Code.QUALITY_COLUMN, f"{called} has no time window here", node, hint)
    told = scope.sizes.get(position)
    return Column(told) if told is not None else Literal(SIZES[type(spec)](spec), pa.int64())


def _position(scope: Scope, node: exp.Anonymous) -> int:
    """The position of the FROM item whose window is meant."""
    arguments = node.expressions
    if len(arguments) > 1 or not all(isinstance(each, exp.Column) for each in arguments):
        hint = "write headrace_window(a) for FROM item a, or headrace_window() if there is only one window"
        fail(Code.QUALITY_COLUMN, "headrace_window takes the name of one FROM item", node, hint)
    if arguments and len(scope.labels) == len(scope.items):
        return scope.item(arguments[0])
    timed = [i for i, item in enumerate(scope.items) if type(item.window) in SIZES]
    if len(timed) > 1:
        named = " or ".join(f"headrace_window({scope.items[i].name})" for i in timed)
        fail(
            Code.QUALITY_COLUMN,
            "headrace_window() is ambiguous: there are several windows",
            node,
            f"write {named}",
        )
    if not timed or arguments:
        hint = "use it in the SELECT that has the window: FROM s [RANGE MIN 1 HOUR, MAX 5 HOURS]"
        fail(Code.QUALITY_COLUMN, "there is no time window here", node, hint)
    return timed[0]


# ------------------------------------------------------------------------------------------- granularities


def clauses_of(nodes: Iterable[exp.Expr | None]) -> tuple[GranularityClause, ...]:
    """The different granularity clauses of aggregates, in order."""
    calls = (call for node in nodes if node is not None for call in node.find_all(exp.Anonymous, exp.Filter))
    written = [call.meta[GRANULARITY] for call in calls if GRANULARITY in call.meta]
    return tuple({durations(each): each for each in reversed(written)}.values())[::-1]


def written_after(node: exp.Anonymous) -> GranularityClause | None:
    """The granularity clause of an aggregate, or of its FILTER."""
    outer = node.parent if isinstance(node.parent, exp.Filter) else node
    found: GranularityClause | None = node.meta.get(GRANULARITY) or outer.meta.get(GRANULARITY)
    return found


def durations(clause: GranularityClause) -> tuple[Parts, Parts | None]:
    """The durations of a clause, which are equal for equal granularities."""
    return clause.finest.parts, None if clause.coarsest is None else clause.coarsest.parts


def no_granularity(node: exp.Anonymous, clause: str) -> NoReturn:
    """Raise the error for a granularity that does not exist."""
    check_read(node)
    if node.expressions:
        fail(
            Code.QUALITY_COLUMN,
            "headrace_granularity takes no arguments",
            node,
            "write headrace_granularity()",
        )
    hint = "it needs an aggregate such as avg(x) [GRANULARITY COARSEST 1 MINUTE, FINEST 1 SECOND]"
    fail(Code.QUALITY_COLUMN, f"there is no granularity in {clause}", node, hint)
