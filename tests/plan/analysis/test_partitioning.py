"""Partition keys: shards that run the whole plan on their own rows give, united, the plan's answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from headrace.expressions import Expression, coalesce, col, evaluator, lit
from headrace.plan.analysis.native import native_parts
from headrace.plan.analysis.partitioning import partition
from headrace.plan.analysis.stages import Cut, Stage, cuts, stages
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import AggregateCall, Join, Plan, Project, Source, Window
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.trees import exchange
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded, WindowSpec
from headrace.plan.show import show
from headrace.testing import oracle
from headrace.testing.compare import Event, canonical_row, difference
from tests.strategies import plans, schemas
from tests.strategies.plans import Case

SHARDS = 3
Data = Mapping[str, list[tuple[int, dict[str, Any]]]]

S = Source("s", pa.schema([("k", pa.int64()), ("g", pa.string()), ("v", pa.float64())]))
T = Source("t", pa.schema([("id", pa.int32()), ("name", pa.string())]))
U = Source("u", pa.schema([("id", pa.int64())]))
COUNT = AggregateCall("n", "count")
HOUR = Range(60)


def shard_of(key: tuple[Expression, ...], source: Source, row: dict[str, Any], index: int) -> int:
    values = canonical_row(evaluator(each, source.schema)(row) for each in key)
    return crc32(repr(values).encode()) % SHARDS if key else index % SHARDS


def apart(plan: Plan, data: Data) -> list[Event]:
    """The answers of all shards together."""
    keys = partition(plan).keys
    assert keys is not None
    sources = {source.name: source for source in plans.sources_of(plan)}
    answers: list[Event] = []
    for shard in range(SHARDS):
        own = dict(data) | {
            name: [
                (time, row)
                for i, (time, row) in enumerate(data[name])
                if shard_of(keys[name], source, row, i) == shard
            ]
            for name, source in sources.items()
        }
        answers += oracle.stream(plan, {**data, **own})
    return sorted(answers, key=lambda each: each[0])


@given(plans.cases())
def test_shards_together_give_the_answer(case: Case) -> None:
    found = partition(case.plan)
    if found.keys is None:
        event("no key")
        assert found.reason
        return
    event("anything" if found.anything else "a key")
    assert not difference(apart(case.plan, case.sources), oracle.stream(case.plan, case.sources))


def full_joined(left: Plan, right: Plan, keys: tuple[str, ...], null_safe: list[bool]) -> Plan:
    """A FULL JOIN … USING: each key is that of the side that has a row."""
    safe = tuple(i for i, each in enumerate(null_safe) if each)
    both = OuterJoin(left, right, keys, tuple(f"r{k}" for k in keys), null_safe=safe, kind=JoinKind.FULL)
    merged = [(k, coalesce(col(k), col(f"r{k}"))) for k in keys]
    return Project(both, (*merged, *((n, col(n)) for n in both.schema.names if n not in keys)))


@st.composite
def divisible(draw: st.DrawFn) -> Case:
    """Groups and joins that keep their keys, so that most can be divided by something."""
    source = draw(plans.source_lists())[0]
    keys = tuple(draw(st.lists(st.sampled_from(source.columns.names), min_size=1, max_size=2, unique=True)))
    specs: list[WindowSpec] = [HOUR, Sliding(4, 2), Rows(2, keys)]
    left: Plan = Window(source, draw(st.sampled_from(specs)))
    if draw(st.booleans()):
        left = nodes.Aggregate(left, keys, (COUNT,))
    right = nodes.Project(left, tuple((f"r{name}", col(name)) for name in left.schema.names))
    if draw(st.booleans()):
        null_safe = [draw(st.booleans()) for _ in keys]
        if draw(st.booleans()):
            left = full_joined(left, right, keys, null_safe)
        else:
            pairs = [nodes.Equality(k, f"r{k}", safe) for k, safe in zip(keys, null_safe, strict=True)]
            left = nodes.joined(left, right, pairs)
    below: Plan = nodes.Distinct(left) if draw(st.booleans()) else left
    top = nodes.IStream if draw(st.booleans()) else nodes.DStream
    plan = top(below)
    return Case(plan, plans.stamped(plan, {source.name: draw(schemas.rows(source.columns, 20))}))


@given(divisible())
def test_what_keeps_its_keys_can_be_divided(case: Case) -> None:
    assert partition(case.plan).keys is not None
    assert not difference(apart(case.plan, case.sources), oracle.stream(case.plan, case.sources))


def windowed(source: Source, *columns: str) -> Plan:
    return Project(Window(source, HOUR), tuple((name, col(name)) for name in columns or source.columns.names))


def grouped(*keys: str) -> nodes.Aggregate:
    return nodes.Aggregate(Window(S, HOUR), keys, (COUNT,))


ITEMS = nodes.Table("items", T.columns)
PAIRS = Join(windowed(S), windowed(T), ("k",), ("id",))
K, WIDE_ID = (col("k"),), (col("id").cast(pa.int64()),)

KEYED: dict[str, tuple[Plan, dict[str, tuple[Expression, ...]]]] = {
    "a selection runs anywhere": (nodes.Select(S, col("k") > 1), {"s": ()}),
    "a union too": (
        nodes.Union((Project(S, (("k", col("g")),)), Project(T, (("k", col("name")),)))),
        {"s": (), "t": ()},
    ),
    "a table is whole everywhere": (
        nodes.IStream(nodes.Aggregate(Join(windowed(S), ITEMS, ("k",), ("id",)), ("g",), (COUNT,))),
        {"s": (col("g"),)},
    ),
    "groups by their keys": (nodes.IStream(grouped("k", "g")), {"s": (col("k"), col("g"))}),
    "groups of groups by the fewer": (
        nodes.IStream(nodes.Aggregate(grouped("k", "g"), ("k",), (AggregateCall("m", "max", "n"),))),
        {"s": K},
    ),
    "joins by keys of one width": (nodes.RStream(PAIRS), {"s": K, "t": WIDE_ID}),
    "a join whose answer shows the key of one side": (
        nodes.IStream(Project(PAIRS, (("id", col("id")), ("v", col("v"))))),
        {"s": K, "t": WIDE_ID},
    ),
    "a grouped join by what both allow": (
        nodes.IStream(nodes.Aggregate(PAIRS, ("k", "g"), (COUNT,))),
        {"s": K, "t": WIDE_ID},
    ),
    "rows of each key": (nodes.IStream(Window(S, Rows(3, ("g",)))), {"s": (col("g"),)}),
    "whole rows where equals cancel": (
        nodes.IStream(windowed(S, "k", "g")),
        {"s": (col("k"), col("g"))},
    ),
    "nothing cancels where nothing leaves": (
        nodes.IStream(Project(Window(S, Unbounded()), (("v", col("v")),))),
        {"s": ()},
    ),
    "computed keys": (
        nodes.IStream(
            nodes.Aggregate(Project(Window(S, HOUR), (("even", col("k") % 2),)), ("even",), (COUNT,))
        ),
        {"s": (col("k") % 2,)},
    ),
    "zero has no sign": (nodes.IStream(grouped("v")), {"s": (col("v") + lit(0.0, pa.float64()),)}),
    "a stream that joins itself on one column": (
        nodes.RStream(Join(windowed(S, "k"), Project(windowed(S, "k"), (("j", col("k")),)), ("k",), ("j",))),
        {"s": K},
    ),
    "a join with a table by anything": (
        nodes.RStream(Join(windowed(S), nodes.Table("d", pa.schema([("id", pa.int64())])), ("k",), ("id",))),
        {"s": ()},
    ),
    "an except by content": (
        nodes.IStream(nodes.Except(windowed(S, "g"), windowed(T, "name"))),
        {"s": (col("g"),), "t": (col("name"),)},
    ),
}

REFUSED: dict[str, tuple[Plan, str]] = {
    "an aggregate of all": (nodes.IStream(grouped()), "count(*) is taken of all rows"),
    "newest rows of all": (nodes.IStream(Window(S, Rows(3))), "[ROWS 3] takes the newest rows of all"),
    "every pair": (nodes.RStream(Join(windowed(S), windowed(T))), "pairs every row with every other"),
    "a key that ISTREAM cannot see": (nodes.IStream(Project(grouped("k"), (("n", col("n")),))), "ISTREAM"),
    "a stream that joins itself on two columns": (
        nodes.RStream(
            Join(windowed(S, "g"), Project(windowed(S), (("j", col("k").cast("string")),)), ("g",), ("j",))
        ),
        "s would have to be divided by",
    ),
    "groups by what is not grouped below": (
        nodes.RStream(nodes.Aggregate(grouped("k"), ("n",), (AggregateCall("c", "count"),))),
        "count(*) by k cannot be divided by n",
    ),
    "a table by itself": (
        nodes.IStream(nodes.Union((windowed(S, "k"), nodes.Table("d", pa.schema([("id", pa.int64())]))))),
        "the table d is in every shard",
    ),
    "a constant key": (
        nodes.IStream(nodes.Aggregate(Project(Window(S, HOUR), (("one", lit(1)),)), ("one",), (COUNT,))),
        "the same for all rows",
    ),
    "the text of a float, over groups of floats": (
        nodes.IStream(Project(grouped("v"), (("t", col("v").cast("string")),))),
        "cannot be divided",
    ),
}


@pytest.mark.parametrize("name", KEYED)
def test_a_plan_is_divided(name: str) -> None:
    plan, keys = KEYED[name]
    assert partition(plan).keys == keys
    assert str(partition(plan))


@pytest.mark.parametrize("name", REFUSED)
def test_a_plan_that_cannot_be_divided_says_why(name: str) -> None:
    plan, reason = REFUSED[name]
    found = partition(plan)
    assert found.keys is None
    assert reason in found.reason


# ------------------------------------------------------------------------------------------------- stages


def staged(found: list[Stage], data: Data) -> list[Event]:
    """The answer of the last stage, each reading the answers of those before it."""
    known = dict(data)
    answer: list[Event] = []
    for stage in found:
        answer = apart(stage.plan, known) if stage.partitioning.keys else oracle.stream(stage.plan, known)
        if stage.output is not None:
            names = stage.output.columns.names
            known[stage.output.name] = [(time, dict(zip(names, row, strict=True))) for time, row in answer]
    return answer


@given(plans.cases(5))
def test_stages_one_after_the_other_give_the_answer(case: Case) -> None:
    found = stages(case.plan)
    event(f"{len(found)} stages")
    if any(stage.plan.is_relation for stage in found):
        whole = found[-1].plan
        for stage in reversed(found[:-1]):
            assert stage.output is not None
            whole = exchange(whole, stage.output, stage.plan)
        event("intervals cross a cut")
        assert not difference(oracle.stream(whole, case.sources), oracle.stream(case.plan, case.sources))
    elif len(found) > 1:
        assert not difference(staged(found, case.sources), oracle.stream(case.plan, case.sources))


def answer_of(cut: Cut, data: Data) -> list[Event]:
    """The answer of both parts of a plan, in one place each."""
    if cut.lower.is_relation:
        return oracle.stream(exchange(cut.upper, cut.output, cut.lower), data)
    names, answer = cut.output.columns.names, oracle.stream(cut.lower, data)
    between = [(time, dict(zip(names, row, strict=True))) for time, row in answer]
    return oracle.stream(cut.upper, {**data, cut.output.name: between})


@st.composite
def sliding(draw: st.DrawFn) -> Case:
    """What changes only at slides, beneath what cares how long its rows last and what does not."""
    slide = draw(st.integers(1, 3))
    one, other = (Window(s, Sliding(draw(st.integers(1, 7)), slide)) for s in (S, U))
    pairs = Join(one, other, ("k",), ("id",))
    groups = nodes.SlidingAggregate(S, ("k",), (COUNT,), Sliding(draw(st.integers(1, 7)), slide))
    below: Plan = draw(
        st.sampled_from([one, pairs, Project(pairs, (("g", col("g")),)), nodes.Distinct(one), groups])
    )
    if draw(st.booleans()) and below not in (groups, nodes.Distinct(one)):
        below = nodes.Granularity(below, draw(st.integers(1, 4)))
    if draw(st.booleans()):
        below = nodes.Aggregate(below, draw(st.sampled_from([(), tuple(below.schema.names[:1])])), (COUNT,))
    plan = draw(st.sampled_from([nodes.IStream(below), nodes.DStream(below), nodes.RStream(below, slide)]))
    return Case(plan, {source.name: draw(schemas.rows(source.columns, 10)) for source in (S, U)})


@given(plans.cases() | sliding())
def test_a_plan_may_be_cut_at_every_place(case: Case) -> None:
    """Also where `stages` would not choose to: it chooses by the keys, which few random plans have."""
    expected = oracle.stream(case.plan, case.sources)
    for cut in cuts(case.plan):
        note(f"{show(cut.lower)}\n→\n{show(cut.upper)}")
        assert not difference(answer_of(cut, case.sources), expected)


HOT = nodes.SlidingAggregate(S, ("k", "g"), (COUNT,), Sliding(4, 2))
BY_G = nodes.Aggregate(
    Project(HOT, (("g", col("g")), ("n", col("n")))), ("g",), (AggregateCall("m", "max", "n"),)
)
BY_N = nodes.Aggregate(HOT, ("n",), (AggregateCall("c", "count"),))


def test_two_keys_are_two_stages() -> None:
    lower, upper = stages(nodes.RStream(BY_N, 2))
    assert lower.plan == nodes.RStream(HOT, 2, once=True)
    assert lower.partitioning.keys == {"s": (col("k"), col("g"))}
    assert lower.output == Source("stage_1", HOT.schema)
    assert upper.plan == nodes.RStream(exchange(BY_N, HOT, Window(lower.output, Range(2))), 2)
    assert upper.partitioning.keys == {"stage_1": (col("n"),)}


def test_one_key_that_serves_both_is_one_stage() -> None:
    (only,) = stages(nodes.RStream(BY_G, 2))
    assert only.partitioning.keys == {"s": (col("g"),)}


def test_what_needs_all_rows_comes_last_and_alone() -> None:
    top = nodes.RStream(nodes.Aggregate(HOT, (), (AggregateCall("m", "max", "n"),)), 2)
    lower, upper = stages(top)
    assert lower.partitioning.keys == {"s": (col("k"), col("g"))}
    assert upper.partitioning.keys is None


def test_of_relations_that_change_at_any_time_the_intervals_cross_the_cut() -> None:
    plan = nodes.IStream(nodes.Aggregate(grouped("k"), ("n",), (AggregateCall("c", "count"),)))
    lower, upper = stages(plan)
    assert lower.plan == grouped("k")
    assert isinstance(lower.output, nodes.Inlet)
    assert lower.output.is_relation
    assert exchange(upper.plan, lower.output, lower.plan) == plan
    assert upper.partitioning.keys == {lower.output.name: (col("n"),)}


def test_a_granularity_above_a_cut_rounds_the_intervals_of_the_window_not_of_its_slides() -> None:
    """The pair is valid in [1, 5): in [2, 4) by steps of 2. Of its slides, [1, 3) and [3, 5), none is."""
    pairs = Join(Window(S, Sliding(4, 2)), Window(T, Sliding(4, 2)), ("k",), ("id",))
    plan = nodes.IStream(nodes.Granularity(Project(pairs, (("g", col("g")),)), 2, quality_column="grain"))
    data: Data = {"s": [(0, {"k": 1, "g": "x", "v": 0.0})], "t": [(1, {"id": 1, "name": "y"})]}
    assert oracle.stream(plan, data) == [(2, ("x", 2))]
    for cut in cuts(plan):
        assert not difference(answer_of(cut, data), oracle.stream(plan, data))
    assert len(stages(plan)) == 2


def test_a_granularity_above_rows_that_last_for_one_slide_may_read_them_as_a_stream() -> None:
    plan = nodes.RStream(nodes.Granularity(HOT, 2), 2)
    data: Data = {"s": [(time, {"k": time, "g": "x", "v": 0.0}) for time in (0, 1, 1, 5)]}
    (cut,) = (cut for cut in cuts(plan) if cut.lower == nodes.RStream(HOT, 2, once=True))
    assert not difference(answer_of(cut, data), oracle.stream(plan, data))


def test_a_stream_that_is_cut_keeps_the_order_of_simultaneous_rows() -> None:
    inner = nodes.IStream(grouped("k", "g"))
    plan = nodes.IStream(Window(inner, Rows(1, ("n",))))
    data = {"s": [(1, {"k": k, "g": "x", "v": 0.0}) for k in (3, 1, 2)]}
    found = stages(plan)
    assert len(found) == 2
    assert Counter(staged(found, data)) == Counter(oracle.stream(plan, data))


# ------------------------------------------------------------------------------------------------- native


@given(plans.cases())
def test_prefixes_core_and_suffix_are_the_plan(case: Case) -> None:
    parts = native_parts(case.plan)
    data = dict(case.sources)
    for name, prefix in parts.prefixes.items():
        answer, names = oracle.stream(prefix, case.sources), prefix.schema.names
        data[name] = [(time, dict(zip(names, row, strict=True))) for time, row in answer]
    answer = oracle.stream(parts.core, data)
    if parts.suffix is not None:
        names = parts.core.schema.names
        answer = oracle.stream(
            parts.suffix, {"answer": [(time, dict(zip(names, row, strict=True))) for time, row in answer]}
        )
    assert not difference(answer, oracle.stream(case.plan, case.sources))


def test_two_uses_of_a_stream_begin_with_what_they_share() -> None:
    kept = nodes.Select(S, col("k") > 1)
    one = Window(nodes.Select(kept, col("v") > 1.0), Now())
    other = Project(Window(kept, Now()), (("j", col("k")),))
    parts = native_parts(nodes.RStream(Join(one, other, ("k",), ("j",))))
    assert parts.prefixes == {"s": kept}
    assert parts.suffix is None


def test_a_column_that_only_a_condition_reads_goes_no_further() -> None:
    read = nodes.Select(S, col("v") > 1.0)
    parts = native_parts(exchange(nodes.RStream(grouped("k")), S, read))
    assert parts.prefixes == {"s": Project(read, (("k", col("k")),))}
    assert parts.core == exchange(nodes.RStream(grouped("k")), S, Source("s", pa.schema([("k", pa.int64())])))


def test_selections_after_the_last_operator_are_a_suffix() -> None:
    plan = nodes.Select(nodes.IStream(grouped("k")), col("n") > 1)
    parts = native_parts(plan)
    assert parts.core == exchange(nodes.IStream(grouped("k")), S, Source("s", pa.schema([("k", pa.int64())])))
    assert parts.suffix == nodes.Select(Source("answer", plan.schema), col("n") > 1)


def test_a_full_join_without_an_equality_says_why_it_needs_one_shard() -> None:
    join = OuterJoin(Window(S, HOUR), Window(T, HOUR), (), (), kind=JoinKind.FULL)
    found = partition(join)
    assert found.keys is None
    assert "without an equality" in found.reason
