"""A join with all of its state in memory, and with a tenth of it: `python -m benchmarks.spilling_bench`.

CPU time, because reading what the page cache has is CPU time, and neighbours do not count.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import IStream, Join, Project, Source, Window
from headrace.plan.nodes.windows import Range
from headrace.spill.directory import DirectorySpillStore

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
A, B = (Window(Source(name, SCHEMA), Range(400_000)) for name in "ab")
PLAN = IStream(Join(A, Project(B, (("l", col("k")), ("t", col("s")))), ("k",), ("l",)))
STEP, STEPS, KEYS = 10_000, 60, 2_000_000


@dataclass(frozen=True)
class Measured:
    """A run: answers, seconds of CPU, the most bytes of state in memory, bytes on disk at the end."""

    answers: int
    seconds: float
    peak: int
    spilled: int

    def __str__(self) -> str:
        rate = 2 * STEPS * STEP / self.seconds
        sizes = f"{self.peak / 1e6:.1f} MB in memory, {self.spilled / 1e6:.1f} MB on disk"
        return f"{rate:,.0f} rows a second, {sizes}, {self.answers:,} answers"


def measured(directory: str, budget: int | None) -> Measured:
    """Push everything; above the budget, spill down to half of it."""
    engine = Engine(spill_to=DirectorySpillStore(directory))
    engine.add("q", PLAN)
    answers, seconds, peak = 0, 0.0, 0
    for step in range(STEPS):
        push(engine, step)
        begun = time.process_time()
        answers += sum(len(batch) for batch in engine.drain("q"))
        held = engine.metrics().state_bytes
        if budget is not None and held > budget:
            engine.memory.spill(held - budget // 2)
        seconds += time.process_time() - begun
        peak = max(peak, engine.metrics().state_bytes)
    return Measured(answers, seconds, peak, engine.metrics().spilled_bytes)


def push(engine: Engine, step: int) -> None:
    """The rows of one step, the same for every run."""
    rng = np.random.default_rng(step)
    times = np.arange(step * STEP, (step + 1) * STEP)
    for name in "ab":
        keys = rng.integers(0, KEYS, STEP)
        columns = [pa.array(keys), pa.array([f"name {key % 1000}" for key in keys])]
        engine.push(name, pa.RecordBatch.from_arrays(columns, schema=SCHEMA), times)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        held = measured(directory, None)
        print(f"all in memory:  {held}")
        print(f"a tenth of it:  {measured(directory, held.peak // 10)}")


if __name__ == "__main__":
    main()
