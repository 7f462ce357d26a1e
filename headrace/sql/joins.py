"""Joins: a left-deep tree of binary joins in FROM order, connected by keys where the conditions allow it.

`left = right` and `left <=> right` between what is joined already and the next item are keys, cast where the
types differ. All other conditions are asked of the joined rows; `headrace.plan.rewrite` finds them their
places further down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.expressions import Cast, Column, Comparison, Expression
from headrace.expressions.types import common_type
from headrace.plan import nodes
from headrace.plan.nodes import EQUALITIES, Equality, Plan, Project, Select
from headrace.sql.rank_bounds import is_numbered
from headrace.sql.scope import Scope, fresh
from headrace.sql.typed import conjunction

Items = frozenset[int]


@dataclass(frozen=True)
class Condition:
    """A conjunct and the items whose columns it reads.

    `sides`: of an equality that can be a key, each side in the common type with the items it reads.
    """

    expression: Expression
    items: Items
    sides: tuple[tuple[Expression, Items], ...] = ()
    null_safe: bool = False

    def key(self, left: set[int], right: int) -> Equality[Expression] | None:
        """The equality as (a key of what is joined, a key of the new item), if it is one."""
        for (one, of_one), (other, of_other) in zip(self.sides, reversed(self.sides), strict=True):
            if of_one <= left and of_other == {right}:
                return Equality(one, other, self.null_safe)
        return None


@dataclass
class _Tree:
    """The joins so far: the plan, the items in it, the conditions not met yet, the names in use."""

    plan: Plan
    items: set[int]
    pending: list[Condition]
    taken: set[str]


def joined(scope: Scope, conjuncts: Sequence[Expression]) -> Plan:
    """All items of the scope that meet all conjuncts, under internal names."""
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
    return frozenset(scope.owner[name] for name in expression.columns())


def _side(scope: Scope, item: int, conditions: list[Condition]) -> Plan:
    """An item, its columns renamed. Numbered rows are asked their own conditions here: one is their bound."""
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
    """The first item in FROM order that a key connects; failing that, the first."""
    waiting = [i for i in range(count) if i not in tree.items]
    return next((i for i in waiting if any(c.key(tree.items, i) for c in tree.pending)), waiting[0])


def _join(tree: _Tree, item: int, side: Plan) -> None:
    """Put the next item on the right of the tree."""
    keys = [pair for pair in (each.key(tree.items, item) for each in tree.pending) if pair is not None]
    left, left_names = _with_keys(tree.plan, [each.left for each in keys], tree.taken)
    right, right_names = _with_keys(side, [each.right for each in keys], tree.taken)
    pairs = zip(left_names, right_names, keys, strict=True)
    tree.pending = [each for each in tree.pending if each.key(tree.items, item) is None]
    tree.items.add(item)
    tree.plan = nodes.joined(left, right, [Equality(a, b, each.null_safe) for a, b, each in pairs])


def _with_keys(plan: Plan, keys: list[Expression], taken: set[str]) -> tuple[Plan, tuple[str, ...]]:
    """The names of the keys in `plan`; those that are no plain columns are computed first."""
    names = [key.name if isinstance(key, Column) else fresh("key", taken) for key in keys]
    computed = [(n, key) for n, key in zip(names, keys, strict=True) if not isinstance(key, Column)]
    return (_with_columns(plan, computed) if computed else plan), tuple(names)


def _with_columns(plan: Plan, extra: list[tuple[str, Expression]]) -> Plan:
    """`plan` with more columns; where it only renames, one projection does both."""
    back = (
        {name: e.name for name, e in plan.columns if isinstance(e, Column)}
        if isinstance(plan, Project)
        else {}
    )
    if isinstance(plan, Project) and len(back) == len(plan.columns):
        return Project(plan.input, (*plan.columns, *((name, each.rename(back)) for name, each in extra)))
    return Project(plan, (*((name, Column(name)) for name in plan.schema.names), *extra))
