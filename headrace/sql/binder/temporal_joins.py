"""`JOIN table FOR SYSTEM_TIME AS OF stream.time`: each row with what the table holds at the time of the row.

This is a stream again, `RSTREAM` of `stream [NOW] JOIN table`, with the columns of both. The window of the
stream, if it has one, applies to the joined rows.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headrace.expressions import Column
from headrace.plan.nodes.core import Project, RStream
from headrace.plan.nodes.outer_join import JoinKind
from headrace.plan.nodes.windows import Now
from headrace.sql.binder.joins import joined
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Outer, Scope, fresh
from headrace.sql.binder.typed import conjuncts
from headrace.sql.place import Code, fail

NEWEST = "make it a table: CREATE TABLE t PRIMARY KEY (k) FROM s; or write s [PARTITION BY k ROWS 1]"


def take_as_of(node: exp.Expr) -> exp.Version | None:
    """The `FOR SYSTEM_TIME AS OF` of a FROM item, taken out of it; None if it has none."""
    found = node.args.get("version")
    if not isinstance(found, exp.Version) or found.args.get("kind") != "AS OF" or found.name != "TIMESTAMP":
        return None
    node.set("version", None)
    return found


def looked_up(
    items: list[Item],
    table: Item,
    as_of: exp.Version,
    join: exp.Join,
    kind: tuple[JoinKind, bool] | None,
) -> list[Item]:
    """The items, with the stream joined with the table at the time of each row."""
    if kind not in (None, (JoinKind.LEFT, False)):
        hint = "write JOIN or LEFT JOIN"
        fail(Code.JOIN_KIND, "FOR SYSTEM_TIME AS OF is for JOIN and LEFT JOIN", join.this, hint)
    if table.input.is_stream and table.window is None:
        message = f"{table.name} is a stream, which has no state at a time"
        fail(Code.JOIN_KIND, message, join.this, NEWEST)
    if join.args.get("on") is None:
        fail(Code.JOIN_KIND, "FOR SYSTEM_TIME AS OF needs a condition", join.this, "write ON a.k = b.k")
    at = _stream_of(items, as_of)
    items = list(items)
    items[at] = _enriched(items[at], table, join, kind is not None)
    return items


def _stream_of(items: list[Item], as_of: exp.Version) -> int:
    """The item whose time column AS OF names."""
    scope, node = Scope(tuple(items)), as_of.args["expression"]
    found = scope.find(node) if isinstance(node, exp.Column) else None
    if isinstance(node, exp.Column) and found is None:
        scope.unknown(node)
    for at, item in enumerate(items):
        times = [each for each in scope.columns[at] if each.column == item.input.time_column]
        if item.input.is_stream and found is not None and found in [each.internal for each in times]:
            return at
    timed = next((each for each in items if each.input.is_stream and each.input.time_column), None)
    hint = "write FROM s [NOW] JOIN t ON …; this needs no time column"
    if timed is not None:
        hint = f"write AS OF {timed.name}.{timed.input.time_column}"
    fail(Code.TIME_COLUMN, "AS OF takes the time column of a stream in FROM", node, hint)


def _enriched(stream: Item, table: Item, join: exp.Join, is_left: bool) -> Item:
    """The stream with the columns of the table; new names where the plan has them already."""
    sides = (replace(stream, window=Now(), size=None), table)
    conditions = conjuncts(Resolver(Scope(sides), "ON"), join.args["on"])
    if is_left:
        scope = Scope(sides, (Outer(1, JoinKind.LEFT, False, tuple(conditions), join.this),))
    else:
        scope = Scope(sides, on={1: conditions})
    taken = {name.lower() for name in stream.input.plan.schema.names}
    own, other = scope.columns
    added = [(fresh(each.column, taken), each) for each in other]
    columns = [(each.column, Column(each.internal)) for each in own]
    columns += [(name, Column(each.internal)) for name, each in added]
    plan = Project(RStream(joined(scope, [])), tuple(columns))
    return replace(
        stream,
        input=replace(stream.input, plan=plan),
        unnested=(*stream.unnested, (table.name, tuple(name for name, _ in added))),
        written=(*stream.written, *((name, each.written) for name, each in added if name != each.written)),
    )
