"""Which nodes of several plans `headrace.plan.rewrite.sharing` may merge, and the node that results.

A group has the nodes that compute the same rows, apart from columns. Its columns are what all of them
compute, each once. A projection has no group: its columns are expressions over the columns of the group
below it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace.expressions import Column, Expression, Literal
from headrace.expressions.substitution import conjuncts, is_movable, substitute
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import AggregateCall, Plan, Project, Source, Table, ToStream
from headrace.plan.nodes.quality import Bounds, without_bounds
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import minds_order, takes_pieces
from headrace.plan.nodes.user_aggregates import UserCall
from headrace.plan.nodes.windows import Rows
from headrace.plan.rewrite import projections

Columns = Mapping[str, Expression]
"""The columns of a plan, by name and in order, as expressions over the columns of a group."""


class Use(NamedTuple):
    """A node of a plan. `pieces`: the nodes above it take a row in pieces, one after the other."""

    plan: Plan
    pieces: bool = True

    @property
    def inputs(self) -> list[Use]:
        """The nodes below it."""
        below = isinstance(self.plan, ToStream) or (self.pieces and takes_pieces(self.plan))
        return [Use(each, below) for each in self.plan.inputs]


@dataclass(eq=False)
class Group:
    """Sub-plans that are one node if that node has the columns of all of them.

    `columns` gives each column of the group, by what it computes, a name. `alone` and `below_merged` are the
    members, with the queries that use them; the latter are inputs of merged groups, which need one node for
    all of them. `merged`: the members become one node, with the columns `needed`. `providers` are nodes of
    fixed plans, and `provided` is the one, if any, that merged groups use.
    """

    rule: Rule
    template: Plan
    inputs: tuple[Group, ...]
    own: Any
    bounds: Bounds | None
    columns: dict[Hashable, str] = field(default_factory=dict)
    alone: dict[Use, set[str]] = field(default_factory=dict)
    below_merged: dict[Use, set[str]] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)
    merged: bool = False
    providers: dict[Plan, Columns] = field(default_factory=dict)
    provided: Plan | None = None

    def name(self, what: Hashable, wishes: Iterable[str]) -> str:
        """The name of a column: the first of the wishes that is free, if the column is new."""
        if what not in self.columns:
            self.columns[what] = _free(wishes, set(self.columns.values()))
        return self.columns[what]

    @property
    def wanted(self) -> dict[Hashable, str]:
        """The columns that some member needs."""
        return {what: name for what, name in self.columns.items() if name in self.needed}

    def provider(self, needed: set[str]) -> Plan | None:
        """The node of a fixed plan that has these columns; that with the fewest, if there are more."""
        found = [each for each, columns in self.providers.items() if needed <= places(columns).keys()]
        return min(found, key=lambda each: len(each.schema), default=None)


def _free(wishes: Iterable[str], taken: set[str]) -> str:
    """The first wish that is not taken; else the last one with a number."""
    last = ""
    for last in wishes:
        if last not in taken:
            return last
    return next(name for i in range(2, len(taken) + 3) if (name := f"{last}_{i}") not in taken)


def places(columns: Columns) -> dict[str, Expression]:
    """Where a plan has the columns of its group."""
    return {e.name: Column(name) for name, e in columns.items() if isinstance(e, Column)}


@dataclass(frozen=True)
class Part:
    """A plan as a group and the columns that it takes from it. `projects`: it is a projection of that."""

    group: Group
    columns: Columns
    projects: bool = False

    @property
    def used(self) -> set[str]:
        """The columns of the group that it needs."""
        return {name for each in self.columns.values() for name in each.columns()}

    @property
    def same(self) -> bool:
        """Whether its columns have the names of the group."""
        return all(e == Column(name) for name, e in self.columns.items())


class Found(NamedTuple):
    """What a node computes. `key` is equal for nodes of one group. `columns`: for each, what it computes, and
    the names that it may get. `own` is what the rule needs to build the node of the group.
    """

    key: Hashable
    columns: Mapping[str, tuple[Hashable, tuple[str, ...]]]
    own: Any = None


@dataclass(frozen=True)
class Rule:
    """How nodes of a type are grouped, and how the node of a group is built over the nodes below it.

    `find` returns None if a node is grouped only with nodes that are equal in everything. `free`: the node
    has no state and costs little, so it is merged only below others that are. `passes`: the columns are those
    of the group below.
    """

    find: Callable[[Any, list[Part]], Found | None]
    build: Callable[[Group, list[Plan]], Plan]
    free: bool = False
    passes: bool = False


def composed(plan: Plan, inputs: list[Part]) -> Part | None:
    """The columns of a projection over the group of its input, if nothing is then computed twice."""
    if not isinstance(plan, Project) or not all(is_movable(e) for _, e in plan.columns):
        return None
    below = inputs[0]
    columns = projections.composed(plan.columns, below.columns)
    return None if columns is None else Part(below.group, dict(columns), projects=True)


def projected(plan: Plan, columns: Columns) -> Plan:
    """These columns of a plan."""
    same = list(columns) == plan.schema.names and all(e == Column(name) for name, e in columns.items())
    return plan if same else Project(plan, tuple(columns.items()))


def _narrowed(plan: Plan, columns: Columns) -> Plan:
    """A plan with these columns, in any order: that of the plan, and computed ones last."""
    names = plan.schema.names
    if len(columns) == len(names) and all(e == Column(name) for name, e in columns.items()):
        return plan
    places: dict[Expression, int] = {Column(name): i for i, name in enumerate(names)}
    ordered = sorted(columns.items(), key=lambda column: places.get(column[1], len(names)))
    return Project(plan, tuple(ordered))


# The rules.


def _own_name(expression: Expression, name: str) -> tuple[str, ...]:
    """The names that a column may get: that of the column it copies, or else its own."""
    return (expression.name, name) if isinstance(expression, Column) else (name,)


def _leaf(plan: Source | Table, inputs: list[Part]) -> Found:
    return Found(plan, {name: (name, (name,)) for name in plan.schema.names})


def whole(plan: Plan, inputs: list[Part]) -> Found:
    """A node that is grouped with nodes that are equal in everything."""
    own = plan.with_inputs(tuple(Source(str(i), each.schema) for i, each in enumerate(plan.inputs)))
    read = tuple(tuple(each.columns.items()) for each in inputs)
    return Found((own, read), {name: (name, (name,)) for name in plan.schema.names}, read)


def _build_whole(group: Group, inputs: list[Plan]) -> Plan:
    below = [projected(each, dict(read)) for each, read in zip(inputs, group.own, strict=True)]
    return group.template.with_inputs(tuple(below))


def _select(plan: nodes.Select, inputs: list[Part]) -> Found | None:
    """A filter passes all columns of the group below it."""
    columns = inputs[0].columns
    read = [columns[name] for name in plan.predicate.columns()]
    if not is_movable(plan.predicate) or not all(isinstance(e, (Column, Literal)) for e in read):
        return None
    predicate = substitute(plan.predicate, columns)
    names = sorted({name for e in columns.values() for name in e.columns()})
    return Found(frozenset(conjuncts(predicate)), {name: (name, (name,)) for name in names}, predicate)


def _build_select(group: Group, inputs: list[Plan]) -> Plan:
    """Columns that are not needed are dropped below the filter: narrow rows are cheaper to copy."""
    (below,) = inputs
    wanted = [name for name in below.schema.names if name in group.needed] or below.schema.names[:1]
    return nodes.Select(projections.only(below, wanted), group.own)


def _rows(columns: Columns) -> dict[str, tuple[Hashable, tuple[str, ...]]]:
    """Each column is what its expression computes."""
    return {name: (e, _own_name(e, name)) for name, e in columns.items()}


def _compared(plan: nodes.Unary, inputs: list[Part]) -> Found:
    """A node that compares whole rows: the same columns, under any names and in any order."""
    columns = inputs[0].columns
    own = plan.with_inputs((_NOTHING,))
    return Found((own, frozenset(columns.values())), _rows(columns))


def _passing(plan: nodes.Unary, inputs: list[Part]) -> Found:
    """A node that reads no columns."""
    return Found(plan.with_inputs((_NOTHING,)), _rows(inputs[0].columns))


def _istream(plan: nodes.IStream, inputs: list[Part]) -> Found:
    return _compared(plan, inputs) if plan.nets else _passing(plan, inputs)


def _build_passing(group: Group, inputs: list[Plan]) -> Plan:
    """Without state, columns that are not needed do no harm."""
    plan, columns = group.template, _expressions(group)
    stateless = not getattr(plan, "nets", True) or getattr(plan, "once", False)
    if stateless and all(e == Column(name) for name, e in columns.items()):
        return plan.with_inputs((inputs[0],))
    return plan.with_inputs((_narrowed(inputs[0], columns),))


def _expressions(group: Group) -> dict[str, Expression]:
    """The columns that a group computes from the input, by name."""
    return {name: e for e, name in group.wanted.items() if isinstance(e, Expression)}


_NOTHING: Final = Source("", pa.schema([]))
_QUALITY: Final = "quality"


def _window(plan: nodes.Window | nodes.Granularity, inputs: list[Part]) -> Found | None:
    """A window; its quality column, if it has one, is one more column."""
    columns, quality = inputs[0].columns, plan.quality_column
    own = without_bounds(replace(plan, input=_NOTHING, quality_column=None))
    found = _rows(columns)
    if quality is not None:
        found[quality] = (_QUALITY, (quality,))
    if isinstance(plan, nodes.Granularity) or not isinstance(plan.spec, Rows):
        return Found(own, found)
    if not keeps_arrival_order(plan.input):
        return None
    read = tuple(columns[name] for name in plan.spec.columns)
    assert isinstance(own, nodes.Window)
    assert isinstance(own.spec, Rows)
    nameless = own.spec.over(("",) * len(own.spec.columns))
    return Found((type(plan.spec), nameless, read), found, read)


def _build_window(group: Group, inputs: list[Plan]) -> Plan:
    plan, below = group.template, _narrowed(inputs[0], _expressions(group))
    assert isinstance(plan, (nodes.Window, nodes.Granularity))
    made = replace(plan, input=below, quality_column=group.wanted.get(_QUALITY))
    if isinstance(made, nodes.Window) and isinstance(made.spec, Rows):
        return replace(made, spec=made.spec.over([group.columns[each] for each in group.own]))
    return made


class _Side(NamedTuple):
    """A column of one side of a join."""

    side: int
    column: Expression


class _On(NamedTuple):
    """The condition of a join: pairs of keys, and a residual over numbered columns."""

    keys: tuple[nodes.Equality[Expression], ...]
    residual: Expression | None
    read: tuple[_Side, ...]


def _join(plan: nodes.Join, inputs: list[Part]) -> Found | None:
    sides = {name: _Side(i, e) for i, part in enumerate(inputs) for name, e in part.columns.items()}
    if plan.residual is not None and not is_movable(plan.residual):
        return None
    left, right = (each.columns for each in inputs)
    keys = tuple(nodes.Equality(left[a], right[b], safe) for a, b, safe in plan.equalities)
    names = [] if plan.residual is None else list(dict.fromkeys(projections.mentions(plan.residual)))
    numbers = {name: str(i) for i, name in enumerate(names)}
    residual = None if plan.residual is None else plan.residual.rename(numbers)
    on = _On(keys, residual, tuple(sides[name] for name in names))
    return Found(on, {name: (side, (name,)) for name, side in sides.items()}, on)


def _build_join(group: Group, inputs: list[Plan]) -> Plan:
    on, names = group.own, group.columns
    columns: tuple[dict[str, Expression], ...] = ({}, {})
    for what, name in group.wanted.items():
        assert isinstance(what, _Side)
        columns[what.side][name] = what.column
    left, right = (_narrowed(*each) for each in zip(inputs, columns, strict=True))
    keys = [nodes.Equality(names[_Side(0, a)], names[_Side(1, b)], safe) for a, b, safe in on.keys]
    if on.residual is None:
        return nodes.joined(left, right, keys)
    residual = on.residual.rename({str(i): names[each] for i, each in enumerate(on.read)})
    return nodes.joined(left, right, keys, residual)


def _union(plan: nodes.Union, inputs: list[Part]) -> Found:
    """By position: a column is what each branch computes for it."""
    branches = [list(each.columns.values()) for each in inputs]
    found = zip(plan.schema.names, zip(*branches, strict=True), strict=True)
    return Found(None, {name: (what, (name,)) for name, what in found})


def _build_union(group: Group, inputs: list[Plan]) -> Plan:
    def branch(i: int) -> Columns:
        return {name: what[i] for what, name in group.wanted.items() if isinstance(what, tuple)}

    return nodes.Union(tuple(projected(each, branch(i)) for i, each in enumerate(inputs)))


class _Call(NamedTuple):
    """An aggregate call without a name, and what it reads."""

    call: AggregateCall
    arguments: tuple[Expression, ...]


class _Bound(NamedTuple):
    """The start (0) or the end (1) of a window."""

    end: int


def _aggregate(plan: nodes.Aggregate, inputs: list[Part]) -> Found | None:
    """Aggregates of one window and key: the calls of all."""
    if minds_order(plan) and not keeps_arrival_order(plan.input):
        return None
    columns = inputs[0].columns
    found: dict[str, tuple[Hashable, tuple[str, ...]]] = _rows({key: columns[key] for key in plan.keys})
    for call in plan.calls:
        what = _Call(replace(call.over(()), name=""), tuple(columns[name] for name in call.columns))
        found[call.name] = (what, (call.name,))
    for i, name in enumerate(getattr(plan, "bounds", None) or ()):
        found[name] = (_Bound(i), (name,))
    partition = getattr(plan, "partition", None)
    session = None if partition is None else frozenset(columns[key] for key in partition)
    users = any(isinstance(call, UserCall) for call in plan.calls)
    keys = frozenset(columns[key] for key in plan.keys)
    how = (getattr(plan, "window", None), getattr(plan, "gap", None), session)
    return Found((keys, how, minds_order(plan), users), found, session)


def _build_aggregate(group: Group, inputs: list[Plan]) -> Plan:
    plan, wanted = group.template, group.wanted
    assert isinstance(plan, nodes.Aggregate)
    read = {e: name for e, name in wanted.items() if isinstance(e, Expression)}
    keys = tuple(read.values())
    calls = []
    for what, name in wanted.items():
        if isinstance(what, _Call):
            for each in what.arguments:
                if each not in read:
                    read[each] = _free(_own_name(each, "argument"), set(read.values()))
            calls.append(replace(what.call.over([read[each] for each in what.arguments]), name=name))
    below = inputs[0]
    if not all(e == Column(name) for e, name in read.items()):
        below = Project(below, tuple((name, e) for e, name in read.items()))
    made = replace(plan, input=below, keys=keys, calls=tuple(calls))
    start, end = wanted.get(_Bound(0)), wanted.get(_Bound(1))
    if isinstance(made, (nodes.SlidingAggregate, SessionAggregate)):
        made = replace(made, bounds=None if start is None or end is None else (start, end))
    if isinstance(made, SessionAggregate) and made.partition is not None:
        made = replace(made, partition=tuple(read[key] for key in read if key in group.own))
    return made


WHOLE: Final = Rule(whole, _build_whole)
RULES: Final[dict[type[Plan], Rule]] = {
    Source: Rule(_leaf, _build_whole, free=True),
    nodes.Inlet: Rule(_leaf, _build_whole, free=True),
    Table: Rule(_leaf, _build_whole, free=True),
    nodes.Select: Rule(_select, _build_select, free=True, passes=True),
    nodes.Union: Rule(_union, _build_union),
    nodes.Window: Rule(_window, _build_window),
    nodes.Granularity: Rule(_window, _build_window),
    nodes.Join: Rule(_join, _build_join),
    nodes.Aggregate: Rule(_aggregate, _build_aggregate),
    nodes.SlidingAggregate: Rule(_aggregate, _build_aggregate),
    SessionAggregate: Rule(_aggregate, _build_aggregate),
    nodes.Distinct: Rule(_compared, _build_passing),
    nodes.IStream: Rule(_istream, _build_passing),
    nodes.DStream: Rule(_compared, _build_passing),
    nodes.RStream: Rule(_passing, _build_passing),
}
