"""Cammert et al., §2.1: a smaller window makes a smaller state, which is probed faster."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result

SCHEMA = pa.schema([("k", pa.int64())])
WINDOWS = (125, 250, 500, 1_000, 2_000)
STEP = 125
JOINS = {
    "no key: every pair is looked at": "a.k > b.k + 1000000",
    "by key: hashed": "a.k = b.k",
}


class Probe:
    """A join of two streams whose windows can change while it runs; few pairs match, or none."""

    def __init__(self, condition: str) -> None:
        window = f"[RANGE MIN {WINDOWS[0]}, MAX {WINDOWS[-1]}]"
        text = f"SELECT a.k FROM a {window} AS a, b {window} AS b WHERE {condition}"
        self.engine = headrace.Engine()
        self.engine.add("q", headrace.query(text, {"a": SCHEMA, "b": SCHEMA}, ticks_per_second=None))
        self.rng, self.now = np.random.default_rng(51), 0

    def resize(self, size: int) -> None:
        """Both windows get a size, and what they held before leaves."""
        for each in self.engine.quality.settings():
            self.engine.quality.resize(each.node, size)
        self.go(WINDOWS[-1] // STEP + 2)

    def go(self, steps: int) -> float:
        """A row of each stream each tick, 125 at a time; returns the microseconds of CPU a row."""
        spent = 0
        for _ in range(steps):
            times = np.arange(self.now, self.now + STEP)
            rows = [pa.array(self.rng.integers(0, 10**6, STEP)) for _ in "ab"]
            self.now += STEP
            began = time.thread_time_ns()
            for name, values in zip("ab", rows, strict=True):
                self.engine.push(name, pa.RecordBatch.from_arrays([values], schema=SCHEMA), times)
            self.engine.drain()
            spent += time.thread_time_ns() - began
        return spent / (2 * STEP * steps) / 1e3


def cost(condition: str, steps: int) -> list[float]:
    """Microseconds a row at each size, from the largest window to the smallest; the least of three."""
    probe, found = Probe(condition), list[float]()
    for size in reversed(WINDOWS):
        probe.resize(size)
        found.append(min(probe.go(steps) for _ in range(3)))
    return found[::-1]


def run(conditions: Conditions) -> Result:
    """A join with and without a key, in windows that the memory manager may shrink."""
    steps = conditions.of(1, 4, 20)
    found = {name: cost(condition, steps) for name, condition in JOINS.items()}
    pairs, hashed = found.values()
    half = float(np.mean([pairs[i + 1] / pairs[i] for i in range(1, len(WINDOWS) - 1)]))
    x, y = "Window (rows)", "CPU time a row (µs)"
    lines = [Line(name, WINDOWS, each) for name, each in found.items()]
    return Result(
        [
            Measure("probing.pairs_largest_over_smallest", pairs[-1] / pairs[0], "×", floor=3),
            Measure("probing.pairs_per_doubling", half, "×", paper="2 for nested loops"),
            Measure("probing.hashed_largest_over_smallest", hashed[-1] / hashed[0], "×", ceiling=4),
        ],
        [Panel("Probing a window", x, y, lines, "log", "log")],
        f"without a key, twice the window costs {half:.1f} times as much a row; by a key, a window of "
        f"{WINDOWS[-1]:,} rows costs {hashed[-1] / hashed[0]:.1f} times as much as one of {WINDOWS[0]}",
    )


EXPERIMENT = Experiment(
    name="probing",
    figure="Cammert et al., §2.1",
    claim="a smaller window makes probing faster: half the state is probed twice as fast by nested loops",
    method="CPU time a row of a join of two streams whose windows are resized while it runs, from 2,000 rows "
    "down to 125, the least of three runs with 125 rows of each stream a step; without a key each pair is "
    "compared, with a key rows are found by their hash; of the pairs none or few match, so answers cost "
    "nothing",
    differs="A join by key does not have nested loops: its cost hardly depends on the window, so a smaller "
    "window saves memory and not time.",
    run=run,
)
