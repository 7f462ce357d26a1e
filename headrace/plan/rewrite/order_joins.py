"""Orders joins: left-deep, connected by keys where possible, the smallest window first.

A pair lives no longer than the shorter-lived of its two rows, so starting with the narrowest window keeps
every intermediate result small. Without statistics, nothing else is known before the first row. Equal windows
stay in the order in which they were written, those with more conditions first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from headrace.expressions import Column, Expression
from headrace.expressions.substitution import conjunction, conjuncts, is_movable, substitute
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Equality, Join, Plan, Project, joined
from headrace.plan.nodes.trees import over
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded

Extent = tuple[int, int]
"""How much a relation holds: the rank of its kind, and ticks or rows within that kind."""

UNKNOWN: Final[Extent] = (3, 0)


def order_joins(plan: Plan) -> Plan | None:
    """Every tree of joins in a better order, if there is one, with the same columns as before."""
    found = _everywhere(plan)
    return None if found is plan else found


def _everywhere(plan: Plan) -> Plan:
    """The highest joins first, so that a tree is seen as a whole; then the plans in its leaves."""
    if isinstance(plan, (Join, Project)):
        tree = taken_apart(plan)
        if len(tree.leaves) > 2:
            return _ordered(plan, tree)
    return over(plan, [_everywhere(each) for each in plan.inputs])


def _ordered(plan: Plan, tree: Tree) -> Plan:
    """The tree in the chosen order, or as it is if that is good enough; either way with ordered leaves."""
    leaves = [_everywhere(leaf) for leaf in tree.leaves]
    order = _order(tree)
    if _is_good(tree, order):
        return _with_leaves(plan, dict(zip(map(id, tree.leaves), leaves, strict=True)))
    return _Building(tree, leaves).built(order, plan.schema.names)


def highest_tree(plan: Plan) -> Plan | None:
    """The highest part of a plan that is a left-deep tree of more than two relations joined by keys."""
    if isinstance(plan, (Join, Project)):
        tree = taken_apart(plan)
        if len(tree.leaves) > 2:
            return plan if tree.chained else None
    found = (highest_tree(each) for each in plan.inputs)
    return next((each for each in found if each is not None), None)


def in_order(plan: Plan, order: list[int]) -> Plan:
    """A tree of joins with its leaves in another order, with the same columns as before."""
    tree = taken_apart(plan)
    return _Building(tree, list(tree.leaves)).built(order, plan.schema.names)


def _is_good(tree: Tree, order: list[int]) -> bool:
    """A chain in this order; or a bushy tree, such as from views, in which all joins have keys."""
    return order == sorted(order) if tree.chained else not tree.crossed


def _with_leaves(plan: Plan, leaves: dict[int, Plan]) -> Plan:
    """The plan with its leaves replaced, by identity."""
    if id(plan) in leaves:
        return leaves[id(plan)]
    return over(plan, [_with_leaves(each, leaves) for each in plan.inputs])


# ---------------------------------------------------------------------------------------------- which order


def _order(tree: Tree) -> list[int]:
    """Start with the leaf that holds least, continue with the least of those that a key connects."""
    ends = [(tree.leaf_of(a), tree.leaf_of(b)) for a, b, _ in tree.keys]
    cost = [(*extent(leaf), -_conditions(leaf), i) for i, leaf in enumerate(tree.leaves)]
    connected = {leaf for pair in ends for leaf in pair}
    order = [min(connected or range(len(cost)), key=cost.__getitem__)]
    while len(order) < len(cost):
        rest = [i for i in range(len(cost)) if i not in order]
        near = {b for pair in ends for a, b in (pair, pair[::-1]) if a in order and b not in order}
        linked = [i for i in rest if i in connected]
        order.append(min(near or linked or rest, key=cost.__getitem__))
    return order


def extent(plan: Plan) -> Extent:
    """How much a relation holds, estimated from its windows."""
    if isinstance(plan, nodes.Window):
        return _window_extent(plan)
    if isinstance(plan, nodes.SlidingAggregate):
        return (2, plan.window.slide)
    below = [extent(each) for each in plan.inputs]
    return min(below) if isinstance(plan, Join) else max(below, default=UNKNOWN)


def _window_extent(plan: nodes.Window) -> Extent:
    """How much a window holds, as a rank: now, rows, time, unbounded."""
    match plan.spec:
        case Now():
            return (0, 1)
        case Rows(count):
            return (1, count)
        case Range(size):
            return (2, size)
        case Sliding(size, slide):
            return (2, size + slide)
        case Unbounded():
            return (4, 0)
    return UNKNOWN


def _conditions(plan: Plan) -> int:
    """The number of conditions in the plan: more of them leave fewer rows."""
    own = len(conjuncts(plan.predicate)) if isinstance(plan, nodes.Select) else 0
    return own + sum(_conditions(each) for each in plan.inputs)


# -------------------------------------------------------------------------------------- building the new tree


@dataclass
class _Building:
    """A tree of joins built in another order; computed keys become columns of their leaf."""

    tree: Tree
    leaves: list[Plan]
    computed: dict[Expression, str] = field(default_factory=dict)

    def built(self, order: list[int], names: Iterable[str]) -> Plan:
        """The joins in this order, under a projection to the columns `names`."""
        self._compute(self.tree.keys)
        plan, here = self.leaves[order[0]], {order[0]}
        waiting = list(self.tree.conditions)
        for leaf in order[1:]:
            pairs = self._pairs(here, leaf)
            here.add(leaf)
            known = {name for i in here for name in self.tree.leaves[i].schema.names}
            ready = [each for each in waiting if each.columns() <= known]
            waiting = [each for each in waiting if each not in ready]
            plan = joined(plan, self.leaves[leaf], pairs, conjunction(ready))
        columns = tuple((name, self._column(self.tree.columns[name])) for name in names)
        return Project(plan, columns)

    def _compute(self, keys: Iterable[Equality[Expression]]) -> None:
        """Add a column to its leaf for each key that is not a plain column."""
        taken = {name for leaf in self.tree.leaves for name in leaf.schema.names}
        known = {e: name for name, e in self.tree.columns.items() if name not in taken}
        for key in dict.fromkeys(each for pair in keys for each in (pair.left, pair.right)):
            if isinstance(key, Column):
                continue
            name = known.get(key) or next(n for i in range(len(taken) + 1) if (n := f"key_{i}") not in taken)
            taken.add(name)
            self.computed[key] = name
            leaf = self.tree.leaf_of(key)
            self.leaves[leaf] = _with_column(self.leaves[leaf], name, key)

    def _column(self, expression: Expression) -> Expression:
        """The expression, or the column that it was computed into."""
        name = self.computed.get(expression)
        return expression if name is None else Column(name)

    def _name(self, expression: Expression) -> str:
        found = self._column(expression)
        assert isinstance(found, Column)
        return found.name

    def _pairs(self, here: set[int], leaf: int) -> list[Equality[str]]:
        """The keys between the joined leaves and the next one, the joined side first."""
        found = []
        for a, b, safe in self.tree.keys:
            for one, other in ((a, b), (b, a)):
                if self.tree.leaf_of(one) in here and self.tree.leaf_of(other) == leaf:
                    found.append(Equality(self._name(one), self._name(other), safe))
        return list(dict.fromkeys(found))


def _with_column(plan: Plan, name: str, made: Expression) -> Plan:
    own = tuple((each, Column(each)) for each in plan.schema.names)
    return Project(plan, (*own, (name, made)))


# A tree of joins in parts: its leaves, the conditions, and each column of the result in terms of the leaves.
#
# Projections between joins are seen through if each of their columns depends on one leaf. Column names of all
# leaves are distinct, so the columns of a condition show which leaves it reads.


@dataclass(frozen=True)
class Tree:
    """`keys` are equalities, `conditions` the residuals, `columns` the result; all in terms of the leaves.

    `chained`: the joins are left-deep. `crossed`: one of them has no key.
    """

    leaves: tuple[Plan, ...]
    keys: tuple[Equality[Expression], ...]
    conditions: tuple[Expression, ...]
    columns: Mapping[str, Expression]
    chained: bool = True
    crossed: bool = False

    @cached_property
    def owner(self) -> dict[str, int]:
        """The leaf of each column."""
        return {name: i for i, leaf in enumerate(self.leaves) for name in leaf.schema.names}

    def leaf_of(self, expression: Expression) -> int:
        """The leaf that an expression over columns of one leaf reads."""
        return self.owner[next(iter(expression.columns()))]


def taken_apart(plan: Plan) -> Tree:
    """The tree with the root `plan`; a single leaf if it is not a join."""
    if isinstance(plan, Join):
        return _join(plan)
    found = _project(plan) if isinstance(plan, Project) else None
    return found or _leaf(plan)


def _leaf(plan: Plan) -> Tree:
    return Tree((plan,), (), (), {name: Column(name) for name in plan.schema.names})


def _join(plan: Join) -> Tree:
    """The trees of both sides as one; a side whose column names clash stays a leaf."""
    left, right = taken_apart(plan.left), taken_apart(plan.right)
    if _names(left) & _names(right):
        right = _leaf(plan.right)
    if _names(left) & _names(right):
        left = _leaf(plan.left)
    keys = [Equality(left.columns[a], right.columns[b], safe) for a, b, safe in plan.equalities]
    columns = {**left.columns, **right.columns}
    return Tree(
        left.leaves + right.leaves,
        (*left.keys, *right.keys, *keys),
        (*left.conditions, *right.conditions, *(substitute(c, columns) for c in conjuncts(plan.residual))),
        columns,
        left.chained and len(right.leaves) == 1,
        left.crossed or right.crossed or not keys,
    )


def _names(tree: Tree) -> set[str]:
    return set(tree.owner)


def _project(plan: Project) -> Tree | None:
    """The tree below, with columns in terms of its leaves; None if a column needs two leaves."""
    if not _is_over_join(plan):
        return None
    below = taken_apart(plan.input)
    if len(below.leaves) == 1:
        return None
    columns = {name: substitute(e, below.columns) for name, e in plan.columns}
    if not all(is_movable(e) and _of_one(below, e) for e in columns.values()):
        return None
    return Tree(below.leaves, below.keys, below.conditions, columns, below.chained, below.crossed)


def _is_over_join(plan: Plan) -> bool:
    while isinstance(plan, Project):
        plan = plan.input
    return isinstance(plan, Join)


def _of_one(tree: Tree, expression: Expression) -> bool:
    """True if the expression reads one leaf only."""
    return len({tree.owner[name] for name in expression.columns()}) == 1
