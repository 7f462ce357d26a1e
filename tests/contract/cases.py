"""For each operator class, random plan nodes with data. An operator without a row here fails the suite."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.operators import unsorted_windows as unsorted
from headrace.operators.adaptive_order import adaptive_order
from headrace.operators.contract import Operator
from headrace.operators.stamp import StampOperator
from headrace.operators.streams import istream
from headrace.plan.analysis import ordering
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.changelog import Changelog
from headrace.plan.nodes.core import Plan, Source
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.early import EarlySessions, EarlyWindows
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.latent import Stamp
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.over import Over, RangeFrame, RowsFrame
from headrace.plan.nodes.session import MergingSessions, SessionAggregate
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.unnest import Unnest
from headrace.plan.nodes.unsorted import UnsortedWindows
from headrace.schema import Schema
from headrace.testing.compare import canonical_row
from headrace.testing.oracle import Element
from headrace.time.timestamp import MAX_TIME
from tests.strategies.contracts import ALL, Case, Given, Signed, Terms, batch_of
from tests.strategies.match_plans import match_of
from tests.strategies.plans import slidings
from tests.strategies.schemas import (
    BOOL,
    FLOAT,
    INT,
    collections,
    literals,
    names_of,
    predicates,
    rows,
    scalars,
    schemas,
)
from tests.strategies.sequence_plans import sequence_of
from tests.strategies.user_aggregates import calls_on

Inputs = tuple[tuple[Plan, Any, Any], ...]
"""Of each input: its plan, its batch, and its rows for the oracle."""


@dataclass(frozen=True)
class Entry:
    """What to feed an operator, on which terms, and how to build it if its plan is not enough."""

    cases: st.SearchStrategy[Case]
    terms: Terms = ALL
    build: Callable[[Any], Operator] | None = None


def case_of(plan: Plan, inputs: Inputs) -> Case:
    return Case(plan, tuple(i[1] for i in inputs), {i[0].name: i[2] for i in inputs})  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------ inputs


@st.composite
def many(draw: st.DrawFn, schema: Schema, most: int = 24) -> Any:
    """Rows in order of time, more than one list of hypothesis has on average."""
    return sorted(draw(rows(schema, most // 2)) + draw(rows(schema, most)), key=operator.itemgetter(0))


@st.composite
def streams(draw: st.DrawFn, schema: Schema, name: str = "s", most: int = 24) -> tuple[Plan, Any, Any]:
    """A source and its rows."""
    happened = draw(many(schema, most))
    elements = [Signed(canonical_row(r[n] for n in schema.names), t) for t, r in happened]
    return Source(name, schema), batch_of(elements, schema), happened


@st.composite
def given_streams(draw: st.DrawFn, schema: Schema, name: str = "s", most: int = 24) -> tuple[Plan, Any, Any]:
    """A stream that is no source, so that simultaneous rows go by content."""
    _, batch, happened = draw(streams(schema, name, most))
    elements = [Element(canonical_row(r[n] for n in schema.names), t, t) for t, r in happened]
    return Given(name, schema, relation=False), batch, elements


@st.composite
def relations(
    draw: st.DrawFn,
    schema: Schema,
    name: str = "r",
    opens: bool = True,
    withdraws: bool = True,
    stamp: str | None = None,
) -> tuple[Plan, Any, Any]:
    """A relation: ends declared at the start, or later by a withdrawal, or never.

    A withdrawal may follow at the very instant at which its row came, as in a row window.
    """
    happened = draw(many(schema))
    if stamp is not None:
        happened = [(time, {**values, stamp: time}) for time, values in happened]
    elements: list[Element] = []
    signed: list[Signed] = []
    for time, values in happened:
        row = canonical_row(values[n] for n in schema.names)
        kind = draw(st.sampled_from(["declared", *["withdrawn", "cut"] * withdraws, *["open"] * opens]))
        end = time + draw(st.integers(0 if kind == "withdrawn" else 1, 9))
        told = {"declared": end, "cut": end + draw(st.integers(1, 5))}.get(kind, MAX_TIME)
        signed.append(Signed(row, time, told))
        if kind in ("withdrawn", "cut"):
            signed.append(Signed(row, end, told, -1))
        if time < end:
            elements.append(Element(row, time, MAX_TIME if kind == "open" else end))
    return Given(name, schema), batch_of(signed, schema), elements


@st.composite
def anything(draw: st.DrawFn) -> tuple[Plan, Any, Any]:
    """A stream or a relation."""
    schema = draw(schemas())
    return draw(streams(schema) | relations(schema))


# ------------------------------------------------------------------------------------------------- nodes


@st.composite
def selects(draw: st.DrawFn) -> Case:
    below = draw(anything())
    return case_of(nodes.Select(below[0], draw(predicates(below[0].schema))), (below,))


@st.composite
def projects(draw: st.DrawFn) -> Case:
    below = draw(anything())
    columns = draw(st.lists(scalars(below[0].schema), max_size=3))
    named = tuple((f"{name}{i}", expression) for i, (name, expression) in enumerate(columns))
    return case_of(nodes.Project(below[0], named), (below,))


@st.composite
def unnests(draw: st.DrawFn) -> Case:
    below = draw(anything())
    operand, parts = draw(collections(below[0].schema))
    names, ordinal = tuple(f"u{i}" for i in range(parts)), draw(st.sampled_from([None, "n"]))
    return case_of(Unnest(below[0], operand, names, ordinal, draw(st.booleans())), (below,))


SPECS = (
    st.builds(windows.Range, st.integers(1, 9))
    | st.builds(windows.Sliding, st.integers(1, 9), st.integers(1, 5))
    | st.just(windows.Now())
    | st.just(windows.Unbounded())
)


TOLD = st.sampled_from([None, "quality"])
"""The column in which the size or the grain is told, if it is."""


@st.composite
def time_windows(draw: st.DrawFn) -> Case:
    below = draw(streams(draw(schemas())))
    spec = draw(SPECS)
    told = draw(TOLD) if isinstance(spec, windows.Range) else None
    return case_of(nodes.Window(below[0], spec, told), (below,))


@st.composite
def adaptable_windows(draw: st.DrawFn) -> Case:
    below = draw(streams(draw(schemas())))
    size = draw(st.integers(1, 9))
    spec = windows.Range(size, draw(st.integers(1, size)))
    return case_of(nodes.Window(below[0], spec, draw(TOLD)), (below,))


@st.composite
def adaptable_slidings(draw: st.DrawFn) -> Case:
    below = draw(streams(draw(schemas())))
    spec = draw(slidings(9, 5))
    least = spec.size - spec.slide * draw(st.integers(0, (spec.size - 1) // spec.slide))
    return case_of(nodes.Window(below[0], replace(spec, least=least), draw(TOLD)), (below,))


@st.composite
def adaptable_row_windows(draw: st.DrawFn, below: Callable[[Schema], st.SearchStrategy[Any]]) -> Case:
    schema = draw(schemas())
    keys = tuple(draw(st.lists(st.sampled_from(schema.names), max_size=2, unique=True)))
    of, count = draw(below(schema)), draw(st.integers(1, 4))
    return case_of(nodes.Window(of[0], windows.Rows(count, keys, draw(st.integers(1, count)))), (of,))


@st.composite
def row_windows(draw: st.DrawFn, below: Callable[[Schema], st.SearchStrategy[Any]]) -> Case:
    schema = draw(schemas())
    keys = tuple(draw(st.lists(st.sampled_from(schema.names), max_size=2, unique=True)))
    of = draw(below(schema))
    conditions = names_of(schema, BOOL)
    if conditions and draw(st.booleans()):
        return case_of(
            nodes.Window(of[0], windows.Upserts(1, keys, deletes=draw(st.sampled_from(conditions)))), (of,)
        )
    count, slide = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    spec = windows.Rows(count, keys) if slide == 1 else windows.SlidingRows(count, keys, slide=slide)
    return case_of(nodes.Window(of[0], spec), (of,))


@st.composite
def granularities(draw: st.DrawFn) -> Case:
    below = draw(relations(draw(schemas()), withdraws=False))
    grain, ticks = draw(grains_and_ticks(5))
    return case_of(nodes.Granularity(below[0], grain, None, draw(TOLD), ticks), (below,))


@st.composite
def grains_and_ticks(draw: st.DrawFn, most: int) -> tuple[int, windows.Ticks]:
    """A grain, and the ticks of which it is a multiple: those of windows that slide, or every instant."""
    slide = draw(st.sampled_from([1, 1, 2, 3]))
    ticks = windows.Ticks(slide, draw(st.integers(0, slide - 1))) if slide > 1 else windows.EVERY
    return slide * draw(st.integers(1, most // slide)), ticks


@st.composite
def adaptable_granularities(draw: st.DrawFn) -> Case:
    below = draw(relations(draw(schemas()), withdraws=False))
    grain, ticks = draw(grains_and_ticks(5))
    coarsest = grain + ticks.slide * draw(st.integers(0, (9 - grain) // ticks.slide))
    return case_of(nodes.Granularity(below[0], grain, coarsest, draw(TOLD), ticks), (below,))


@st.composite
def unary(draw: st.DrawFn, node: Callable[[Plan], Plan], opens: bool = True) -> Case:
    below = draw(relations(draw(schemas()), opens=opens))
    return case_of(node(below[0]), (below,))


@st.composite
def changelogs(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    below = draw(relations(schema))
    keys = draw(st.lists(st.sampled_from(schema.names), max_size=2, unique=True))
    return case_of(Changelog(below[0], "op", tuple(keys)), (below,))


@st.composite
def telling(draw: st.DrawFn) -> Case:
    """A relation whose rows say when they begin, and are not withdrawn."""
    schema = draw(schemas()).append(pa.field("t", pa.int64()))
    below = draw(relations(schema, withdraws=False, stamp="t"))
    return case_of(nodes.IStream(below[0], nets=False), (below,))


@st.composite
def excepts(draw: st.DrawFn) -> Case:
    left = draw(relations(draw(schemas()), "left"))
    types = [f.type for f in left[0].schema]
    right = draw(relations(pa.schema(list(zip("xyz", types, strict=False))), "right"))
    return case_of(nodes.Except(left[0], right[0], draw(st.booleans())), (left, right))


@st.composite
def unions(
    draw: st.DrawFn, kinds: tuple[Callable[..., st.SearchStrategy[Any]], ...] = (streams, relations)
) -> Case:
    kind, schema = draw(st.sampled_from(kinds)), draw(schemas())
    other = pa.schema(list(zip("xyz", [f.type for f in schema], strict=False)))
    count = draw(st.integers(1, 3))
    inputs = tuple(draw(kind(schema if i == 0 else other, f"u{i}")) for i in range(count))
    return case_of(nodes.Union(tuple(i[0] for i in inputs)), inputs)


@st.composite
def joins(draw: st.DrawFn) -> Case:
    left = draw(relations(draw(schemas()), "left"))
    right_schema = draw(schemas())
    right = draw(relations(right_schema.with_metadata(None), "right"))
    renamed = [f.with_name("r" + f.name) for f in right_schema]
    batch = right[1].with_data(right[1].data.rename_columns([f.name for f in renamed]))
    right = (Given("right", pa.schema(renamed)), batch, right[2])
    fitting = [(a.name, b.name) for a in left[0].schema for b in renamed if a.type == b.type]
    keys = draw(st.lists(st.sampled_from(fitting), max_size=2, unique=True)) if fitting else []
    plan = nodes.joined(left[0], right[0], [nodes.Equality(a, b, draw(st.booleans())) for a, b in keys])
    if draw(st.booleans()):
        plan = replace(plan, residual=draw(predicates(plan.schema)))
    return case_of(plan, (left, right))


@st.composite
def outer_joins(draw: st.DrawFn) -> Case:
    inner = draw(joins())
    kinds = [kind for kind in JoinKind if kind.followed]
    parts = {field.name: getattr(inner.plan, field.name) for field in fields(inner.plan)}
    return replace(inner, plan=OuterJoin(**parts, kind=draw(st.sampled_from(kinds))))


@st.composite
def sequences(draw: st.DrawFn) -> Case:
    """Two to four steps, simultaneous rows in the order of their source or by content."""
    inputs = []
    for i in range(draw(st.sampled_from([2, 2, 3, 4]))):
        schema = pa.schema([f.with_name(f"{f.name}{i}") for f in draw(schemas())])
        inputs.append(draw(streams(schema, f"s{i}") | given_streams(schema, f"s{i}")))
    return case_of(sequence_of(draw, tuple(i[0] for i in inputs)), tuple(inputs))


@st.composite
def latent_unions(draw: st.DrawFn) -> Case:
    return draw(unions((streams,)))


@st.composite
def stamps(draw: st.DrawFn) -> Case:
    below = draw(streams(draw(schemas())))
    return case_of(Stamp(below[0]), (below,))


@st.composite
def disordered(draw: st.DrawFn, schema: Schema, name: str = "s") -> tuple[Plan, Any, Any]:
    """A source whose rows come in any order."""
    below, batch, happened = draw(streams(schema, name))
    order = draw(st.permutations(range(len(batch))))
    return below, batch.take(np.array(order, np.int64)), happened


@st.composite
def orders(draw: st.DrawFn) -> Case:
    below = draw(disordered(draw(schemas())))
    return replace(case_of(ordering.Order(below[0]), (below,)), meaning=below[0])


@st.composite
def adaptive_orders(draw: st.DrawFn) -> Case:
    """Up to three steps; rows may wait between any two of them."""
    below = draw(disordered(draw(schemas())))
    top: Plan = below[0]
    for step in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["select", "project", "unnest"]))
        if kind == "select":
            top = nodes.Select(top, draw(predicates(top.schema)))
        elif kind == "project":
            kept = draw(st.lists(st.sampled_from(top.schema.names), min_size=1, unique=True))
            top = nodes.Project(top, tuple((f"p{step}{name}", col(name)) for name in kept))
        else:
            operand, parts = draw(collections(top.schema))
            names = tuple(f"u{step}{i}" for i in range(parts))
            top = Unnest(top, operand, names, None, draw(st.booleans()))
    return replace(case_of(ordering.AdaptiveOrder(below[0], top), (below,)), meaning=top)


@st.composite
def merges(draw: st.DrawFn) -> Case:
    case = draw(unions((disordered,)))
    return replace(case, plan=ordering.Merge(case.plan.inputs), meaning=case.plan)


@st.composite
def expansions(draw: st.DrawFn) -> Case:
    """The copy of a row for a window is what the window, reported at its tick, shows."""
    below = draw(disordered(draw(schemas())))
    window = draw(slidings(9, 5))
    meaning = nodes.RStream(nodes.Window(below[0], window), window.slide, window.ticks.phase)
    return replace(case_of(ordering.Expand(below[0], window), (below,)), meaning=meaning)


NUMBERS = ("sum", "avg", "variance", "var_pop", "stddev", "stddev_pop")
COMPARED = ("count", "count_distinct", "min", "max")
PLACED = ("first", "last")


@st.composite
def calls(draw: st.DrawFn, schema: Schema, placed: bool) -> tuple[nodes.AggregateCall, ...]:
    """Some aggregates, each over a column that it takes."""
    legal = [nodes.AggregateCall("", f, n) for f in COMPARED + PLACED * placed for n in schema.names]
    legal += [nodes.AggregateCall("", f, n) for f in NUMBERS for n in names_of(schema, INT, FLOAT)]
    legal += calls_on(schema, placed)
    drawn = draw(
        st.lists(st.sampled_from([nodes.AggregateCall("", "count"), *legal]), min_size=1, max_size=3)
    )
    return tuple(replace(call, name=f"{call.function}_{i}") for i, call in enumerate(drawn))


def keys_of(schema: Schema) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from(schema.names), max_size=2, unique=True).map(tuple)


@st.composite
def aggregates(draw: st.DrawFn) -> Case:
    """`first` and `last` only where each row's end is known: else which copy goes is not determined."""
    schema, withdraws = draw(schemas()), draw(st.booleans())
    below = draw(relations(schema, withdraws=withdraws))
    plan = nodes.Aggregate(below[0], draw(keys_of(schema)), draw(calls(schema, placed=not withdraws)))
    return case_of(plan, (below,))


