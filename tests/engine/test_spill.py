"""State on a disk: the answers stay the same, memory falls, and what cannot matter is not read."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace import tuning
from headrace.engine import Engine, Snapshot
from headrace.errors import SpillError
from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.operators.join import JoinOperator
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    Except,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    SlidingAggregate,
    Source,
    Window,
)
from headrace.plan.nodes.top_n import SortKey, TopN
from headrace.plan.nodes.windows import Range, Rows, Sliding, Unbounded
from headrace.spill.directory import DirectorySpillStore
from headrace.spill.store import Handle
from headrace.testing.compare import assert_same_stream, events_of

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
RENAMED = Project(B, (("l", col("k")), ("t", col("s"))))
WINDOW = 10_000
JOIN = IStream(Join(Window(A, Range(WINDOW)), Window(RENAMED, Range(WINDOW)), ("k",), ("l",)))
CALLS = (AggregateCall("n", "count"), AggregateCall("top", "max", "s"), AggregateCall("last", "last", "s"))
GROUPS = IStream(Aggregate(Window(A, Unbounded()), ("k",), CALLS))
SUMS = (AggregateCall("n", "count"), AggregateCall("sum", "sum", "k"))
ENDS = IStream(Aggregate(Window(A, Range(WINDOW)), ("k",), SUMS))
PLANS = {"join": JOIN, "ends": ENDS, "groups": GROUPS}
KEYS = {"join": 3000, "ends": 300, "groups": 30_000}
STEP = 1000


class Watched(DirectorySpillStore):
    """A spill store that counts what is read."""

    reads = 0

    def get(self, handle: Handle) -> pa.RecordBatch:
        self.reads += 1
        return super().get(handle)


def rows(first: int, keys: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[pa.RecordBatch, list[int]]:
    names = [f"name {i % 1000}" for i in range(first, first + len(keys))]
    batch = pa.RecordBatch.from_arrays([pa.array(keys), pa.array(names)], schema=SCHEMA)
    return batch, list(range(first, first + len(keys)))


def engine_with(plan: Plan, spill_store: DirectorySpillStore | None = None) -> Engine:
    engine = Engine(spill_to=spill_store)
    engine.add("q", plan)
    return engine


def push(engine: Engine, step: int, keys: int = 5000) -> list[Batch]:
    rng = np.random.default_rng(step)
    for stream in engine.streams:
        engine.push(stream, *rows(step * STEP, rng.integers(0, keys, STEP)))
    return engine.drain("q")


def state(engine: Engine) -> int:
    return engine.metrics().state_bytes


def same(spilled: list[Batch], held: list[Batch]) -> None:
    assert_same_stream(spilled, events_of(held))


@pytest.mark.parametrize("name", PLANS)
def test_a_state_of_many_times_the_budget_gives_the_same_rows(name: str, tmp_path: Path) -> None:
    plan, keys = PLANS[name], KEYS[name]
    plain = engine_with(plan)
    expected = [push(plain, step, keys) for step in range(24)]
    budget = state(plain) // (10 if name == "join" else 8)
    engine = engine_with(plan, DirectorySpillStore(tmp_path))
    with tuning.using(spill_file_bytes=1 << 14):
        for step, answer in enumerate(expected):
            same(push(engine, step, keys), answer)
            if state(engine) > budget // 2:
                engine.memory.spill(state(engine) - budget // 4)
            assert state(engine) <= budget
    assert engine.metrics().spilled_bytes > budget


@pytest.mark.parametrize("name", PLANS)
def test_memory_falls_by_what_is_said_to_be_freed(name: str, tmp_path: Path) -> None:
    plan, keys = PLANS[name], KEYS[name]
    engine = engine_with(plan, DirectorySpillStore(tmp_path))
    for step in range(10):
        push(engine, step, keys)
    before, arrow = state(engine), pa.total_allocated_bytes()
    freed = engine.memory.spill(before)
    assert freed > before / 2
    assert state(engine) == before - freed
    assert pa.total_allocated_bytes() <= arrow + (1 << 16)
    rooms = sum(n.operator.memory.mapped_bytes() for n in engine.graph.nodes)
    files = sum(f.stat().st_size for f in tmp_path.rglob("*.arrow"))
    assert files + rooms == engine.metrics().spilled_bytes


def test_keys_that_are_not_there_and_rows_that_are_over_are_not_read(tmp_path: Path) -> None:
    spill_store = Watched(tmp_path)
    engine = engine_with(JOIN, spill_store)
    push(engine, 0)
    join = next(node.operator for node in engine.graph.nodes if isinstance(node.operator, JoinOperator))
    assert join.memory.spill(1 << 30) > 0
    for stream in ("a", "b"):
        engine.push(stream, *rows(2 * STEP, np.arange(10**6, 10**6 + STEP)))
    engine.drain("q")
    assert spill_store.reads < 3, "a filter may err now and then"
    assert len(list(tmp_path.rglob("*.arrow"))) == 2
    for stream in ("a", "b"):
        engine.streams.heartbeat(stream, WINDOW + STEP)
    engine.drain("q")
    assert spill_store.reads < 3
    assert list(tmp_path.rglob("*.arrow")) == []


def test_a_group_comes_back_alone(tmp_path: Path) -> None:
    engine = engine_with(GROUPS, DirectorySpillStore(tmp_path))
    engine.push("a", *rows(0, np.arange(STEP)))
    engine.drain("q")
    engine.memory.spill(1 << 30)
    empty = state(engine)
    engine.push("a", *rows(STEP, np.array([7, 8, 7])))
    engine.streams.heartbeat("a", 10 * STEP)
    found = [row for batch in engine.drain("q") for row in batch.data.to_pylist()]
    assert {(row["k"], row["n"]) for row in found} >= {(7, 3), (8, 2)}
    assert state(engine) < empty + 20_000


@pytest.mark.parametrize("name", PLANS)
def test_a_snapshot_needs_no_file_and_costs_the_change(name: str, tmp_path: Path) -> None:
    plan, keys = PLANS[name], KEYS[name]
    plain, engine = engine_with(plan), engine_with(plan, DirectorySpillStore(tmp_path / "one"))
    chain: list[Snapshot] = []
    for step in range(12):
        same(push(engine, step, keys), push(plain, step, keys))
        if step in (3, 7):
            engine.memory.spill(state(engine) // 2)
        chain.append(engine.snapshot(chain[-1].version if chain else None))
    full = Engine.snapshot(engine)
    assert chain[-1].size < full.size / 2, "spilled rows are written once"
    del engine
    shutil.rmtree(tmp_path / "one")
    for spill_store in (None, DirectorySpillStore(tmp_path / "two")):
        restored = engine_with(plan, spill_store)
        restored.restore(Snapshot.decode(snapshot.encode()) for snapshot in chain)
        same(push(restored, 12, keys), push(plain, 12, keys) if spill_store is None else push_again(name))


PANES = (*SUMS, AggregateCall("top", "max", "s"), AggregateCall("names", "count_distinct", "s"))
SLIDING = IStream(SlidingAggregate(A, ("k",), PANES, Sliding(8000, 500)))
LEFT, RIGHT = Window(A, Range(WINDOW)), Window(B, Range(WINDOW))
RANKED = TopN(LEFT, ("k",), (SortKey("s", True, False),), 3)
ROOMED: dict[str, tuple[Plan, int, float]] = {
    "aggregate": (IStream(Aggregate(LEFT, ("k",), CALLS)), 3000, 0.4),
    "sliding": (SLIDING, 3000, 0.3),
    "distinct": (IStream(Distinct(LEFT)), 5000, 0.3),
    "except": (IStream(Except(LEFT, RIGHT, all=True)), 50, 0.3),
    "rstream": (RStream(Window(A, Range(3000)), 2500), 5000, 0.3),
    "top": (IStream(RANKED), 300, 0.3),
    "rows": (IStream(Window(A, Rows(4000, ("k",)))), 3, 0.3),
}
"""Plans whose state goes into rooms, how many keys, and what share of it may stay in memory."""


@pytest.mark.parametrize("name", ROOMED)
@tuning.using(mapped_array_bytes=1 << 10)
def test_what_cannot_go_by_pieces_goes_into_rooms(name: str, tmp_path: Path) -> None:
    plan, keys, rest = ROOMED[name]
    plain, engine = engine_with(plan), engine_with(plan, DirectorySpillStore(tmp_path / "one"))
    chain: list[Snapshot] = []
    for step in range(5):
        same(push(engine, step, keys), push(plain, step, keys))
        if step % 2 == 1:
            before = state(engine)
            freed = engine.memory.spill(before)
            assert state(engine) == before - freed
            assert state(engine) <= rest * state(plain), (name, state(engine), state(plain))
            assert engine.metrics().spilled_bytes > state(plain) / 5
        chain.append(engine.snapshot(chain[-1].version if chain else None))
    restored = engine_with(plan, DirectorySpillStore(tmp_path / "two"))
    restored.restore(Snapshot.decode(snapshot.encode()) for snapshot in chain)
    restored.memory.spill(1 << 30)
    answers = push(plain, 5, keys)
    same(push(engine, 5, keys), answers)
    same(push(restored, 5, keys), answers)


@tuning.using(mapped_array_bytes=1 << 10)
def test_a_full_disk_leaves_arrays_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, engine = engine_with(SLIDING), engine_with(SLIDING, DirectorySpillStore(tmp_path))
    same(push(engine, 0), push(plain, 0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        with pytest.raises(SpillError, match=r"HR-M102.*No space"):
            engine.memory.spill(1 << 30)
        same(push(engine, 1), push(plain, 1))
    assert engine.memory.spill(1 << 30) > 0
    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        for step in range(2, 5):
            same(push(engine, step), push(plain, step))


def push_again(name: str) -> list[Batch]:
    """The answers of the thirteenth step."""
    engine = engine_with(PLANS[name])
    return [push(engine, step, KEYS[name]) for step in range(13)][-1]


def test_a_full_disk_is_said_and_costs_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, engine = engine_with(JOIN), engine_with(JOIN, DirectorySpillStore(tmp_path))
    same(push(engine, 0), push(plain, 0))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pa.ipc, "new_file", full)
        with pytest.raises(SpillError, match=r"HR-M102.*No space"):
            engine.memory.spill(1 << 30)
    same(push(engine, 1), push(plain, 1))


def test_a_file_that_is_gone_is_an_error_and_no_answer(tmp_path: Path) -> None:
    engine = engine_with(JOIN, DirectorySpillStore(tmp_path))
    push(engine, 0)
    engine.memory.spill(1 << 30)
    for file in tmp_path.rglob("*.arrow"):
        file.unlink()
    with pytest.raises(SpillError, match="HR-M103"):
        push(engine, 1)


def test_contents_whose_ends_are_over_are_forgotten_by_a_spill_and_not_put_away(tmp_path: Path) -> None:
    """They were held for ever where no other end was left (fixed in 1c8763c)."""
    engine, empty = (
        engine_with(IStream(Window(A, Range(10))), DirectorySpillStore(tmp_path)) for _ in range(2)
    )
    engine.push("a", *rows(0, np.arange(30)))
    engine.streams.heartbeat("a", 10 * STEP)
    engine.drain("q")
    # So few are not looked for unasked.
    assert state(engine) > state(empty) + 30 * 8
    assert engine.memory.spill(1 << 30) >= 30 * 8
    assert state(engine) <= state(empty)
    assert engine.metrics().spilled_bytes == 0


def test_a_bit_that_rots_on_the_disk_is_an_error_and_no_answer(tmp_path: Path) -> None:
    engine = engine_with(JOIN, DirectorySpillStore(tmp_path))
    push(engine, 0)
    engine.memory.spill(1 << 30)
    for file in tmp_path.rglob("*.arrow"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(SpillError, match=r"HR-M103.*has changed since it was written"):
        push(engine, 1)


def test_an_engine_without_a_spill_store_cannot_spill() -> None:
    with pytest.raises(SpillError, match="HR-M101"):
        engine_with(JOIN).memory.spill(1)
