"""FROM: its items, each a stream or relation with a name and perhaps a window, and the ON conditions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Expression
from headrace.plan.windows import WindowSpec
from headrace.sql.catalog import Relation
from headrace.sql.clauses import WINDOW
from headrace.sql.codes import Code
from headrace.sql.environment import Environment, one_domain, renamed
from headrace.sql.place import fail
from headrace.sql.quality import asked, telling
from headrace.sql.reading import check_read
from headrace.sql.resolver import Resolver
from headrace.sql.scope import Item, Scope
from headrace.sql.typed import conjuncts
from headrace.sql.windows import specification

Translate = Callable[[Environment, exp.Expr], Relation]
INNER: Final = frozenset({"", "INNER", "CROSS"})


@dataclass(frozen=True)
class From:
    """The items in order, what the text says of the first, the conditions that ON adds to WHERE, the time.

    `takes_where`: the item is a sequence, of which WHERE is a part.
    """

    scope: Scope
    place: exp.Expr
    conditions: list[Expression]
    ticks_per_second: int | None
    takes_where: bool = False


def read_from(env: Environment, node: exp.Select, translate: Translate) -> From:
    """The FROM clause of a SELECT; a query reads at least one stream."""
    start = node.args.get("from_")
    if start is None or start.this is None:
        fail(Code.NOT_CQL, "a query reads at least one stream", node, "add FROM and a stream")
    sizes = asked(node)
    items = [telling(read_item(env, start.this, translate), sizes)]
    domain = items[0].input.ticks_per_second
    conditions: list[Expression] = []
    for join in node.args.get("joins") or ():
        _check_inner(join)
        item = telling(_next(items, read_item(env, join.this, translate), join.this), sizes)
        domain = one_domain(domain, item.input.ticks_per_second, join.this)
        items.append(item)
        conditions += conjuncts(Resolver(Scope(tuple(items)), "ON"), join.args.get("on"))
    return From(Scope(tuple(items)), start.this, conditions, domain)


def _next(items: list[Item], item: Item, place: exp.Expr) -> Item:
    """One more item, with a name of its own."""
    if item.name and any(each.name.lower() == item.name.lower() for each in items):
        fail(Code.SAME_ALIAS, f"two FROM items are called {item.name!r}", place, f"write {item.of} AS …")
    return item


def _check_inner(join: exp.Join) -> None:
    """Refuse what is not an inner join with ON."""
    kind = " ".join(str(join.args[key]) for key in ("method", "side", "kind") if join.args.get(key))
    if kind.upper() not in INNER:
        hint = "only inner joins: JOIN … ON, or a comma and WHERE"
        fail(Code.JOIN_KIND, f"{kind.upper()} JOIN is not part of CQL", join.this, hint)
    if join.args.get("using"):
        fail(Code.JOIN_KIND, "USING is not part of CQL", join.args["using"][0], "write ON a.k = b.k")
    check_read(join)


def read_item(env: Environment, node: exp.Expr, translate: Translate) -> Item:
    """One FROM item."""
    rule = ITEMS.get(type(node))
    if rule is None:
        name = type(node).__name__.upper()
        fail(Code.NOT_CQL, f"{name} has no place in FROM", node, "FROM takes streams, views and (SELECT …)")
    check_read(node)
    of, relation = rule(env, node, translate)
    name, relation = _aliased(node, of, relation)
    return Item(name, of, relation, _window(node, name, relation))


def _table(env: Environment, node: exp.Table, translate: Translate) -> tuple[str, Relation]:
    if not isinstance(node.this, exp.Identifier):
        fail(Code.NOT_CQL, "FROM takes no functions", node, "FROM takes streams, views and (SELECT …)")
    return node.name, env.find(node.this)


def _subquery(env: Environment, node: exp.Subquery, translate: Translate) -> tuple[str, Relation]:
    return "", translate(env, node)


ITEMS: Final[dict[type[exp.Expr], Callable[[Environment, Any, Translate], tuple[str, Relation]]]] = {
    exp.Table: _table,
    exp.Subquery: _subquery,
}


def _aliased(node: exp.Expr, of: str, relation: Relation) -> tuple[str, Relation]:
    """The name that the item and its columns have from here on."""
    alias = node.args.get("alias")
    if alias is None:
        return of, relation
    check_read(alias)
    names = [each.name for each in alias.args.get("columns") or ()]
    return alias.name or of, renamed(relation, names, alias) if names else relation


def _window(node: exp.Expr, name: str, relation: Relation) -> WindowSpec | None:
    clause = node.meta.get(WINDOW)
    if clause is None:
        return None
    if not relation.is_stream:
        hint = "window the streams inside it, or make it a stream with ISTREAM(…)"
        if relation.is_static:
            hint = "a table holds its rows at every instant: leave the window out"
        fail(Code.WINDOW_ON_RELATION, "a window makes a relation of a stream; this is one", clause.span, hint)
    scope = Scope((Item(name, name, relation, None),))

    def column(key: exp.Column) -> str:
        found = scope.find(key)
        return found if found is not None else scope.unknown(key)

    return specification(clause, relation.ticks_per_second, column)
