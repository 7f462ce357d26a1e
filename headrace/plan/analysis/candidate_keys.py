"""Candidate partition keys of a plan, over its own columns, the finest first.

These are only suggestions: `headrace.plan.analysis.partitioning` tries each of them. An operator that brings
rows together suggests the keys of its input that it can use, then all its own keys, then each of them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from headrace.expressions import Coalesce, Column, Expression
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Sequence as SequencePlan
from headrace.plan.nodes.sequence import StepKind
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN
from headrace.plan.nodes.trees import is_static
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.windows import Rows
from headrace.schema import Schema

Key = tuple[Expression, ...]


def candidate_keys(plan: Plan) -> list[Key]:
    """The keys worth trying, without duplicates and empty keys."""
    found = OFFERS.get(type(plan), _none)(plan)
    return list(dict.fromkeys(key for key in found if key))


def _none(plan: Plan) -> list[Key]:
    return []


def _all_columns(plan: Plan) -> list[Key]:
    """The whole row, for nodes that compare whole rows."""
    return [_columns(plan.schema.names)]


def _columns(names: Iterable[str]) -> Key:
    return tuple(Column(name) for name in names)


def _same(plan: nodes.Unary) -> list[Key]:
    return candidate_keys(plan.input)


def _project(plan: nodes.Project) -> list[Key]:
    """The columns that are the key itself, else those that are computed from its columns alone."""
    return [_columns(_same_as(plan, key) or _made_of(plan, read(key))) for key in candidate_keys(plan.input)]


def _same_as(plan: nodes.Project, key: Key) -> list[str]:
    """The columns of a projection that compute the expressions of a key, if each has one."""
    names = {e: name for name, e in plan.columns if not isinstance(e, Column)}
    return [names[each] for each in key] if all(each in names for each in key) else []


def _made_of(plan: nodes.Project, allowed: frozenset[str]) -> list[str]:
    """The columns of a projection that are computed from `allowed` alone; plain copies if there are any."""
    made = [(name, e) for name, e in plan.columns if e.columns() and e.columns() <= allowed]
    plain = [name for name, e in made if isinstance(e, Column)]
    return plain or [name for name, _ in made]


def read(key: Key) -> frozenset[str]:
    """The columns that a key reads."""
    return frozenset(name for each in key for name in each.columns())


def _positions(plan: nodes.Union | nodes.Except) -> list[Key]:
    """The suggestions of all branches, under the names of the first."""
    found = []
    for branch in plan.inputs:
        names = renaming(branch.schema, plan.schema)
        found += [tuple(each.rename(names) for each in key) for key in candidate_keys(branch)]
    return found


def renaming(names: Schema, to: Schema) -> dict[str, str]:
    """From the names of one schema to those of another, by position."""
    return dict(zip(names.names, to.names, strict=True))


def row_window(plan: nodes.Window) -> Rows | None:
    """The window specification, if it is a row window."""
    return plan.spec if isinstance(plan.spec, Rows) else None


def _window(plan: nodes.Window) -> list[Key]:
    spec = row_window(plan)
    return candidate_keys(plan.input) if spec is None else _meeting(plan.input, spec.keys)


def _aggregate(plan: nodes.Aggregate | TopN | Lag | Over | DistinctOn | Match) -> list[Key]:
    return _meeting(plan.input, plan.keys)


def _meeting(plan: Plan, keys: Sequence[str]) -> list[Key]:
    """Keys that keep rows with equal `keys` together: those from below, all of `keys`, and each alone."""
    below = [tuple(e for e in key if e.columns() <= set(keys)) for key in candidate_keys(plan)]
    return [*below, _columns(keys), *(_columns([name]) for name in keys)]


def _outer_join(plan: OuterJoin) -> list[Key]:
    """Columns of a side whose rows come without a partner are NULL in some rows, so they cannot be keys."""
    if plan.kind is JoinKind.FULL:
        pairs = zip(plan.left_keys, plan.right_keys, strict=True)
        merged = tuple(Coalesce((Column(a), Column(b))) for a, b in pairs)
        return [merged, *((each,) for each in merged)]
    names = set(plan.left.schema.names)
    return [key for key in join_keys(plan) if read(key) <= names]


def join_keys(plan: nodes.Pairing) -> list[Key]:
    """The join keys, under the names of either side."""
    to_left = dict(zip(plan.right_keys, plan.left_keys, strict=True))
    to_right = dict(zip(plan.left_keys, plan.right_keys, strict=True))
    for stream, table, names in ((plan.left, plan.right, to_right), (plan.right, plan.left, to_left)):
        if is_static(table):
            return [
                *candidate_keys(stream),
                *(tuple(e.rename(names) for e in key) for key in candidate_keys(stream)),
            ]
    right = [tuple(e.rename(to_left) for e in key) for key in _meeting(plan.right, plan.right_keys)]
    found = [*_meeting(plan.left, plan.left_keys), *right]
    return [*found, *(tuple(e.rename(to_right) for e in key) for key in found)]


def _changelog(plan: Changelog) -> list[Key]:
    return _meeting(plan.input, plan.keys) if plan.keys else candidate_keys(plan.input)


def _sequence(plan: SequencePlan) -> list[Key]:
    """The partition columns, under the names of each step whose columns are in the result."""
    first = plan.steps[0].keys
    found = _meeting(plan.streams[0], first)
    renamings = [
        dict(zip(first, step.keys, strict=True)) for step in plan.steps if step.kind is StepKind.ONCE
    ]
    return [tuple(e.rename(names) for e in key) for names in renamings for key in found]


OFFERS: Final[dict[type[Plan], Callable[[Any], list[Key]]]] = {
    nodes.Source: _all_columns,
    nodes.Select: _same,
    nodes.Project: _project,
    nodes.Union: _positions,
    nodes.Window: _window,
    nodes.Granularity: _same,
    nodes.Join: join_keys,
    OuterJoin: _outer_join,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _aggregate,
    SessionAggregate: _aggregate,
    nodes.Distinct: _same,
    TopN: _aggregate,
    Lag: _aggregate,
    Match: _aggregate,
    Over: _aggregate,
    DistinctOn: _aggregate,
    Unnest: _same,
    nodes.Except: _positions,
    nodes.IStream: _same,
    nodes.DStream: _same,
    nodes.RStream: _same,
    Changelog: _changelog,
    SequencePlan: _sequence,
}
