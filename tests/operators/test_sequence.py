"""Sequences: equality with the oracle, answers as early as is safe, state that follows what is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.errors import PlanError
from headrace.expressions import col
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.contract import Need
from headrace.operators.sequence import SequenceOperator
from headrace.plan.analysis.check import check
from headrace.plan.analysis.partitioning import partition
from headrace.plan.nodes.core import AggregateCall, Join, Plan, Project, RStream, Select, Source, Window
from headrace.plan.nodes.sequence import Mode, Sequence, Step, StepKind
from headrace.plan.nodes.windows import Now, Range
from headrace.plan.rewrite import optimize
from headrace.state.part import encode
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream, difference
from headrace.testing.sequences import matches
from headrace.time.ets import ON_DEMAND, TimerPromise
from headrace.time.punctuation import Constant, Punctuation, heartbeat
from tests.engine.driving import assert_oracles_answer, execute
from tests.laws import effort
from tests.plan.analysis.test_partitioning import apart
from tests.strategies.plans import Case
from tests.strategies.runs import runs
from tests.strategies.schemas import predicates, rows, schemas
from tests.strategies.sequence_plans import sequence_of

A = Source("a", pa.schema([("k", pa.int64()), ("v", pa.int64())]))
B = Source("b", pa.schema([("k2", pa.int64()), ("v2", pa.int64())]))
C = Source("c", pa.schema([("k3", pa.int64())]))
FIRST, SECOND, THIRD = Step(("k",)), Step(("k2",)), Step(("k3",))
NOT = replace(THIRD, kind=StepKind.MISSING)


def after(mode: Mode, **more: Any) -> Sequence:
    return Sequence((A, B), (FIRST, SECOND), mode, **more)


# ------------------------------------------------------------------------------------------------ meaning


@st.composite
def sequences(draw: st.DrawFn) -> Case:
    """A sequence of two to four steps, some of which may read one stream."""
    sources = [Source(f"s{i}", draw(schemas())) for i in range(draw(st.integers(1, 4)))]
    picked = draw(st.lists(st.sampled_from(sources), min_size=2, max_size=4))
    streams = tuple(_numbered(source, i) for i, source in enumerate(picked))
    most = 30 if len(streams) == 2 else 12
    data = {s.name: draw(rows(s.columns, most)) for s in sources if s in picked}
    return Case(sequence_of(draw, streams), data)


def _numbered(source: Source, index: int) -> Plan:
    return Project(source, tuple((f"{name}{index}", col(name)) for name in source.columns.names))


@effort(2, "many modes and steps")
@given(st.data())
def test_a_sequence_is_what_the_oracle_says_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(sequences())
    assert_oracles_answer(case, data.draw(runs(case)))


@given(st.data())
def test_columns_that_nobody_reads_do_not_wait(data: st.DataObject) -> None:
    case = data.draw(sequences())
    names = data.draw(st.lists(st.sampled_from(case.plan.schema.names), min_size=1, max_size=2, unique=True))
    plan = Project(case.plan, tuple((name, col(name)) for name in names))
    narrow = optimize(plan)
    check(narrow)
    assert narrow.schema.equals(plan.schema)
    expected = oracle.stream(plan, case.sources)
    assert not difference(oracle.stream(narrow, case.sources), expected)
    run = data.draw(runs(Case(narrow, case.sources)))
    assert_same_stream(execute(Case(narrow, case.sources), run)[0], expected, schema=plan.schema)


def test_a_column_is_pruned_unless_it_is_shown_compared_or_a_key() -> None:
    wide = Source("wide", pa.schema([(name, pa.int64()) for name in ("k", "v", "unread")]))
    plan = Sequence((wide, B), (FIRST, replace(SECOND, condition=col("v") < col("v2"))), Mode.RECENT)
    found = optimize(Project(plan, (("k2", col("k2")),)))
    assert isinstance(found, Project)
    assert found.input.inputs[0].schema.names == ["k", "v"]


@given(st.data())
def test_shards_by_the_partition_give_the_answer_together(data: st.DataObject) -> None:
    case = data.draw(sequences())
    assert isinstance(case.plan, Sequence)
    found = partition(case.plan)
    if not case.plan.steps[0].keys:
        assert found.keys is None
    if found.keys is not None:
        assert not difference(apart(case.plan, case.sources), oracle.stream(case.plan, case.sources))


@given(st.data())
def test_unrestricted_is_the_join_of_a_window_with_the_row_that_comes(data: st.DataObject) -> None:
    within, condition = (
        data.draw(st.integers(1, 9)),
        data.draw(st.none() | predicates(after(Mode.RECENT).schema)),
    )
    sources = {s.name: data.draw(rows(s.columns, 20)) for s in (A, B)}
    sequence = after(Mode.UNRESTRICTED, within=within)
    sequence = replace(sequence, steps=(FIRST, replace(SECOND, condition=condition)))
    join = Join(Window(A, Range(within)), Window(B, Now()), ("k",), ("k2",), condition)
    keyed = Select(sequence, col("k").is_not_null())
    assert not difference(oracle.stream(keyed, sources), oracle.stream(RStream(join, 1), sources))


@given(st.data())
def test_what_one_mode_chooses_another_has_among_its_choices(data: st.DataObject) -> None:
    sources = {s.name: data.draw(rows(s.columns, 20)) for s in (A, B)}
    strict = data.draw(st.booleans())
    found = {mode: oracle.stream(after(mode, strict=strict), sources) for mode in Mode}
    for mode in (Mode.RECENT, Mode.CHRONICLE, Mode.CONSECUTIVE):
        assert all(event in found[Mode.UNRESTRICTED] for event in found[mode])
    assert all(event in found[Mode.RECENT] for event in found[Mode.CONSECUTIVE])


CONTACTS = pa.schema([("badge", pa.int64()), ("other", pa.int64())])


def contacts(shared_data: Callable[[str], Path], count: int | None) -> tuple[np.ndarray, pa.RecordBatch]:
    """Contacts of badges, as recorded: two badges, and many contacts at each instant."""
    table = pyarrow.csv.read_csv(shared_data("sociopatterns") / "events.csv").slice(0, count)
    columns = [table.column(name).combine_chunks().cast(pa.int64()) for name in ("source", "key")]
    times = table.column("event_time_ms").to_numpy() // 20_000
    return times, pa.RecordBatch.from_arrays(columns, schema=CONTACTS)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("mode", "within", "count"),
    [(Mode.RECENT, None, None), (Mode.CHRONICLE, 100, None), (Mode.UNRESTRICTED, 5, 30_000)],
)
def test_contacts_passed_on_from_badge_to_badge(
    shared_data: Callable[[str], Path], mode: Mode, within: int | None, count: int | None, strict: bool
) -> None:
    """A met B, then B met C: who may have told whom. All of the data, but for where every pair counts."""
    times, data = contacts(shared_data, count)
    streams = tuple(_numbered(Source("contacts", CONTACTS), i) for i in (1, 2))
    steps = (Step(("other1",)), Step(("badge2",), condition=col("badge1").ne(col("other2"))))
    plan = Sequence(streams, steps, mode, within, strict)
    order = np.argsort(times, kind="stable")
    badges = [data.column(i).take(pa.array(order)).to_pylist() for i in range(2)]
    events = list(zip(times[order].tolist(), zip(*badges, strict=True), strict=True))
    engine = Engine()
    engine.add("q", plan)
    answers: list[Batch] = []
    for begin in range(0, len(times), 10_000):
        piece = order[begin : begin + 10_000]
        engine.push("contacts", data.take(pa.array(piece)), times[piece])
        answers += engine.drain()
    engine.streams.end("contacts")
    expected = matches(
        plan, [events, events]
    )  # what the oracle says, without its way through the projections
    assert len(expected) > 1_000
    assert_same_stream(answers + engine.drain(), expected)


# ---------------------------------------------------------------------------------------------- promptness


def connected(plan: Sequence) -> tuple[SequenceOperator, list[Arc]]:
    operator, arcs = SequenceOperator(plan), [Arc() for _ in plan.streams]
    operator.connect(arcs)
    operator.output.reader()
    return operator, arcs


def batch(source: Source, *events: tuple[int, ...]) -> Batch:
    columns = [pa.array([e[i + 1] for e in events], f.type) for i, f in enumerate(source.columns)]
    return Batch(
        pa.RecordBatch.from_arrays(columns, schema=source.columns), np.array([e[0] for e in events], np.int64)
    )


def settled(operator: SequenceOperator) -> int:
    """How many rows have come out once nothing more can be done."""
    while operator.more:
        operator.execute(1000)
    return operator.rows_out


@pytest.mark.parametrize(("strict", "proof"), [(False, 5), (True, 4)])
def test_a_product_read_before_its_case_waits_for_the_proof_and_not_a_tick_longer(
    strict: bool, proof: int
) -> None:
    operator, (cases, products) = connected(after(Mode.RECENT, strict=strict))
    cases.append(batch(A, (1, 7, 1)))
    products.append(batch(B, (5, 7, 9)))
    assert settled(operator) == 0
    assert operator.needs() == [Need(0, proof)]
    cases.append(batch(A, (3, 7, 2)))
    cases.punctuate(heartbeat(proof - 1))
    assert settled(operator) == 0
    cases.punctuate(heartbeat(proof))
    assert settled(operator) == 1
    out = operator.output.readers[0].take(10)
    assert isinstance(out, Batch)
    assert out.data.to_pylist() == [{"k": 7, "v": 2, "k2": 7, "v2": 9}]
    assert operator.needs() == []


def test_that_a_step_is_missing_is_proven_by_a_heartbeat() -> None:
    plan = Sequence((A, C, B), (FIRST, NOT, SECOND), Mode.RECENT)
    operator, (a, c, b) = connected(plan)
    a.append(batch(A, (1, 7, 1)))
    b.append(batch(B, (5, 7, 9)))
    a.punctuate(heartbeat(9))
    assert settled(operator) == 0
    assert operator.needs() == [Need(1, 5)]
    c.punctuate(heartbeat(5))
    assert settled(operator) == 1


def test_a_silent_first_step_holds_nothing_back_while_no_row_of_the_last_waits() -> None:
    operator, (_, products) = connected(after(Mode.RECENT))
    told: list[int] = []
    operator.promise = told.append
    products.punctuate(heartbeat(8))
    settled(operator)
    assert told == [8]
    products.append(batch(B, (20, 7, 1)))
    settled(operator)
    assert told == [8, 19]


def test_a_silent_step_is_asked_for_an_ets() -> None:
    engine = Engine(now=0)
    for source in (A, B):
        engine.streams.declare(source, policy=ON_DEMAND, promise=TimerPromise(2))
    engine.add("q", after(Mode.RECENT))
    engine.push("a", batch(A, (1, 7, 1)).data, [1], now=1)
    engine.push("b", batch(B, (5, 7, 9)).data, [5], now=5)
    assert engine.drain() == []
    engine.advance(6)
    assert engine.drain() == []
    engine.advance(7)
    assert [b.start.tolist() for b in engine.drain()] == [[5]]


# --------------------------------------------------------------------------------------------------- state


def fed(plan: Sequence, count: int, keys: int, step: int = 1000, every: int = 1) -> SequenceOperator:
    """An operator that has seen `count` rows of each stream, of the second only each `every`-th."""
    operator, arcs = connected(plan)
    rng = np.random.default_rng(3)
    for begin in range(0, count, step):
        times = np.arange(begin, begin + step)
        for arc, source in zip(arcs, (A, B), strict=True):
            some = times if source is A else times[::every]
            codes = rng.integers(0, keys, len(some)) if keys < count else some
            data = pa.RecordBatch.from_arrays([pa.array(codes), pa.array(some)], schema=source.columns)
            arc.append(Batch(data, some))
            arc.punctuate(heartbeat(begin + step - 1))
        settled(operator)
        operator.output.readers[0].take(1 << 30)
    return operator


def test_recent_keeps_one_row_a_key() -> None:
    short, long = (fed(after(Mode.RECENT), count, 50).memory.bytes() for count in (4_000, 100_000))
    assert long <= short * 1.1
    assert fed(after(Mode.RECENT), 50_000, 5_000).memory.bytes() > 2 * long


def test_chronicle_keeps_what_is_unused_and_not_history() -> None:
    used = [fed(after(Mode.CHRONICLE), count, 1).memory.bytes() for count in (4_000, 100_000)]
    assert used[1] <= used[0] * 1.1
    unused = fed(after(Mode.CHRONICLE), 100_000, 1, every=2).memory.bytes()
    assert unused > 10 * used[1]


def test_unrestricted_keeps_the_window() -> None:
    plan = after(Mode.UNRESTRICTED, within=100)
    short, long = (fed(plan, count, 50).memory.bytes() for count in (4_000, 40_000))
    assert long <= short * 1.1


@pytest.mark.parametrize("mode", [Mode.RECENT, Mode.CHRONICLE, Mode.UNRESTRICTED])
def test_rows_and_keys_that_are_too_old_are_forgotten(mode: Mode) -> None:
    plan = after(mode, within=100)
    short, long = (fed(plan, count, 1 << 40).memory.bytes() for count in (4_000, 100_000))
    assert long <= short * 1.1


def test_consecutive_keeps_the_newest_row_of_a_key_whose_match_is_open() -> None:
    short, long = (fed(after(Mode.CONSECUTIVE), count, 50).memory.bytes() for count in (4_000, 60_000))
    assert long <= short * 1.1


@pytest.mark.parametrize("mode", [Mode.RECENT, Mode.CHRONICLE])
def test_the_cost_of_a_snapshot_follows_the_change(mode: Mode) -> None:
    operator, (a, b) = connected(after(mode))
    keys = np.arange(50_000)
    data = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(keys)], schema=A.columns)
    a.append(Batch(data, np.zeros(len(keys), np.int64)))
    b.punctuate(heartbeat(5))
    settled(operator)

    def size(full: bool) -> int:
        return sum(len(encode(part.changes(full))) for part in operator.state().values())

    full = size(True)
    a.append(batch(A, (7, 3, 1), (7, 4, 1)))
    b.append(batch(B, (7, 5, 1)))
    a.punctuate(heartbeat(7))
    b.punctuate(heartbeat(7))
    assert settled(operator) == 1
    assert size(False) < full / 200
    assert size(False) < full / 200


@pytest.mark.parametrize("mode", list(Mode))
def test_a_partition_closed_at_a_later_step_is_freed_and_the_promise_passes_on(mode: Mode) -> None:
    operator, (a, b) = connected(after(mode))
    a.append(batch(A, (1, 7, 1), (2, 8, 1)))
    b.punctuate(Punctuation(patterns=(("k2", Constant(7)),)))
    b.punctuate(heartbeat(4))
    settled(operator)
    passed = operator.output.readers[0].take(10)
    assert isinstance(passed, Punctuation)
    assert passed.patterns == (("k2", Constant(7)),)
    a.punctuate(heartbeat(9))
    b.append(batch(B, (5, 8, 1), (6, 7, 1)))  # the second breaks the promise: what it would have met is gone
    assert settled(operator) == 1


# ------------------------------------------------------------------------------------------------ refusals

RUN = Step(("k",), StepKind.REPEATED, None, (AggregateCall("n", "count"),))
TRUE = col("k").eq(col("k"))
REFUSED: dict[str, tuple[Sequence, str]] = {
    "one step": (Sequence((A,), (FIRST,)), "HR-P040"),
    "a step too few": (Sequence((A, B), (FIRST,)), "HR-P040"),
    "a missing step at the end": (Sequence((A, B, C), (FIRST, SECOND, NOT)), "HR-P041"),
    "a repeated step at the end": (
        Sequence((B, A), (SECOND, RUN)),
        "HR-P042",
    ),
    "a repeated step among consecutive ones": (Sequence((A, B), (RUN, SECOND), Mode.CONSECUTIVE), "HR-P042"),
    "an unknown aggregate of a run": (
        Sequence((A, B), (replace(RUN, folds=(AggregateCall("n", "product", "v"),)), SECOND)),
        "HR-P042",
    ),
    "an aggregate of an unknown column": (
        Sequence((A, B), (replace(RUN, folds=(AggregateCall("n", "sum", "v2"),)), SECOND)),
        "HR-P005",
    ),
    "aggregates of a single row": (Sequence((A, B), (replace(RUN, kind=StepKind.ONCE), SECOND)), "HR-P042"),
    "a relation": (Sequence((Window(A, Now()), B), (FIRST, SECOND)), "HR-P043"),
    "keys that do not pair": (Sequence((A, B), (FIRST, Step())), "HR-P044"),
    "keys of different types": (
        Sequence((A, Project(B, (("k2", col("k2").cast(pa.string())),))), (FIRST, SECOND)),
        "HR-P044",
    ),
    "an unknown key": (Sequence((A, B), (FIRST, Step(("k",)))), "HR-P005"),
    "a condition on the first step": (Sequence((A, B), (replace(FIRST, condition=TRUE), SECOND)), "HR-P045"),
    "a condition that is none": (Sequence((A, B), (FIRST, replace(SECOND, condition=col("v")))), "HR-P045"),
    "a missing step compared in a consecutive sequence": (
        Sequence((A, C, B), (FIRST, replace(NOT, condition=TRUE), SECOND), Mode.CONSECUTIVE),
        "HR-P045",
    ),
    "no time at all": (after(Mode.RECENT, within=0), "HR-P001"),
    "one name twice": (Sequence((A, Project(B, (("k", col("k2")),))), (FIRST, Step(("k",)))), "HR-P002"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_sequence_that_means_nothing_is_refused(name: str) -> None:
    plan, code = REFUSED[name]
    with pytest.raises(PlanError) as caught:
        check(plan)
    assert caught.value.code == code
    assert caught.value.hint
