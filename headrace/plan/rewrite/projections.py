"""Projections move down to the source and are merged: fewer columns are sorted, windowed and held.

Not below DISTINCT, EXCEPT, ISTREAM and DSTREAM, which compare whole rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from headrace.expressions import Column, Expression, Literal
from headrace.expressions.substitution import is_movable, substitute
from headrace.plan.analysis.candidate_keys import renaming
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan, Project
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.match import Match
from headrace.plan.nodes.outer_join import OuterJoin
from headrace.plan.nodes.over import Over
from headrace.plan.nodes.sequence import Sequence, StepKind
from headrace.plan.nodes.trees import minds_order, over
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.windows import Rows
from headrace.plan.rewrite.selections import BY_TIME


def remove(plan: Plan) -> Plan | None:
    """π that returns every column unchanged → nothing."""
    if not isinstance(plan, Project) or not all(_is_same(name, e) for name, e in plan.columns):
        return None
    below = plan.input.schema
    same = len(plan.columns) == len(below.names) and plan.schema.equals(below)
    return plan.input if same else None


def _is_same(name: str, expression: Expression) -> bool:
    return isinstance(expression, Column) and expression.name == name


def merge(plan: Plan) -> Plan | None:
    """π(π(x)) → π(x), unless an expensive expression would then be computed twice."""
    if not (isinstance(plan, Project) and isinstance(plan.input, Project)):
        return None
    columns = composed(plan.columns, dict(plan.input.columns))
    return None if columns is None else Project(plan.input.input, columns)


def composed(
    columns: Iterable[tuple[str, Expression]], below: Mapping[str, Expression]
) -> tuple[tuple[str, Expression], ...] | None:
    """Columns over other columns as expressions of what those read; None if some would be computed twice."""
    columns = tuple(columns)
    used = Counter(name for _, e in columns for name in mentions(e))
    costly = [name for name, e in below.items() if not isinstance(e, (Column, Literal))]
    if any(used[name] > 1 for name in costly) or not all(map(is_movable, below.values())):
        return None
    return tuple((name, substitute(e, below)) for name, e in columns)


def mentions(expression: Expression) -> list[str]:
    """The columns of an expression, as often as they occur."""
    own = [expression.name] if isinstance(expression, Column) else []
    return own + [name for each in expression.children() for name in mentions(each)]


def _moves(plan: Plan) -> bool:
    """True for a projection without expressions that must stay where they are."""
    return isinstance(plan, Project) and all(is_movable(e) for _, e in plan.columns)


def _reads(plan: Project, column: str | None) -> bool:
    """Whether it reads the quality column of a window or granularity."""
    return column is not None and any(column in e.columns() for _, e in plan.columns)


def below_window(plan: Plan) -> Plan | None:
    """π(ω(x)) → ω(π(x)); for a row window only if its keys and its order remain."""
    if not (isinstance(plan, Project) and isinstance(plan.input, nodes.Window) and _moves(plan)):
        return None
    window = plan.input
    if _reads(plan, window.quality_column):
        return None
    below = plan.with_inputs((window.input,))
    if isinstance(window.spec, BY_TIME):
        return replace(window, input=below, quality_column=None)
    spec = _keyed_anew(plan, window.spec) if isinstance(window.spec, Rows) else None
    if spec is None or not keeps_arrival_order(window.input):
        return None
    return nodes.Window(below, spec)


def _keyed_anew(plan: Project, spec: Rows) -> Rows | None:
    """The window with its keys under their names after the projection."""
    after = {e.name: name for name, e in reversed(plan.columns) if isinstance(e, Column)}
    if not set(spec.columns) <= after.keys():
        return None
    return spec.over([after[name] for name in spec.columns])


def below_union(plan: Plan) -> Plan | None:
    """π(x ∪ y) → π(x) ∪ π(y)."""
    if not (isinstance(plan, Project) and type(plan.input) is nodes.Union and _moves(plan)):
        return None
    union = plan.input
    return nodes.Union(tuple(_over(plan, union, each) for each in union.branches))


def _over(plan: Project, union: Plan, branch: Plan) -> Plan:
    """The projection on one branch of a union, under the branch's column names."""
    names = renaming(union.schema, branch.schema)
    return Project(branch, tuple((name, e.rename(names)) for name, e in plan.columns))


