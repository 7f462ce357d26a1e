"""Columns that identify a row of a relation: at each instant, no two rows are equal in all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, Final

from headrace.expressions import Column
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.windows import Rows

Names = frozenset[str]


def identifies(plan: Plan, columns: Iterable[str]) -> bool:
    """Whether the columns identify a row of the relation, as far as the plan shows."""
    wanted = frozenset(columns)
    return any(key <= wanted for key in unique_keys(plan))


def unique_keys(plan: Plan) -> set[Names]:
    """Sets of columns that identify a row each; a larger set does too."""
    find = UNIQUE.get(type(plan))
    return set() if find is None else find(plan)


def _same(plan: nodes.Unary) -> set[Names]:
    return unique_keys(plan.input)


def _grouped(plan: nodes.Aggregate) -> set[Names]:
    """One row of each group is valid at an instant: windows that slide follow each other."""
    return {frozenset(plan.keys)}


def _window(plan: nodes.Window) -> set[Names]:
    newest = isinstance(plan.spec, Rows) and plan.spec.count == 1
    return {frozenset(plan.spec.keys)} if newest and isinstance(plan.spec, Rows) else set()


def _distinct(plan: nodes.Distinct) -> set[Names]:
    return {frozenset(plan.schema.names)} | unique_keys(plan.input)


def _top_n(plan: TopN) -> set[Names]:
    found = unique_keys(plan.input)
    if plan.count == 1:
        found.add(frozenset(plan.keys))
    if plan.rank is not None:
        found.add(frozenset((*plan.keys, plan.rank)))
    return found


def _project(plan: nodes.Project) -> set[Names]:
    """The keys all of whose columns are kept, under their new names."""
    kept = {e.name: name for name, e in plan.columns if isinstance(e, Column)}
    return {frozenset(kept[name] for name in key) for key in unique_keys(plan.input) if key <= kept.keys()}


def _join(plan: nodes.Pairing) -> set[Names]:
    """Keys of both sides together; of one side alone, if its rows have one partner at most."""
    left, right = unique_keys(plan.left), unique_keys(plan.right)
    found = {one | other for one, other in product(left, right)}
    if any(key <= set(plan.right_keys) for key in right):
        found |= left
    if any(key <= set(plan.left_keys) for key in left):
        found |= right
    return found


def _outer_join(plan: OuterJoin) -> set[Names]:
    """A row without a partner has NULL for the columns of the other side, as no row of that side may have."""
    left, right = unique_keys(plan.left), unique_keys(plan.right)
    if not plan.kind.has_pairs:
        return left
    if plan.kind is JoinKind.LEFT and any(key <= set(plan.right_keys) for key in right):
        return left
    return set()


UNIQUE: Final[dict[type[Plan], Callable[[Any], set[Names]]]] = {
    nodes.Select: _same,
    nodes.Project: _project,
    nodes.Window: _window,
    nodes.Join: _join,
    OuterJoin: _outer_join,
    nodes.Aggregate: _grouped,
    nodes.SlidingAggregate: _grouped,
    SessionAggregate: _grouped,
    nodes.Distinct: _distinct,
    TopN: _top_n,
}
