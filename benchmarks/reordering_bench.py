"""What it gains to change the order of joins and conditions while they run.

    python -m benchmarks.reordering_bench

Three streams written in the wrong order: the first two share a key of few values, the second and the third
one of many. And a selection whose dear condition is written first. CPU time, side by side.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from benchmarks.report import OUT, Result, write
from headrace.engine import Engine
from headrace.expressions import And, Like, Literal, col
from headrace.plan.nodes.core import IStream, Join, Plan, Select, Source, Window
from headrace.plan.nodes.windows import Range

STEP, STEPS = 2_000, 40
WINDOW = 10_000
SOURCES = {n: Source(n, pa.schema([(f"{n}{c}", pa.int64()) for c in ("few", "many", "v")])) for n in "abc"}
A, B, C = (Window(source, Range(WINDOW)) for source in SOURCES.values())
JOINS = IStream(Join(Join(A, B, ("afew",), ("bfew",)), C, ("bmany",), ("cmany",)))
TEXTS = Source("t", pa.schema([("s", pa.string()), ("v", pa.int64())]))
CONDITIONS = Select(TEXTS, And((Like(col("s"), Literal("%needle%")), col("v") < 50)))


def joined() -> Iterator[dict[str, pa.RecordBatch]]:
    """Rows of three streams, a step at a time."""
    rng = np.random.default_rng(0)
    for _ in range(STEPS):
        draws = {
            n: (rng.integers(0, 300, STEP), rng.integers(0, 200_000, STEP), rng.integers(0, 9, STEP))
            for n in "abc"
        }
        yield {
            n: pa.RecordBatch.from_arrays(list(map(pa.array, d)), schema=SOURCES[n].columns)
            for n, d in draws.items()
        }


def selected() -> Iterator[dict[str, pa.RecordBatch]]:
    """Rows of texts, of which one in twenty has a small number."""
    rng = np.random.default_rng(0)
    words = pa.array([f"a text of some words, number {i}" for i in range(50 * STEP)])
    for _ in range(STEPS):
        yield {
            "t": pa.RecordBatch.from_arrays(
                [words, pa.array(rng.integers(0, 1000, len(words)))], schema=TEXTS.columns
            )
        }


def measured(
    plan: Plan, rows: Iterator[dict[str, pa.RecordBatch]], reoptimize: bool
) -> tuple[float, int, int]:
    """Seconds of CPU, the most bytes of state, answers."""
    engine = Engine()
    engine.add("q", plan)
    engine.optimizer.reoptimize_every(reoptimize)
    seconds, peak, answers = 0.0, 0, 0
    for step, batches in enumerate(rows):
        begun = time.process_time()
        for name, batch in batches.items():
            engine.push(name, batch, np.arange(step * batch.num_rows, (step + 1) * batch.num_rows))
        answers += sum(len(batch) for batch in engine.drain("q"))
        seconds += time.process_time() - begun
        peak = max(peak, engine.metrics().state_bytes)
    return seconds, peak, answers


def compared(name: str, plan: Plan, rows: str, floor: float) -> list[Result]:
    """How many times as much the order as written costs; the answers are as many."""
    measured(plan, ROWS[rows](), True)
    fixed, moved = (measured(plan, ROWS[rows](), way) for way in (False, True))
    assert fixed[2] == moved[2], (fixed, moved)
    found: list[Result] = [
        {"name": f"{name}: as written", "value": fixed[0], "unit": "s"},
        {"name": f"{name}: as measured", "value": moved[0], "unit": "s"},
        {"name": f"{name}: ratio", "value": fixed[0] / moved[0], "unit": "x", "floor": floor},
    ]
    if fixed[1]:
        found.append({"name": f"{name}: state, ratio", "value": fixed[1] / moved[1], "unit": "x"})
    return found


ROWS = {"joined": joined, "selected": selected}


def results() -> list[Result]:
    """The joins and the conditions."""
    joins = compared("a skewed join of three", JOINS, "joined", 1.5)
    return joins + compared("a dear condition written first", CONDITIONS, "selected", 1.2)


if __name__ == "__main__":
    sys.exit(0 if write(OUT / "reordering.json", results()) else 1)