def below_stream(plan: Plan) -> Plan | None:
    """π(RSTREAM(x)) → RSTREAM(π(x)), also for granularity: computed once, reported often."""
    if not (isinstance(plan, Project) and isinstance(plan.input, (nodes.RStream, nodes.Granularity))):
        return None
    below, made = plan.input, plan.with_inputs((plan.input.input,))
    if not _moves(plan) or (isinstance(below, nodes.Granularity) and _reads(plan, below.quality_column)):
        return None
    if isinstance(below, nodes.Granularity):
        return replace(below, input=made, quality_column=None)
    return below.with_inputs((made,))


# Pruning: columns that are not needed are dropped right above the source, and so are unused aggregates.
#
# From the top down, each node requests the columns of its inputs that it needs. Nodes that are not in the
# table need all. Where simultaneous rows are ordered by content (`headrace.plan.analysis.ordering`), all
# columns are needed.


Names = frozenset[str]


def prune(plan: Plan) -> Plan | None:
    """The plan without the columns that it does not need; None if it needs all."""
    found = _narrow(plan, frozenset(plan.schema.names))
    return None if found is plan else found


def _narrow(plan: Plan, needed: Names) -> Plan:
    """`plan` with at least the columns `needed`, in their order."""
    return NARROW.get(type(plan), _whole)(plan, needed)


def _whole(plan: Plan, needed: Names) -> Plan:
    """All columns of all inputs."""
    return over(plan, [_narrow(each, frozenset(each.schema.names)) for each in plan.inputs])


def _kept(names: Iterable[str], needed: Names) -> list[str]:
    """The needed columns; the first one if none is, because rows without columns cannot be counted."""
    listed = list(names)
    return [name for name in listed if name in needed] or listed[:1]


def only(plan: Plan, names: list[str]) -> Plan:
    """`plan` with only these columns."""
    if plan.schema.names == names:
        return plan
    return Project(plan, tuple((name, Column(name)) for name in names))


def _leaf(plan: nodes.Source | nodes.Table, needed: Names) -> Plan:
    return only(plan, _kept(plan.schema.names, needed))


def _select(plan: nodes.Select, needed: Names) -> Plan:
    return over(plan, [_narrow(plan.input, needed | plan.predicate.columns())])


def _project(plan: Project, needed: Names) -> Plan:
    """A projection reads only what it needs, so a source right below it keeps all columns."""
    kept = set(_kept((name for name, _ in plan.columns), needed))
    columns = tuple((name, e) for name, e in plan.columns if name in kept)
    if isinstance(plan.input, (nodes.Source, nodes.Table)):
        below: Plan = plan.input
    else:
        below = _narrow(plan.input, frozenset(name for _, e in columns for name in e.columns()))
    if below is plan.input and len(columns) == len(plan.columns):
        return plan
    return Project(below, columns)


def _unnest(plan: Unnest, needed: Names) -> Plan:
    """The operand's columns too; the new columns are made whether or not they are read."""
    below = needed & set(plan.input.schema.names)
    return over(plan, [_narrow(plan.input, below | plan.operand.columns())])


def _union(plan: nodes.Union, needed: Names) -> Plan:
    """By position: every branch drops the same columns."""
    names = plan.schema.names
    kept = set(_kept(names, needed))
    at = [i for i, name in enumerate(names) if name in kept]
    return over(plan, [_branch(each, at) for each in plan.branches])


def _branch(plan: Plan, at: list[int]) -> Plan:
    """A branch of a union with only the columns at these places."""
    names = [plan.schema.names[i] for i in at]
    return only(_narrow(plan, frozenset(names)), names)


def _same(plan: nodes.Unary, needed: Names) -> Plan:
    return over(plan, [_narrow(plan.input, needed)])


def _quality(plan: nodes.Window | nodes.Granularity, needed: Names) -> Plan:
    """A quality column that is not needed is dropped."""
    if plan.quality_column is not None and plan.quality_column not in needed:
        plan = replace(plan, quality_column=None)
    return over(plan, [_narrow(plan.input, needed & set(plan.input.schema.names))])


