"""FROM: its items, each a stream or relation with a name and perhaps a window, and how they are joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Expression
from headrace.plan.nodes.outer_join import JoinKind
from headrace.plan.nodes.windows import Sliding, WindowSpec
from headrace.sql.binder.environment import Environment, one_domain, renamed
from headrace.sql.binder.match_recognize import recognized
from headrace.sql.binder.quality_columns import asked, telling
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Outer, Scope
from headrace.sql.binder.temporal_joins import looked_up, take_as_of
from headrace.sql.binder.typed import conjuncts
from headrace.sql.binder.unnest import is_unnest, read_unnest, unnested
from headrace.sql.binder.window_bounds import SHOWN as BOUNDS_SHOWN
from headrace.sql.binder.window_bounds import knows_bounds, with_bounds
from headrace.sql.binder.windows import specification
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import KNOWS_BOUNDS, SHOWN, TIME, WINDOW, Recognize
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

Translate = Callable[[Environment, exp.Expr], Relation]
KINDS: Final[dict[str, tuple[JoinKind, bool] | None]] = {
    **dict.fromkeys(("", "INNER", "CROSS")),
    "LEFT": (JoinKind.LEFT, False),
    "RIGHT": (JoinKind.LEFT, True),
    "FULL": (JoinKind.FULL, False),
}
"""Joins by their words: the kind of an outer join, and whether its sides are exchanged."""


@dataclass(frozen=True)
class From:
    """The FROM clause: its items with their joins, the place of the first, and ticks per second.

    `takes_where`: the item is a sequence, and WHERE is a part of it.
    """

    scope: Scope
    place: exp.Expr
    ticks_per_second: int | None
    takes_where: bool = False


def read_from(env: Environment, node: exp.Select, translate: Translate) -> From:
    """The FROM clause of a SELECT; a query reads at least one stream."""
    start = node.args.get("from_")
    if start is None or start.this is None:
        fail(Code.NOT_CQL, "the query has no FROM clause", node, "add FROM and the name of a stream")
    sizes = asked(node)
    items = [telling(read_item(env, start.this, translate), sizes)]
    domain = items[0].input.ticks_per_second
    on: dict[int, list[Expression]] = {}
    outer: list[Outer] = []
    commas = False
    for join in node.args.get("joins") or ():
        if is_unnest(join.this):
            items = unnested(items, outer, read_unnest(join.this, join))
            continue
        as_of = take_as_of(join.this)
        kind = _kind(join)
        item = telling(_next(items, read_item(env, join.this, translate), join.this), sizes)
        domain = one_domain(domain, item.input.ticks_per_second, join.this)
        if as_of is not None:
            items = looked_up(items, item, as_of, join, kind)
            continue
        items.append(item)
        conditions = conjuncts(Resolver(Scope(tuple(items)), "ON"), join.args.get("on"))
        if kind is None:
            on[len(items) - 1] = conditions
            commas = commas or not (join.args.get("kind") or join.args.get("on"))
            continue
        _check_outer(join, *kind, commas)
        outer.append(Outer(len(items) - 1, *kind, tuple(conditions), join.this))
    for lateral in node.args.get("laterals") or ():
        items = unnested(items, outer, read_unnest(lateral))
    return From(Scope(tuple(items), tuple(outer), on), start.this, domain)


def _next(items: list[Item], item: Item, place: exp.Expr) -> Item:
    """The next item, unless its name is already taken."""
    names = {name.lower() for each in items for name in (each.name, *(known for known, _ in each.unnested))}
    if item.name and item.name.lower() in names:
        fail(Code.SAME_ALIAS, f"two FROM items are named {item.name!r}", place, f"rename one: {item.of} AS …")
    return item


def _kind(join: exp.Join) -> tuple[JoinKind, bool] | None:
    """The kind of an outer join, and whether its sides are exchanged; None for an inner join."""
    words = [str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key)]
    kind = " ".join(word for word in words if word != "OUTER")
    if kind not in KINDS:
        hint = "CQL has JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, CROSS JOIN, and EXISTS in WHERE"
        fail(Code.JOIN_KIND, f"CQL does not support {kind} JOIN", join.this, hint)
    if join.args.get("using"):
        fail(Code.JOIN_KIND, "CQL does not support USING", join.args["using"][0], "write ON a.k = b.k")
    check_read(join)
    return KINDS[kind]


def _check_outer(join: exp.Join, kind: JoinKind, exchanged: bool, commas: bool) -> None:
    """An outer join has ON. In SQL a comma binds less: a RIGHT or FULL JOIN does not see items before it."""
    side = str(join.args.get("side")).upper()
    if commas and (exchanged or kind is JoinKind.FULL):
        hint = "write CROSS JOIN in place of the comma, or put this join in a subquery"
        fail(Code.JOIN_KIND, f"{side} JOIN after a comma", join.this, hint)
    if join.args.get("on") is None:
        fail(Code.JOIN_KIND, f"{side} JOIN needs a condition", join.this, "write ON a.k = b.k")


def read_item(env: Environment, node: exp.Expr, translate: Translate) -> Item:
    """One FROM item."""
    rule = ITEMS.get(type(node))
    if rule is None:
        name = REFUSED.get(type(node), "this")
        fail(
            Code.NOT_CQL,
            f"{name} is not allowed in FROM",
            node,
            "FROM takes streams, tables, views and (SELECT …)",
        )
    check_read(node)
    of, relation = rule(env, node, translate)
    name, relation = _aliased(node, of, relation)
    window = _window(node, name, relation)
    if SHOWN in node.meta and isinstance(window, Sliding):
        return Item(name, of, with_bounds(relation, window, node), None)
    if KNOWS_BOUNDS in node.meta and knows_bounds(relation, window):
        assert isinstance(window, Sliding)
        return Item(name, of, with_bounds(relation, window, node), window, hidden=BOUNDS_SHOWN)
    return Item(name, of, relation, window)


def _table(env: Environment, node: exp.Table, translate: Translate) -> tuple[str, Relation]:
    """A stream, table or view by name."""
    if not isinstance(node.this, exp.Identifier):
        fail(
            Code.NOT_CQL,
            "functions are not allowed in FROM",
            node,
            "FROM takes streams, tables, views and (SELECT …)",
        )
    return node.name, env.find(node.this)


def _subquery(env: Environment, node: exp.Subquery, translate: Translate) -> tuple[str, Relation]:
    return "", translate(env, node)


def _recognized(env: Environment, node: Recognize, translate: Translate) -> tuple[str, Relation]:
    """The matches in the rows of an item."""
    return "", recognized(read_item(env, node.this, translate), node)


ITEMS: Final[dict[type[exp.Expr], Callable[[Environment, Any, Translate], tuple[str, Relation]]]] = {
    exp.Table: _table,
    exp.Subquery: _subquery,
    Recognize: _recognized,
}


REFUSED: Final[dict[type[exp.Expr], str]] = {
    exp.Unnest: "UNNEST without a stream before it",
    exp.Lateral: "LATERAL without a stream before it",
    exp.Values: "VALUES",
}


def _aliased(node: exp.Expr, of: str, relation: Relation) -> tuple[str, Relation]:
    """The alias of the item, with its columns renamed if the alias lists names."""
    alias = node.args.get("alias")
    if alias is None:
        return of, relation
    check_read(alias)
    names = [each.name for each in alias.args.get("columns") or ()]
    return alias.name or of, renamed(relation, names, alias) if names else relation


def _window(node: exp.Expr, name: str, relation: Relation) -> WindowSpec | None:
    """The window on an item, if there is one."""
    clause = node.meta.get(WINDOW)
    if clause is None:
        return None
    if not relation.is_stream:
        hint = "put the window on the stream inside the subquery, or make this a stream with ISTREAM(…)"
        if relation.is_static:
            hint = "remove the window: the rows of a table are always valid"
        fail(
            Code.WINDOW_ON_RELATION,
            "this is already a relation, so it cannot have a window",
            clause.span,
            hint,
        )
    scope = Scope((Item(name, name, relation, None),))

    def column(key: exp.Column) -> str:
        found = scope.find(key)
        return found if found is not None else scope.unknown(key)

    if TIME in node.meta:
        _check_time(node.meta[TIME], relation, column(node.meta[TIME]))
    return specification(clause, relation.ticks_per_second, column)


def _check_time(node: exp.Column, relation: Relation, named: str) -> None:
    """Check that the column that a window names as the time is the time of the stream."""
    if named == relation.time_column:
        return
    known = relation.time_column
    hint = f"write {known}" if known else f"declare it: CREATE STREAM … TIME {named}; or write s [RANGE …]"
    fail(Code.TIME_COLUMN, f"{named!r} is not the time column of the stream", node, hint)
