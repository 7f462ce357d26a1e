"""A budget is kept by windows of rows too: more partitions leave fewer rows to each."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import headrace
from headrace.engine import Engine
from tests.memory.test_manager import A

TEXT = "DSTREAM(SELECT k, v FROM a [PARTITION BY k ROWS MIN 2, MAX 60])"


def push(engine: Engine, begin: int, keys: int, rng: np.random.Generator) -> None:
    """One row of each key, and ten more."""
    codes = np.concatenate([np.arange(keys), rng.integers(0, keys, 10)])
    values = rng.random(len(codes))
    columns = [pa.array(codes), pa.array(values)]
    engine.push("a", pa.RecordBatch.from_arrays(columns, schema=A), np.full(len(codes), begin))
    engine.drain()


def run(budget: int | None, phases: list[tuple[int, int]]) -> tuple[Engine, int, list[int]]:
    """Phases of (steps, keys); the most bytes held, and how many rows were in force after each step."""
    engine, rng = Engine(), np.random.default_rng(5)
    engine.add("q", headrace.query(TEXT, {"a": A}, ticks_per_second=None))
    engine.memory.set_budget(budget)
    peak, sizes, now = 0, list[int](), 0
    for steps, keys in phases:
        for _ in range(steps):
            now += 1
            push(engine, now, keys, rng)
            peak = max(peak, engine.metrics().bytes)
            sizes.append(engine.quality.settings()[0].value)
    return engine, peak, sizes


def test_more_partitions_leave_fewer_rows_to_each_and_the_budget_is_kept() -> None:
    phases = [(70, 10), (80, 120)]
    _, free, _ = run(None, phases)
    budget = free // 3
    engine, peak, sizes = run(budget, phases)
    assert sizes[69] == 60, "ten partitions fit"
    assert 2 <= sizes[-1] < 40
    assert 0.4 * budget < peak <= 1.05 * budget, (peak, budget, free)
    [setting] = engine.quality.settings()
    assert setting.rows
    assert len(setting.history) < 20, "it does not flap"
    assert "rows now, from 2 rows to 60 rows" in str(setting)
