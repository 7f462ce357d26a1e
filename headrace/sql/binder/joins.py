"""The joins of a FROM clause: inner joins in any order, outer, semi and anti joins where they are written.

`left = right` and `left <=> right` between the items joined so far and the next one are keys, cast where the
types differ. All other conditions are checked on the joined rows; `headrace.plan.rewrite` pushes them further
down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.expressions import Cast, Column, Comparison, Expression
from headrace.expressions.types import common_type
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import EQUALITIES, Equality, Plan, Project, Select
from headrace.plan.nodes.outer_join import JoinKind, outer_joined
from headrace.sql.binder.intervals import Interval, Within, interval_of, outer_within, time_of
from headrace.sql.binder.scope import Outer, Scope, fresh
from headrace.sql.binder.top_n import is_numbered
from headrace.sql.binder.typed import conjunction
from headrace.sql.place import Code, fail

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

    plan: Plan | None
    items: set[int]
    pending: list[Condition]
    taken: set[str]


def joined(scope: Scope, conjuncts: Sequence[Expression]) -> Plan:
    """The join of all items of the scope on all conjuncts, under internal names.

    Outer joins stay where they are written: items between them are joined in any order. A condition of WHERE
    is applied as soon as its columns are there, unless a later RIGHT or FULL JOIN adds rows.
    """
    plan = _from_items(scope, conjuncts)
    for half in scope.halves:
        plan = half.over(plan)
    return plan


def _from_items(scope: Scope, conjuncts: Sequence[Expression]) -> Plan:
    if len(scope.items) == 1:
        return selected(scope.items[0].relation, list(conjuncts))
    steps = {step.item: step for step in scope.outer}
    last = max((i for i, step in steps.items() if step.adds_rows), default=0)
    where = [_condition(scope, each) for each in conjuncts]
    inner = {i: [_condition(scope, each) for each in on] for i, on in scope.on.items()}
    tree = _Tree(None, {0}, [], {name.lower() for name in scope.schema.names})
    at = 1
    while at < len(scope.items):
        group = [i for i in range(at, len(scope.items)) if not steps.keys() & set(range(at, i + 1))]
        tree.pending += [each for i in group for each in inner.get(i, [])]
        if at > last:
            there = tree.items | set(group)
            tree.pending += [each for each in where if each.items <= there]
            where = [each for each in where if not each.items <= there]
        tree.plan = tree.plan or _side(scope, 0, tree.pending)
        if group:
            _join_all(scope, tree, group)
        else:
            _outer(scope, tree, steps[at])
        at += len(group) or 1
    assert tree.plan is not None
    return selected(tree.plan, [each.expression for each in [*tree.pending, *where]])


def _join_all(scope: Scope, tree: _Tree, group: list[int]) -> None:
    """Join items in the order in which keys connect them, and apply the conditions on them."""
    sides = {i: _side(scope, i, tree.pending) for i in group}
    while waiting := [i for i in group if i not in tree.items]:
        item = next((i for i in waiting if any(c.key(tree.items, i) for c in tree.pending)), waiting[0])
        _join(tree, item, sides[item])


def _outer(scope: Scope, tree: _Tree, step: Outer) -> None:
    """Join the next item by an outer join: its ON decides who is a partner, and nothing else."""
    on = [_condition(scope, each) for each in step.on]
    assert tree.plan is not None
    plan = selected(tree.plan, [each.expression for each in tree.pending])
    tree.pending = []
    side = _side(scope, step.item, on if not step.exchanged and step.kind is JoinKind.LEFT else [])
    keys = [pair for pair in (each.key(tree.items, step.item) for each in on) if pair is not None]
    rest = [each.expression for each in on if each.key(tree.items, step.item) is None]
    left, left_names = with_keys(plan, [each.left for each in keys], tree.taken)
    right, right_names = with_keys(side, [each.right for each in keys], tree.taken)
    pairs = zip(left_names, right_names, keys, strict=True)
    names = [Equality(a, b, each.null_safe) for a, b, each in pairs]
    if step.exchanged:
        left, right = right, left
        names = [Equality(b, a, null_safe) for a, b, null_safe in names]
    interval = _interval(scope, tree.items, step)
    tree.items.add(step.item)
    if interval is None:
        tree.plan = outer_joined(step.kind, left, right, names, conjunction(rest))
    else:
        tree.plan = outer_within(step.kind, Within(left, right, names, conjunction(rest), interval))


def _interval(scope: Scope, items: set[int], step: Outer) -> Interval | None:
    """How far apart partners are, if ON bounds the times of two streams without windows."""
    time, found = time_of(scope, step.item), None
    for item in items:
        other = time_of(scope, item)
        if time is not None and other is not None:
            names = (time, other) if step.exchanged else (other, time)
            found = interval_of(step.on, *names)
            if found.decides(step.kind):
                break
    else:
        return None
    if len(items) > 1:
        hint = "join the other streams in a subquery, or give all of them windows"
        fail(Code.JOIN_KIND, "an outer join within an interval of time joins two streams", step.place, hint)
    return found


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


def _join(tree: _Tree, item: int, side: Plan) -> None:
    """Join the next item on the right of the tree."""
    assert tree.plan is not None
    keys = [pair for pair in (each.key(tree.items, item) for each in tree.pending) if pair is not None]
    left, left_names = with_keys(tree.plan, [each.left for each in keys], tree.taken)
    right, right_names = with_keys(side, [each.right for each in keys], tree.taken)
    pairs = zip(left_names, right_names, keys, strict=True)
    tree.pending = [each for each in tree.pending if each.key(tree.items, item) is None]
    tree.items.add(item)
    tree.plan = nodes.joined(left, right, [Equality(a, b, each.null_safe) for a, b, each in pairs])


def with_keys(plan: Plan, keys: list[Expression], taken: set[str]) -> tuple[Plan, tuple[str, ...]]:
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
