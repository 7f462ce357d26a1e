"""FROM: its items, each a stream or relation with a name and perhaps a window, and the ON conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Cast, Column, Comparison, Expression
from headrace.expressions.types import common_type
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import EQUALITIES, Equality, Plan, Project, Select
from headrace.plan.nodes.windows import WindowSpec
from headrace.sql.binder.environment import Environment, one_domain, renamed
from headrace.sql.binder.quality_columns import asked, telling
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Scope, fresh
from headrace.sql.binder.top_n import is_numbered
from headrace.sql.binder.typed import conjunction, conjuncts
from headrace.sql.binder.windows import specification
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import TIME, WINDOW
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail

Translate = Callable[[Environment, exp.Expr], Relation]
INNER: Final = frozenset({"", "INNER", "CROSS"})


@dataclass(frozen=True)
class From:
    """The FROM clause: its items, the place of the first, the conditions from ON, and ticks per second.

    `takes_where`: the item is a sequence, and WHERE is a part of it.
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
        fail(Code.NOT_CQL, "the query has no FROM clause", node, "add FROM and the name of a stream")
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
    """The next item, unless its name is already taken."""
    if item.name and any(each.name.lower() == item.name.lower() for each in items):
        fail(Code.SAME_ALIAS, f"two FROM items are named {item.name!r}", place, f"rename one: {item.of} AS …")
    return item


def _check_inner(join: exp.Join) -> None:
    """Reject any join other than an inner join with ON."""
    kind = " ".join(str(join.args[key]) for key in ("method", "side", "kind") if join.args.get(key))
    if kind.upper() not in INNER:
        hint = "CQL has inner joins: JOIN … ON, or a comma and WHERE"
        fail(Code.JOIN_KIND, f"CQL does not support {kind.upper()} JOIN", join.this, hint)
    if join.args.get("using"):
        fail(Code.JOIN_KIND, "CQL does not support USING", join.args["using"][0], "write ON a.k = b.k")
    check_read(join)


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
    return Item(name, of, relation, _window(node, name, relation))


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


ITEMS: Final[dict[type[exp.Expr], Callable[[Environment, Any, Translate], tuple[str, Relation]]]] = {
    exp.Table: _table,
    exp.Subquery: _subquery,
}


