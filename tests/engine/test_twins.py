"""Two engines take turns at one query, each catching up with what the other did in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.engine import Engine, Snapshot
from headrace.flow.batch import Batch
from headrace.spill.directory import DirectorySpillStore
from headrace.sql import StreamDef
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.engine.driving import engine_for, load_tables
from tests.laws import effort
from tests.strategies.plans import Case, cases
from tests.strategies.runs import Run, runs


def take_turns(case: Case, run: Run, turns: list[int]) -> list[Batch]:
    """The answers when twin `turns[i]` makes step i: a snapshot follows each step, as on Spark."""
    twins = [engine_for(case, replace(run, load=len(run.steps))) for _ in range(3)]
    chain: list[Snapshot] = []
    known: dict[int, int] = {}
    answers: list[Batch] = []
    for i, (step, turn) in enumerate(zip(run.steps, turns, strict=True)):
        engine = twins[turn]
        _bring_up(engine, chain, known.get(turn))
        if i == 0:
            load_tables(engine, case)
        _make(engine, step)
        answers += engine.drain("q")
        written = engine.snapshot(chain[-1].version if chain else None)
        chain.append(Snapshot.decode(written.encode()))
        known[turn] = len(chain)
    return answers


def _bring_up(engine: Engine, chain: list[Snapshot], known: int | None) -> None:
    if known is None and chain:
        engine.restore(chain)
    elif known is not None and chain[known:]:
        engine.catch_up(chain[known:])


def _make(engine: Engine, step: tuple) -> None:  # type: ignore[type-arg]
    if step[0] == "push":
        engine.push(step[1], step[2].data, step[2].start)
    elif step[0] == "advance":
        engine.advance(step[1])
    else:
        engine.streams.end(step[1])


@effort(2, "state that moves between engines is on every path of Spark")
@given(st.data())
def test_engines_that_take_turns_answer_as_one(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = data.draw(runs(case))
    turns = data.draw(st.lists(st.integers(0, 2), min_size=len(run.steps), max_size=len(run.steps)))
    expected = oracle.stream(case.plan, case.sources)
    assert_same_stream(take_turns(case, run, turns), expected, schema=case.plan.schema)


def test_groups_that_another_engine_forgot_are_not_counted_as_used(tmp_path: Path) -> None:
    """An engine that may spill notes when groups were used; catching up may leave it fewer groups."""
    s = StreamDef("s", pa.schema([("k", pa.int64()), ("t", pa.int64())]), time_column="t")
    asked = headrace.query("SELECT k, count(*) AS n FROM s [RANGE 10 TICKS] GROUP BY k", [s])
    one, other = (Engine(spill_to=DirectorySpillStore(tmp_path / name)) for name in ("one", "other"))
    chain: list[Snapshot] = []

    def step(engine: Engine, keys: range, time: int) -> None:
        rows = pa.record_batch({"k": pa.array(keys, pa.int64()), "t": pa.array([time] * len(keys))})
        engine.push("s", rows, np.full(len(keys), time))
        engine.advance(time)
        chain.append(Snapshot.decode(engine.snapshot(chain[-1].version if chain else None).encode()))

    for engine in (one, other):
        engine.add("q", asked)
    with tuning.using(compact_after=0):
        step(one, range(2000), 1)
        step(one, range(2), 5)
        other.restore(chain)
        for time in (20, 40, 60):
            step(other, range(5), time)
        one.catch_up(chain[2:])
        for time in (80, 100, 120):
            step(one, range(time, time + 5), time)
    found = [row for batch in one.drain("q") for row in batch.data.to_pylist()]
    assert found[-5:] == [{"k": k, "n": 1} for k in range(100, 105)]  # those of 120 may get company
