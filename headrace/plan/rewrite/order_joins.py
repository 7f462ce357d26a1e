"""The order of joins: left-deep, connected by keys as long as possible, what holds least first.

A pair lives no longer than the shorter-lived of its two rows, so beginning with the narrowest window keeps
every intermediate result small. Without statistics that is what is known before the first row comes; equal
windows stay in the order in which they were written, those with more conditions first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from headrace.expressions import Column, Expression
from headrace.expressions.rewriting import conjunction, conjuncts
from headrace.plan import nodes
from headrace.plan.nodes import Equality, Join, Plan, Project, joined
from headrace.plan.rewrite.join_tree import Tree, taken_apart
from headrace.plan.trees import over
from headrace.plan.windows import Now, Range, Rows, Sliding, Unbounded

Extent = tuple[int, int]
"""How much a relation holds: a rank of its kind, and ticks or rows within it."""

UNKNOWN: Final[Extent] = (3, 0)


def order_joins(plan: Plan) -> Plan | None:
    """Every tree of joins in a better order, if there is one; its columns come out as before."""
    found = _everywhere(plan)
    return None if found is plan else found


def _everywhere(plan: Plan) -> Plan:
    """The highest joins first, so that a tree is seen whole; then what its leaves contain."""
    if isinstance(plan, (Join, Project)):
        tree = taken_apart(plan)
        if len(tree.leaves) > 2:
            return _ordered(plan, tree)
    return over(plan, [_everywhere(each) for each in plan.inputs])


def _ordered(plan: Plan, tree: Tree) -> Plan:
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
    """A tree of joins with its leaves joined in another order; its columns come out as before."""
    tree = taken_apart(plan)
    return _Building(tree, list(tree.leaves)).built(order, plan.schema.names)


def _is_good(tree: Tree, order: list[int]) -> bool:
    """A chain in this order; or a bushy tree, such as views make, in which keys connect everything."""
    return order == sorted(order) if tree.chained else not tree.crossed


def _with_leaves(plan: Plan, leaves: dict[int, Plan]) -> Plan:
    if id(plan) in leaves:
        return leaves[id(plan)]
    return over(plan, [_with_leaves(each, leaves) for each in plan.inputs])


# ---------------------------------------------------------------------------------------------- which order


def _order(tree: Tree) -> list[int]:
    """Begin with the leaf that holds least, go on with the least of those that a key connects."""
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
    """How much a relation holds, as far as its windows say."""
    if isinstance(plan, nodes.Window):
        return _window_extent(plan)
    if isinstance(plan, nodes.SlidingAggregate):
        return (2, plan.window.slide)
    below = [extent(each) for each in plan.inputs]
    return min(below) if isinstance(plan, Join) else max(below, default=UNKNOWN)


def _window_extent(plan: nodes.Window) -> Extent:
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
    own = len(conjuncts(plan.predicate)) if isinstance(plan, nodes.Select) else 0
    return own + sum(_conditions(each) for each in plan.inputs)


# ------------------------------------------------------------------------------------------ building it anew


@dataclass
class _Building:
    """A tree of joins put together in another order; keys that are computed become columns of their leaf."""

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
        """Give each key that is no plain column a name in its leaf."""
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
        name = self.computed.get(expression)
        return expression if name is None else Column(name)

    def _name(self, expression: Expression) -> str:
        found = self._column(expression)
        assert isinstance(found, Column)
        return found.name

    def _pairs(self, here: set[int], leaf: int) -> list[Equality[str]]:
        """The keys between what is joined and the next leaf, the former first."""
        found = []
        for a, b, safe in self.tree.keys:
            for one, other in ((a, b), (b, a)):
                if self.tree.leaf_of(one) in here and self.tree.leaf_of(other) == leaf:
                    found.append(Equality(self._name(one), self._name(other), safe))
        return list(dict.fromkeys(found))


def _with_column(plan: Plan, name: str, made: Expression) -> Plan:
    own = tuple((each, Column(each)) for each in plan.schema.names)
    return Project(plan, (*own, (name, made)))
