"""Random sets of queries over the same streams, much alike (hypothesis strategies), and what is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from headrace.expressions import col
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.core import AggregateCall, Plan, Project, Select, Source, Table
from headrace.plan.nodes.quality import without_bounds
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.trees import walk
from headrace.plan.rewrite import optimize
from headrace.schema import Schema
from tests.plan.rewriting import conditions, dense_rows, joined, wrapped
from tests.strategies import legal, plans, schemas
from tests.strategies.plans import Case

CHEAP = (Select, Project, Source, Table)


def costly(queries: Iterable[Plan]) -> set[Plan]:
    """The different nodes, apart from bounds, that are not filters, projections, streams or tables."""
    return {without_bounds(node) for plan in queries for node in walk(plan) if not isinstance(node, CHEAP)}


@dataclass(frozen=True)
class Several(Plan):
    """The plans of several queries as one, to find their streams and tables."""

    plans: tuple[Plan, ...]

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return self.plans


@dataclass(frozen=True)
class Workload:
    """Queries by name, as each is optimized alone, and the rows of their streams."""

    queries: Mapping[str, Plan]
    case: Case


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Two to four queries that read one relation, or several much alike, in different ways."""
    known = draw(st.booleans())
    relation = draw(wrapped() if known else joined() | plans.relations(3))
    base = [relation, *(draw(st.lists(wrapped(), max_size=1)) if known else ()), *_swapped(draw, relation)]
    count = draw(st.sampled_from([2, 3, 4]))
    drawn = [optimize(_query(draw, draw(st.sampled_from(base)))) for _ in range(count)]
    queries = {f"q{i}": plan for i, plan in enumerate(drawn)}
    return Workload(queries, Case(Several(tuple(drawn)), _rows(draw, drawn)))


def _swapped(draw: st.DrawFn, plan: Plan) -> list[Plan]:
    """Now and then the same with other bounds of a window."""
    if not isinstance(plan, nodes.Window) or not isinstance(plan.spec, windows.Range) or plan.quality_column:
        return []
    sizes = sorted(draw(st.lists(st.integers(1, 9), min_size=2, max_size=2)))
    return [nodes.Window(plan.input, windows.Range(sizes[1], sizes[0]))]


def _rows(draw: st.DrawFn, drawn: list[Plan]) -> dict[str, schemas.Rows]:
    every = Several(tuple(drawn))
    count = {0: 16, 1: 10, 2: 7}.get(max(map(legal.joins, drawn)), 5)
    leaves = {each.name: each.columns for each in plans.sources_of(every) | plans.tables_of(every)}
    return plans.stamped(every, {name: draw(dense_rows(leaves[name], count)) for name in sorted(leaves)})


def _query(draw: st.DrawFn, plan: Plan) -> Plan:
    """A filter, an aggregate and some of the columns, each now and then, and then a stream."""
    if draw(st.sampled_from([False, False, True])):
        plan = Select(plan, draw(conditions(plan.schema)))
    if draw(st.sampled_from([False, True, True])):
        plan = _grouped(draw, plan)
    if draw(st.sampled_from([False, True, True])):
        plan = _some(draw, plan)
    ticks = sorted(legal.ticks_of(plan))
    kinds = ["i", "i", "d", *(["r", "r"] if legal.is_finite(plan) else [])]
    kind = draw(st.sampled_from(kinds))
    if kind == "r":
        tick = draw(st.sampled_from([*ticks, windows.Ticks(2)]))
        top: Plan = nodes.RStream(plan, tick.slide, tick.phase)
    else:
        top = nodes.IStream(plan) if kind == "i" else nodes.DStream(plan)
    return _some(draw, top) if draw(st.sampled_from([False, False, True])) else top


def _some(draw: st.DrawFn, plan: Plan) -> Plan:
    """Some columns, under other names, and perhaps one that is computed."""
    names = draw(st.lists(st.sampled_from(plan.schema.names), min_size=1, max_size=3, unique=True))
    columns = [(draw(st.sampled_from([name, f"{name}_again"])), col(name)) for name in names]
    if draw(st.booleans()):
        columns += [("computed", draw(schemas.scalars(plan.schema))[1])]
    return Project(plan, tuple(dict(columns).items()))


def _grouped(draw: st.DrawFn, plan: Plan) -> Plan:
    """An aggregate; of a sliding window, from panes after it is optimized."""
    keys = draw(st.sampled_from([(), tuple(plan.schema.names[:1]), tuple(plan.schema.names[-1:])]))
    calls = _calls(draw, plan.schema, keys)
    if isinstance(plan, nodes.Window) and draw(st.booleans()):
        return SessionAggregate(plan.input, _known(keys, plan.input), _over(calls, plan.input), 2)
    return nodes.Aggregate(plan, keys, calls)


def _known(keys: tuple[str, ...], plan: Plan) -> tuple[str, ...]:
    return tuple(key for key in keys if key in plan.schema.names)


def _over(calls: tuple[AggregateCall, ...], plan: Plan) -> tuple[AggregateCall, ...]:
    """The calls that a stream has the columns for."""
    kept = tuple(call for call in calls if set(call.columns) <= set(plan.schema.names))
    return kept or (AggregateCall("n", "count"),)


def _calls(draw: st.DrawFn, schema: Schema, keys: tuple[str, ...]) -> tuple[AggregateCall, ...]:
    functions = {
        schemas.INT: ("sum", "max", "count_distinct"),
        schemas.FLOAT: ("min", "count"),
        schemas.STRING: ("max", "count"),
    }
    offered = [
        AggregateCall(f"{function}_of", function, each.name)
        for each in schema
        for function in functions.get(each.type, ("count",))
    ]
    found = draw(st.lists(st.sampled_from([AggregateCall("n", "count"), *offered]), min_size=1, max_size=3))
    named = {call.name: call for call in found if call.name not in keys}
    return tuple(named.values()) or (AggregateCall("rows", "count"),)
