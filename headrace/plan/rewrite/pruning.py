"""Columns that nobody needs are left out right above the source, and so are aggregates that nobody reads.

From the top down each node says which columns of its inputs it needs. A node that is not in the table needs
all. Where simultaneous rows are taken in order of content (`headrace.plan.order`) every column counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from headrace.expressions import Column
from headrace.plan import nodes
from headrace.plan.nodes import Plan, Project
from headrace.plan.order import keeps_arrival_order
from headrace.plan.sequence import Sequence, StepKind
from headrace.plan.trees import minds_order, over
from headrace.plan.windows import Rows

Names = frozenset[str]


def prune(plan: Plan) -> Plan | None:
    """The plan with columns left out that it does not need; None if it needs all."""
    found = _narrow(plan, frozenset(plan.schema.names))
    return None if found is plan else found


def _narrow(plan: Plan, needed: Names) -> Plan:
    """`plan` with at least the columns `needed`, in the order in which they were."""
    return NARROW.get(type(plan), _whole)(plan, needed)


def _whole(plan: Plan, needed: Names) -> Plan:
    """All columns of all inputs."""
    return over(plan, [_narrow(each, frozenset(each.schema.names)) for each in plan.inputs])


def _kept(names: Iterable[str], needed: Names) -> list[str]:
    """Those needed; the first if none is, because rows without columns cannot be counted."""
    listed = list(names)
    return [name for name in listed if name in needed] or listed[:1]


def only(plan: Plan, names: list[str]) -> Plan:
    """`plan` with just these columns."""
    if plan.schema.names == names:
        return plan
    return Project(plan, tuple((name, Column(name)) for name in names))


def _leaf(plan: nodes.Source | nodes.Table, needed: Names) -> Plan:
    return only(plan, _kept(plan.schema.names, needed))


def _select(plan: nodes.Select, needed: Names) -> Plan:
    return over(plan, [_narrow(plan.input, needed | plan.predicate.columns())])


def _project(plan: Project, needed: Names) -> Plan:
    """It reads what it needs and no more: a source under it is left whole."""
    kept = set(_kept((name for name, _ in plan.columns), needed))
    columns = tuple((name, e) for name, e in plan.columns if name in kept)
    if isinstance(plan.input, (nodes.Source, nodes.Table)):
        below: Plan = plan.input
    else:
        below = _narrow(plan.input, frozenset(name for _, e in columns for name in e.columns()))
    if below is plan.input and len(columns) == len(plan.columns):
        return plan
    return Project(below, columns)


def _union(plan: nodes.Union, needed: Names) -> Plan:
    """By position: every branch leaves out the same columns."""
    names = plan.schema.names
    kept = set(_kept(names, needed))
    at = [i for i, name in enumerate(names) if name in kept]
    return over(plan, [_branch(each, at) for each in plan.branches])


def _branch(plan: Plan, at: list[int]) -> Plan:
    names = [plan.schema.names[i] for i in at]
    return only(_narrow(plan, frozenset(names)), names)


def _same(plan: nodes.Unary, needed: Names) -> Plan:
    return over(plan, [_narrow(plan.input, needed)])


def _telling(plan: nodes.Window | nodes.Granularity, needed: Names) -> Plan:
    """The quality is told only where somebody asks."""
    if plan.shown is not None and plan.shown not in needed:
        plan = replace(plan, shown=None)
    return over(plan, [_narrow(plan.input, needed & set(plan.input.schema.names))])


def _window(plan: nodes.Window, needed: Names) -> Plan:
    if not isinstance(plan.spec, Rows):
        return _telling(plan, needed)
    if not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    return _same(plan, needed | set(plan.spec.keys))


def _join(plan: nodes.Join, needed: Names) -> Plan:
    if plan.residual is not None:
        needed |= plan.residual.columns()
    needed = needed | set(plan.left_keys) | set(plan.right_keys)
    return over(plan, [_narrow(each, needed & set(each.schema.names)) for each in plan.inputs])


def _aggregate(plan: nodes.Aggregate, needed: Names) -> Plan:
    calls = tuple(call for call in plan.calls if call.name in needed)
    if not calls and not plan.keys:
        calls = plan.calls[:1]
    if len(calls) < len(plan.calls):
        plan = replace(plan, calls=calls)
    if minds_order(plan) and not keeps_arrival_order(plan.input):
        return _whole(plan, needed)
    read = [name for call in calls for name in call.columns]
    return over(plan, [_narrow(plan.input, frozenset([*plan.keys, *read]))])


def _sliding(plan: nodes.SlidingAggregate, needed: Names) -> Plan:
    if plan.bounds is not None and not needed & set(plan.bounds):
        plan = replace(plan, bounds=None)
    return _aggregate(plan, needed)


def _sequence(plan: Sequence, needed: Names) -> Plan:
    """What is shown, the partitions, and what conditions read; of a run what is told of it."""
    read = needed.union(*(step.condition.columns() for step in plan.steps if step.condition is not None))
    told = [tuple(call for call in step.folds if call.name in read) for step in plan.steps]
    if any(len(calls) < len(step.folds) for calls, step in zip(told, plan.steps, strict=True)):
        steps = tuple(replace(step, folds=calls) for step, calls in zip(plan.steps, told, strict=True))
        plan = replace(plan, steps=steps)
    return over(plan, [_step(plan, i, read) for i in range(len(plan.steps))])


def _step(plan: Sequence, index: int, read: Names) -> Plan:
    stream, step = plan.streams[index], plan.steps[index]
    names = frozenset(stream.schema.names)
    if plan.order_matters(index) and not keeps_arrival_order(stream):
        return _narrow(stream, names)
    folded = [name for call in step.folds for name in call.columns]
    shown = names & read if step.kind is not StepKind.REPEATED else frozenset()
    return _narrow(stream, shown.union(step.keys, folded))


NARROW: Final[dict[type[Plan], Callable[[Any, Names], Plan]]] = {
    nodes.Source: _leaf,
    nodes.Table: _leaf,
    nodes.Select: _select,
    nodes.Project: _project,
    nodes.Union: _union,
    nodes.Window: _window,
    nodes.Granularity: _telling,
    nodes.Join: _join,
    nodes.Aggregate: _aggregate,
    nodes.SlidingAggregate: _sliding,
    nodes.RStream: _same,
    Sequence: _sequence,
}
