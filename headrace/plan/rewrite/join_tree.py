"""A tree of joins taken apart: what is joined, the conditions, and what each column of the answer is made of.

Projections between joins are looked through if each of their columns is made of one leaf. Column names of all
leaves are distinct, so a condition says by its columns which leaves it is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.expressions import Column, Expression
from headrace.expressions.rewriting import conjuncts, is_movable, substitute
from headrace.plan.nodes import Equality, Join, Plan, Project


@dataclass(frozen=True)
class Tree:
    """`keys` are equalities, `conditions` the residuals, `columns` the answer's, over the leaves' columns.

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
        """The leaf that each column belongs to."""
        return {name: i for i, leaf in enumerate(self.leaves) for name in leaf.schema.names}

    def leaf_of(self, expression: Expression) -> int:
        """The leaf that an expression of one leaf's columns reads."""
        return self.owner[next(iter(expression.columns()))]


def taken_apart(plan: Plan) -> Tree:
    """The tree whose root `plan` is; a leaf if it is no join."""
    if isinstance(plan, Join):
        return _join(plan)
    found = _project(plan) if isinstance(plan, Project) else None
    return found or _leaf(plan)


def _leaf(plan: Plan) -> Tree:
    return Tree((plan,), (), (), {name: Column(name) for name in plan.schema.names})


def _join(plan: Join) -> Tree:
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
    return len({tree.owner[name] for name in expression.columns()}) == 1