@st.composite
def sliding_aggregates(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    below = draw(streams(schema) | given_streams(schema))
    window = draw(slidings(9, 5))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    keys, calls_ = draw(keys_of(schema)), draw(calls(schema, placed=True))
    return case_of(nodes.SlidingAggregate(below[0], keys, calls_, window, bounds), (below,))


@st.composite
def session_aggregates(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    below = draw(streams(schema) | given_streams(schema))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    keys, calls_ = draw(keys_of(schema)), draw(calls(schema, placed=True))
    partition = draw(st.sampled_from([None, keys[:1], ()]))
    plan = SessionAggregate(below[0], keys, calls_, draw(st.integers(1, 5)), bounds, partition)
    return case_of(plan, (below,))


@st.composite
def loose_sessions(draw: st.DrawFn, kind: type[MergingSessions] = MergingSessions) -> Case:
    schema = draw(schemas())
    below = draw(streams(schema))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    keys, calls_ = draw(keys_of(schema)), draw(calls(schema, placed=False))
    partition = draw(st.sampled_from([None, keys[:1], ()]))
    plan = kind(below[0], keys, calls_, draw(st.integers(1, 5)), bounds, partition)
    return case_of(plan, (below,))


@st.composite
def unsorted_windows(draw: st.DrawFn, kind: type[nodes.SlidingAggregate], overlap: bool | None) -> Case:
    """Windows that overlap take no user-defined aggregates and count no distinct values; None: tumbling."""
    schema = draw(schemas())
    below = draw(disordered(schema))
    slide = draw(st.integers(1, 5))
    size = slide + draw(st.integers(1, 9)) if overlap else draw(st.integers(1, slide))
    size = slide if overlap is None else size
    window = windows.Sliding(size, slide, draw(st.integers(0, slide - 1)))
    bounds = draw(st.sampled_from([None, ("w_start", "w_end")]))
    chosen = draw(calls(schema, placed=False))
    if overlap:
        chosen = tuple(c for c in chosen if c.function in BUILT_IN) or COUNT
    return case_of(kind(below[0], draw(keys_of(schema)), chosen, window, bounds), (below,))


BUILT_IN = frozenset(NUMBERS + COMPARED) - {"count_distinct"}
COUNT = (nodes.AggregateCall("n", "count"),)


@st.composite
def lags(draw: st.DrawFn, below: Callable[[Schema], st.SearchStrategy[Any]]) -> Case:
    schema = draw(schemas())
    of = draw(below(schema))
    columns = draw(st.lists(st.sampled_from(schema.names), min_size=1, max_size=2))
    calls_ = []
    for i, column in enumerate(columns):
        default = draw(st.none() | literals(schema.field(column).type))
        calls_.append(LagCall(f"lag{i}", column, draw(st.integers(1, 3)), default))
    return case_of(Lag(of[0], draw(keys_of(schema)), tuple(calls_)), (of,))


@st.composite
def overs(draw: st.DrawFn, kind: type[RowsFrame] | type[RangeFrame]) -> Case:
    schema = draw(schemas())
    of = draw(streams(schema) | given_streams(schema))
    frame = kind(draw(st.none() | st.integers(0, 5)))
    return case_of(Over(of[0], draw(keys_of(schema)), frame, draw(calls(schema, placed=True))), (of,))


@st.composite
def matches(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    of = draw(streams(schema, most=6) | given_streams(schema, most=6))
    return case_of(match_of(draw, of[0]), (of,))


@st.composite
def distincts_on(draw: st.DrawFn, below: Callable[[Schema], st.SearchStrategy[Any]]) -> Case:
    schema = draw(schemas())
    of = draw(below(schema))
    return case_of(DistinctOn(of[0], draw(keys_of(schema)), draw(st.none() | st.integers(1, 9))), (of,))


@st.composite
def tops(draw: st.DrawFn) -> Case:
    schema = draw(schemas())
    below = draw(relations(schema))
    kind = draw(st.sampled_from(["relation", "unbounded", "range"]))
    if kind != "relation":
        source, came, happened = draw(streams(schema))
        size = draw(st.integers(1, 9))
        ends = came.start + size if kind == "range" else np.full(len(came), MAX_TIME)
        window = windows.Range(size) if kind == "range" else windows.Unbounded()
        below = (nodes.Window(source, window), Batch(came.data, came.start, ends), happened)
    names = draw(st.lists(st.sampled_from(schema.names), max_size=2, unique=True))
    order = tuple(SortKey(name, draw(st.booleans()), draw(st.booleans())) for name in names)
    rank = draw(st.sampled_from([None, "rank"]))
    plan = TopN(below[0], draw(keys_of(schema)), order, draw(st.integers(1, 4)), rank)
    name = below[0].input.name if isinstance(below[0], nodes.Window) else below[0].name
    return Case(plan, (below[1],), {name: below[2]})


def rstreams(window: windows.Sliding) -> st.SearchStrategy[Case]:
    ticks = window.ticks
    return unary(lambda below: nodes.RStream(below, ticks.slide, ticks.phase), opens=False)


CASES: dict[str, Entry] = {
    "SelectOperator": Entry(selects()),
    "ProjectOperator": Entry(projects()),
    "UnnestOperator": Entry(unnests()),
    "WindowOperator": Entry(time_windows()),
    "RowsWindowOperator": Entry(row_windows(streams)),
    "OrderedRowsWindowOperator": Entry(row_windows(given_streams)),
    "GranularityOperator": Entry(granularities()),
    "AdaptableWindowOperator": Entry(adaptable_windows()),
    "AdaptableSlidingOperator": Entry(adaptable_slidings()),
    "AdaptableRowsOperator": Entry(adaptable_row_windows(streams)),
    "AdaptableOrderedRowsOperator": Entry(adaptable_row_windows(given_streams)),
    "AdaptableGranularityOperator": Entry(adaptable_granularities()),
    "DistinctOperator": Entry(unary(nodes.Distinct)),
    "ExceptOperator": Entry(excepts()),
    "TopNOperator": Entry(tops()),
    "IStreamOperator": Entry(unary(nodes.IStream)),
    "ComingsOperator": Entry(telling(), build=istream),
    "DStreamOperator": Entry(unary(nodes.DStream)),
    "ChangelogOperator": Entry(changelogs()),
    "RStreamOperator": Entry(slidings(9, 5).flatmap(rstreams)),
    "UnionOperator": Entry(unions()),
    "JoinOperator": Entry(joins()),
    "OuterJoinOperator": Entry(outer_joins()),
    "SequenceOperator": Entry(sequences()),
    "MatchOperator": Entry(matches()),
    "AggregateOperator": Entry(aggregates()),
    "SlidingAggregateOperator": Entry(sliding_aggregates()),
    "SessionAggregateOperator": Entry(session_aggregates()),
    "MergingSessionsOperator": Entry(loose_sessions(), Terms(disordered=True)),
    "EarlySessionsOperator": Entry(loose_sessions(EarlySessions), Terms(disordered=True)),
    "UnsortedWindowsOperator": Entry(
        unsorted_windows(UnsortedWindows, overlap=False),
        Terms(disordered=True),
        build=unsorted.unsorted_windows,
    ),
    "UnsortedPanesOperator": Entry(
        unsorted_windows(UnsortedWindows, overlap=True),
        Terms(disordered=True),
        build=unsorted.unsorted_windows,
    ),
    "EarlyWindowsOperator": Entry(unsorted_windows(EarlyWindows, overlap=None), Terms(disordered=True)),
    "LagOperator": Entry(lags(streams)),
    "OrderedLagOperator": Entry(lags(given_streams)),
    "DistinctOnOperator": Entry(distincts_on(streams)),
    "OrderedDistinctOnOperator": Entry(distincts_on(given_streams)),
    "OverRowsOperator": Entry(overs(RowsFrame)),
    "OverRangeOperator": Entry(overs(RangeFrame)),
    "OrderOperator": Entry(orders(), Terms(disordered=True)),
    "AdaptiveOrderOperator": Entry(adaptive_orders(), Terms(disordered=True), adaptive_order),
    "MergeOperator": Entry(merges(), Terms(disordered=True)),
    "ExpandOperator": Entry(expansions(), Terms(disordered=True)),
    "LatentUnionOperator": Entry(latent_unions(), Terms(timeless=True)),
    "StampOperator": Entry(stamps(), Terms(timeless=True), build=lambda plan: StampOperator(plan, lambda: 7)),
}
"""By the name of the operator's class."""