REFUSED: Final[dict[type[exp.Expr], str]] = {
    exp.Unnest: "UNNEST",
    exp.Lateral: "LATERAL",
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


# Joins: a left-deep tree of binary joins in FROM order, connected by keys where the conditions allow it.
#
# `left = right` and `left <=> right` between the items joined so far and the next one are keys, cast where
# the types differ. All other conditions are checked on the joined rows; `headrace.plan.rewrite` pushes them
# further down.


Items = frozenset[int]


@dataclass(frozen=True)
class Condition:
    """A conjunct and the items whose columns it reads.

    `sides`: for an equality that can be a key, each side in the common type, with the items it reads.
    """

    expression: Expression
    items: Items
    sides: tuple[tuple[Expression, Items], ...] = ()
    null_safe: bool = False

    def key(self, left: set[int], right: int) -> Equality[Expression] | None:
        """The equality as (key of the joined items, key of the new item), if it is one."""
        for (one, of_one), (other, of_other) in zip(self.sides, reversed(self.sides), strict=True):
            if of_one <= left and of_other == {right}:
                return Equality(one, other, self.null_safe)
        return None


@dataclass
class _Tree:
    """The joins so far: the plan, its items, the conditions not applied yet, the names in use."""

    plan: Plan
    items: set[int]
    pending: list[Condition]
    taken: set[str]


def joined(scope: Scope, conjuncts: Sequence[Expression]) -> Plan:
    """The join of all items of the scope on all conjuncts, under internal names."""
    if len(scope.items) == 1:
        return selected(scope.items[0].relation, list(conjuncts))
    conditions = [_condition(scope, each) for each in conjuncts]
    sides = [_side(scope, i, conditions) for i in range(len(scope.items))]
    tree = _Tree(sides[0], {0}, conditions, {name.lower() for name in scope.schema.names})
    while len(tree.items) < len(sides):
        item = _next_item(tree, len(sides))
        _join(tree, item, sides[item])
    return selected(tree.plan, [each.expression for each in tree.pending])


def selected(plan: Plan, conditions: list[Expression]) -> Plan:
    """The rows of `plan` that meet all conditions."""
    predicate = conjunction(conditions)
    return plan if predicate is None else Select(plan, predicate)


def _condition(scope: Scope, expression: Expression) -> Condition:
    """A conjunct with the items it reads; an equality of two sides is prepared as a join key."""
    items = _items(scope, expression)
    if not isinstance(expression, Comparison) or expression.op not in EQUALITIES or len(items) < 2:
        return Condition(expression, items)
    sides = (expression.left, expression.right)
    left, right = (each.type(scope.schema) for each in sides)
    common = left if left == right else common_type(left, right)
    of_left, of_right = (_items(scope, each) for each in sides)
    if common is None or of_left & of_right or not of_left or not of_right:
        return Condition(expression, items)
    cast = [
        each if of == common else Cast(each, common) for each, of in zip(sides, (left, right), strict=True)
    ]
    sides_of = ((cast[0], of_left), (cast[1], of_right))
    return Condition(expression, items, sides_of, EQUALITIES[expression.op])


def _items(scope: Scope, expression: Expression) -> Items:
    """The items whose columns an expression reads."""
    return frozenset(scope.owner[name] for name in expression.columns())


def _side(scope: Scope, item: int, conditions: list[Condition]) -> Plan:
    """An item with its columns renamed. Conditions on numbered rows are applied here: one may bound them."""
    columns, relation = scope.columns[item], scope.items[item].relation
    if is_numbered(relation):
        back = {found.internal: found.column for found in columns}
        own = [each for each in conditions if each.items == {item}]
        relation = selected(relation, [each.expression.rename(back) for each in own])
        conditions[:] = [each for each in conditions if each not in own]
    size, told = scope.items[item].size, scope.sizes.get(item)
    shown = [] if size is None or told is None else [(told, Column(size))]
    return Project(relation, (*((found.internal, Column(found.column)) for found in columns), *shown))


def _next_item(tree: _Tree, count: int) -> int:
    """The first item in FROM order that a key connects to the tree; otherwise the first."""
    waiting = [i for i in range(count) if i not in tree.items]
    return next((i for i in waiting if any(c.key(tree.items, i) for c in tree.pending)), waiting[0])


def _join(tree: _Tree, item: int, side: Plan) -> None:
    """Join the next item on the right of the tree."""
    keys = [pair for pair in (each.key(tree.items, item) for each in tree.pending) if pair is not None]
    left, left_names = _with_keys(tree.plan, [each.left for each in keys], tree.taken)
    right, right_names = _with_keys(side, [each.right for each in keys], tree.taken)
    pairs = zip(left_names, right_names, keys, strict=True)
    tree.pending = [each for each in tree.pending if each.key(tree.items, item) is None]
    tree.items.add(item)
    tree.plan = nodes.joined(left, right, [Equality(a, b, each.null_safe) for a, b, each in pairs])


def _with_keys(plan: Plan, keys: list[Expression], taken: set[str]) -> tuple[Plan, tuple[str, ...]]:
    """`plan` with the keys as columns, and their names; keys that are expressions are computed first."""
    names = [key.name if isinstance(key, Column) else fresh("key", taken) for key in keys]
    computed = [(n, key) for n, key in zip(names, keys, strict=True) if not isinstance(key, Column)]
    return (_with_columns(plan, computed) if computed else plan), tuple(names)


def _with_columns(plan: Plan, extra: list[tuple[str, Expression]]) -> Plan:
    """`plan` with more columns; if it only renames, one projection does both."""
    back = (
        {name: e.name for name, e in plan.columns if isinstance(e, Column)}
        if isinstance(plan, Project)
        else {}
    )
    if isinstance(plan, Project) and len(back) == len(plan.columns):
        return Project(plan.input, (*plan.columns, *((name, each.rename(back)) for name, each in extra)))
    return Project(plan, (*((name, Column(name)) for name in plan.schema.names), *extra))