def _window(plan: nodes.Window, needed: Names) -> Plan:
    """A row window also needs its keys, and all columns if content decides the order of rows."""
    if not isinstance(plan.spec, Rows):
        return _quality(plan, needed)
    if not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    return _same(plan, needed | set(plan.spec.columns))


def _join(plan: nodes.Pairing, needed: Names) -> Plan:
    """Both sides keep the keys and the columns of the residual."""
    if plan.residual is not None:
        needed |= plan.residual.columns()
    needed = needed | set(plan.left_keys) | set(plan.right_keys)
    return over(plan, [_narrow(each, needed & set(each.schema.names)) for each in plan.inputs])


def _aggregate(plan: nodes.Aggregate, needed: Names) -> Plan:
    """Drop the calls that nobody reads; a global aggregate keeps at least one."""
    calls = tuple(call for call in plan.calls if call.name in needed)
    if not calls and not plan.keys:
        calls = plan.calls[:1]
    if len(calls) < len(plan.calls):
        plan = replace(plan, calls=calls)
    if minds_order(plan) and not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    read = [name for call in calls for name in call.columns]
    return over(plan, [_narrow(plan.input, frozenset([*plan.keys, *read]))])


def _distinct_on(plan: DistinctOn, needed: Names) -> Plan:
    """The keys too, and all columns if content decides which row is the first."""
    if not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    return _same(plan, needed | set(plan.keys))


def _frames(plan: Over, needed: Names) -> Plan:
    """Drop the calls that nobody reads; the rows keep the columns that are needed."""
    calls = tuple(call for call in plan.calls if call.name in needed)
    if not calls:
        return _narrow(plan.input, needed)
    if len(calls) < len(plan.calls):
        plan = replace(plan, calls=calls)
    if minds_order(plan) and not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    read = needed.union(plan.keys, *(call.columns for call in calls)) & set(plan.input.schema.names)
    return over(plan, [_narrow(plan.input, read)])


def _sliding(plan: nodes.SlidingAggregate, needed: Names) -> Plan:
    """Drop the columns with the bounds of the window if nobody reads them."""
    if plan.bounds is not None and not needed & set(plan.bounds):
        plan = replace(plan, bounds=None)
    return _aggregate(plan, needed)


def _sequence(plan: Sequence, needed: Names) -> Plan:
    """Keep the result and partition columns, the columns in conditions, and the aggregates in use."""
    read = needed.union(*(step.condition.columns() for step in plan.steps if step.condition is not None))
    folds = [tuple(call for call in step.folds if call.name in read) for step in plan.steps]
    if any(len(calls) < len(step.folds) for calls, step in zip(folds, plan.steps, strict=True)):
        steps = tuple(replace(step, folds=calls) for step, calls in zip(plan.steps, folds, strict=True))
        plan = replace(plan, steps=steps)
    return over(plan, [_step(plan, i, read) for i in range(len(plan.steps))])


def _step(plan: Sequence, index: int, read: Names) -> Plan:
    """The columns that a step needs: its keys, its aggregates' arguments, and what is read above."""
    stream, step = plan.streams[index], plan.steps[index]
    names = frozenset(stream.schema.names)
    if plan.order_matters(index) and not keeps_arrival_order(stream):
        return _narrow(stream, names)
    folded = [name for call in step.folds for name in call.columns]
    shown = names & read if step.kind is not StepKind.REPEATED else frozenset()
    return _narrow(stream, shown.union(step.keys, folded))


def _match(plan: Match, needed: Names) -> Plan:
    """Drop the measures that nobody reads; keep all columns if content decides the order of rows."""
    measures = tuple(term for term in plan.measures if term.name in needed)
    if len(measures) < len(plan.measures):
        plan = replace(plan, measures=measures)
    if not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    return over(plan, [_narrow(plan.input, plan.read)])


NARROW: Final[dict[type[Plan], Callable[[Any, Names], Plan]]] = {
    nodes.Source: _leaf,
    nodes.Table: _leaf,
    nodes.Select: _select,
    nodes.Project: _project,
    nodes.Union: _union,
    nodes.Window: _window,
    nodes.Granularity: _quality,
    nodes.Join: _join,
    OuterJoin: _join,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _sliding,
    Over: _frames,
    DistinctOn: _distinct_on,
    nodes.RStream: _same,
    Unnest: _unnest,
    Sequence: _sequence,
    Match: _match,
}
