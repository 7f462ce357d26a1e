"""Joins change their order while they run: at whatever moment, the answer is the oracle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from headrace import tuning
from headrace.engine import Engine, Snapshot
from headrace.errors import GraphError
from headrace.expressions import col
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    DStream,
    IStream,
    Join,
    Plan,
    Project,
    Source,
    Window,
)
from headrace.plan.nodes.windows import Range, Rows, Unbounded
from headrace.spill.store import MemorySpillStore
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME
from tests.engine.driving import execute
from tests.laws import effort
from tests.strategies.plans import Case
from tests.strategies.runs import runs

NAMES = "abcd"


def schema(name: str) -> pa.Schema:
    return pa.schema([(f"{name}{column}", pa.int64()) for column in "kl"])


SOURCES = {name: Source(name, schema(name)) for name in NAMES}
WINDOWS = [Range(6), Range(3), Range(40), Rows(2, ()), Unbounded()]
CALLS = (
    AggregateCall("n", "count"),
    AggregateCall("first", "first", "al"),
    AggregateCall("top", "max", "bl"),
)


@st.composite
def join_trees(draw: st.DrawFn) -> Case:
    """Three or four relations joined one after the other, each with a key of one of those before."""
    names = NAMES[: draw(st.integers(3, 4))]
    plan = _relation(draw, names[0])
    for i, name in enumerate(names[1:], 1):
        on = names[draw(st.integers(0, i - 1))]
        pairs = [(f"{on}{draw(st.sampled_from('kl'))}", f"{name}{draw(st.sampled_from('kl'))}")]
        residual = draw(st.sampled_from([None, None, col(f"{on}l") <= col(f"{name}k")]))
        safe = (0,) if draw(st.booleans()) else ()
        plan = Join(plan, _relation(draw, name), *zip(*pairs, strict=True), residual, safe)
        if draw(st.integers(0, 4)) == 0:
            plan = Project(plan, tuple((n, col(n)) for n in reversed(plan.schema.names)))
    rows = {name: sorted(draw(st.lists(_row(name), max_size=7)), key=lambda row: row[0]) for name in names}
    aggregate = Aggregate(plan, ("ak",), CALLS)
    return Case(draw(st.sampled_from([IStream(plan), DStream(plan), IStream(aggregate)])), rows)


def _row(name: str) -> st.SearchStrategy[tuple[int, dict[str, int | None]]]:
    value = st.integers(0, 3) | st.none()
    return st.tuples(st.integers(0, 12), st.fixed_dictionaries({f"{name}k": value, f"{name}l": value}))


def _relation(draw: st.DrawFn, name: str) -> Plan:
    return Window(SOURCES[name], draw(st.sampled_from(WINDOWS)))


@given(st.data())
def test_an_order_may_change_at_any_moment(data: st.DataObject) -> None:
    case = data.draw(join_trees())
    run = data.draw(runs(case))
    leaves = len(case.sources)

    def change(engine: Engine) -> None:
        if data.draw(st.integers(0, 2)) == 0:
            order = data.draw(st.none() | st.permutations(range(leaves)))
            found = engine.optimizer.reoptimize("q", order, gain=10)
            note(f"{order}: {found}")
            event("left alone" if found is None else "waits" if found.at is None else "changed")

    answers, _ = execute(case, run, hook=change)
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)


@effort(0.5, "many rows each")
@given(st.data())
def test_orders_that_change_by_themselves_answer_as_the_oracle_does(data: st.DataObject) -> None:
    """Looks after every few rows, moves that are always worth it, snapshots and spills in between."""
    case = data.draw(join_trees())
    run = data.draw(runs(case))
    every = data.draw(st.integers(1, 4))
    gain = data.draw(st.sampled_from([1.0, 10.0]))
    moves: set[tuple[int, ...]] = set()

    def watched(engine: Engine) -> None:
        engine.optimizer.reoptimize_every(every)
        moves.update(order.order for order in engine.optimizer.orders.done.values())

    with tuning.using(reorder_gain=gain, reorder_payback=1000, reorder_agreement=1):
        answers, engine = execute(case, run, hook=watched)
        watched(engine)
    event(f"{len(moves)} orders")
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)


def batch(name: str, keys: Any, others: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(others)], schema=schema(name))


def chain(window: int = 1000) -> Plan:
    """a and b share a key of few values, b and c one of many."""
    a, b, c = (Window(SOURCES[name], Range(window)) for name in "abc")
    return IStream(Join(Join(a, b, ("ak",), ("bk",)), c, ("bl",), ("cl",)))


def running(spill_store: MemorySpillStore | None = None) -> Engine:
    engine = Engine(spill_to=spill_store)
    engine.add("q", chain())
    return engine


def feed(engine: Engine, step: int, rows: int = 50) -> list[Any]:
    rng = np.random.default_rng(step)
    times = np.arange(step * rows, (step + 1) * rows)
    for name in "abc":
        few, many = rng.integers(0, 3, rows), rng.integers(0, 400, rows)
        engine.push(name, batch(name, few, many), times)
    return [row for each in engine.drain("q") for row in each.data.to_pylist()]


def joins_hold(engine: Engine) -> int:
    nodes = engine.metrics().nodes.items()
    return sum(node.state_bytes for name, node in nodes if name.startswith("join"))


def test_the_order_follows_what_was_measured_and_the_state_gets_smaller() -> None:
    plain, engine = running(), running()
    for step in range(6):
        assert sorted(map(str, feed(engine, step))) == sorted(map(str, feed(plain, step)))
    found = engine.optimizer.reoptimize("q")
    assert found is not None
    assert found.at is not None
    assert [found.relations[i] for i in found.order] == ["b", "c", "a"]
    assert found.after < 0.1 * found.before
    assert joins_hold(engine) < 0.5 * joins_hold(plain)
    assert "b ⋈ c ⋈ a" in str(engine.explain("q"))
    for step in range(6, 12):
        assert sorted(map(str, feed(engine, step))) == sorted(map(str, feed(plain, step)))
    assert engine.optimizer.reoptimize("q") is None, "it is in that order already"


def test_a_skewed_join_changes_its_order_by_itself_once_and_state_gets_smaller() -> None:
    plain, engine = running(), running()
    engine.optimizer.reoptimize_every(50)
    moves = set()
    for step in range(10):
        assert sorted(map(str, feed(engine, step, 30))) == sorted(map(str, feed(plain, step, 30)))
        moves.add(engine.metrics().orders.get("q"))
    assert len(moves) == 2, "none at first, then one that stays"
    assert "b ⋈ c ⋈ a since" in str(engine.explain("q"))
    assert joins_hold(engine) < 0.7 * joins_hold(plain)
    engine.optimizer.reoptimize_every(False)
    with pytest.raises(GraphError, match="HR-G018"):
        engine.optimizer.reoptimize_every(0)


def test_data_that_turns_to_and_fro_does_not_make_joins_flap() -> None:
    """a and b meet often in one half of the time, b and c in the other: changes become rare."""
    engine = running()
    engine.optimizer.reoptimize_every(50)
    rng, changes = np.random.default_rng(0), []
    for step in range(60):
        times = np.arange(step * 60, (step + 1) * 60)
        few = step // 3 % 2
        for name in "abc":
            columns = [rng.integers(0, 2 if few else 300, 60), rng.integers(0, 300 if few else 2, 60)]
            engine.push(name, batch(name, *columns), times)
        engine.drain("q")
        changes.append(len(engine.optimizer.orders.log))
    assert changes[-1] <= 8
    assert changes[-1] - changes[30] <= 3


def test_what_was_looked_at_is_in_the_snapshot_and_replays_alike() -> None:
    engine = running()
    engine.optimizer.reoptimize_every(100)
    before = engine.snapshot()
    for step in range(3):
        feed(engine, step)
        restored = running()
        restored.optimizer.reoptimize_every(100)
        restored.restore(before)
        feed(restored, step)
        before = engine.snapshot()
        assert restored.optimizer.adapting._looks == engine.optimizer.adapting._looks
        assert restored.optimizer.orders.done == engine.optimizer.orders.done
        assert Snapshot.decode(before.encode()).chunks["looks"] == restored.snapshot().chunks["looks"]
    assert engine.optimizer.orders.done
    without = running()
    without.restore(before)
    assert sorted(map(str, feed(without, 3))) == sorted(map(str, feed(engine, 3)))
    assert without.metrics().orders == engine.metrics().orders


def test_a_decision_that_waits_survives_a_restore() -> None:
    engine = running()
    for name, times in (("a", [1, 20]), ("b", [2, 21]), ("c", [3])):
        engine.push(name, batch(name, [1] * len(times), [1] * len(times)), times)
    found = engine.optimizer.reoptimize("q", [1, 2, 0])
    assert found is not None
    assert found.at is None
    restored = running()
    restored.restore(engine.snapshot())
    restored.push("c", batch("c", [1], [1]), [40])
    restored.drain("q")
    assert "since" in restored.metrics().orders["q"]


def test_a_stream_that_lags_delays_the_change_and_no_answer() -> None:
    plain, engine = running(), running()
    for each in (plain, engine):
        for name, times in (("a", [1, 20]), ("b", [2, 21]), ("c", [3])):
            each.push(name, batch(name, [1] * len(times), [1] * len(times)), times)
    found = engine.optimizer.reoptimize("q", [1, 2, 0])
    assert found is not None
    assert found.at is None
    assert "soon" in str(engine.explain("q"))
    got: dict[int, list[str]] = {0: [], 1: []}
    for time in (10, 30, 40):
        for i, each in enumerate((plain, engine)):
            each.push("c", batch("c", [1], [1]), [time])
            each.push("a", batch("a", [1], [1]), [time + 50])
            got[i] += [str(row) for b in each.drain("q") for row in b.data.to_pylist()]
            assert sorted(got[0]) == sorted(got[1]) or i == 0
    assert "since" in str(engine.explain("q"))


def test_a_restored_engine_has_the_order_and_the_state() -> None:
    plain, engine = running(), running(MemorySpillStore())
    chain_of = []
    for step in range(3):
        assert feed(engine, step) is not None
        feed(plain, step)
        chain_of.append(engine.snapshot(chain_of[-1].version if chain_of else None))
        if step == 0:
            assert engine.optimizer.reoptimize("q", [2, 1, 0]) is not None
        if step == 1:
            engine.memory.spill(1 << 30)
    engine.add("later", chain())
    restored = running()
    restored.restore(chain_of)
    assert restored.graph.plan_of("q") == engine.graph.plan_of("q")
    assert sorted(map(str, feed(restored, 3))) == sorted(map(str, feed(plain, 3)))


def test_what_cannot_be_reordered_is_left_alone() -> None:
    engine = running()
    engine.add("two", IStream(Join(*(Window(SOURCES[n], Range(5)) for n in "ab"), ("ak",), ("bk",))))
    assert engine.optimizer.reoptimize("two") is None
    with pytest.raises(GraphError, match="HR-G021"):
        engine.optimizer.reoptimize("q", [0, 0, 1])
    engine.add("same", chain())
    assert engine.optimizer.reoptimize("q", [2, 1, 0]) is None, "the joins are shared"
    closed = running()
    feed(closed, 0)
    closed.streams.punctuate("a", Punctuation(MAX_TIME, (("ak", Constant(1)),)))
    assert closed.optimizer.reoptimize("q", [2, 1, 0]) is None
