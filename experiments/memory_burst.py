"""A burst of twenty times the normal rate within a budget of 64 MB (Cammert et al., §2.1, and beyond it)."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result

LEFT = pa.schema([("k", pa.int64()), ("v", pa.float64())])
RIGHT = pa.schema([("k2", pa.int64()), ("x", pa.int64())])
KEYS = 10_000_000
BURST = (2.0, 3.5)
"""In windows from the start: long enough for fixed windows to be full of it."""
WINDOWS = 5.0
TIMES = 20
STEPS = 100
"""Steps a window."""


@dataclass
class Seen:
    """What a run looked like after each step: windows from the start, bytes, sizes, bytes of the process."""

    at: list[float] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    process: list[int] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """The most that was held."""
        return max(self.held)

    @property
    def growth(self) -> int:
        """The most by which the process grew."""
        return max(self.process) - self.process[0]


def watched(window: int, budget: int | None) -> Seen:
    """One row a tick on each side of a join, twenty in the burst; windows from 1 % of `window` to it."""
    bounds = f"[RANGE MIN {max(1, window // 100)}, MAX {window}]"
    text = f"SELECT a.k, b.x FROM a {bounds} AS a, b {bounds} AS b WHERE a.k = b.k2"
    engine = headrace.Engine()
    engine.add("q", headrace.query(text, {"a": LEFT, "b": RIGHT}, ticks_per_second=None))
    engine.memory.set_budget(budget)
    rng, seen, step = np.random.default_rng(1), Seen(), max(1, window // STEPS)
    for begin in range(0, int(WINDOWS * window), step):
        at = begin / window
        rows = step * (TIMES if BURST[0] <= at < BURST[1] else 1)
        times = np.sort(rng.integers(begin, begin + step, rows))
        keys = rng.integers(0, KEYS, (2, rows))
        left = [pa.array(keys[0]), pa.array(rng.random(rows))]
        engine.push("a", pa.RecordBatch.from_arrays(left, schema=LEFT), times)
        right = [pa.array(keys[1]), pa.array(keys[0])]
        engine.push("b", pa.RecordBatch.from_arrays(right, schema=RIGHT), times)
        engine.drain()
        seen.at.append(at)
        seen.held.append(engine.metrics().bytes)
        seen.least.append(min(s.value for s in engine.quality.settings()) / window)
        seen.process.append(resident())
    return seen


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def alone(window: int, budget: int | None) -> Seen:
    """The same in a process of its own, so that what it holds is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_warm, window, budget).result()


def _warm(window: int, budget: int | None) -> Seen:
    watched(200, 1_000_000)
    return watched(window, budget)


def run(conditions: Conditions) -> Result:
    """Fixed windows and windows within a budget, over the same rows."""
    window = conditions.of(4_000, 90_000, 90_000)
    budget = conditions.of(2_600_000, 64_000_000, 64_000_000)
    runner = watched if conditions.size == "tiny" else alone
    fixed, adaptive = runner(window, None), runner(window, budget)
    after = [at for at, size in zip(adaptive.at, adaptive.least, strict=True) if at >= BURST[1] and size < 1]
    back = max(after, default=BURST[1]) + 1 / STEPS - BURST[1]
    during = min(adaptive.least)
    measures = [
        Measure("memory.burst.peak_over_budget", adaptive.peak / budget, "×", ceiling=1.05),
        Measure("memory.burst.fixed_over_adaptive", fixed.peak / adaptive.peak, "×", floor=5),
        Measure("memory.burst.back_at_max", back, "windows", ceiling=1.0),
        Measure("memory.burst.least_window", during, "of MAX"),
        Measure("memory.burst.process_growth_over_budget", adaptive.growth / budget, "×", ceiling=2.5),
        Measure("memory.burst.fixed_process_growth_over_budget", fixed.growth / budget, "×"),
    ]
    x = "Time (windows of MAX)"
    megabytes = [
        Line("fixed windows", fixed.at, [b / 1e6 for b in fixed.held], "steps"),
        Line("within the budget", adaptive.at, [b / 1e6 for b in adaptive.held], "steps"),
        Line("budget", fixed.at, [budget / 1e6] * len(fixed.at), "flat"),
    ]
    sizes = [Line("smaller window of the two", adaptive.at, adaptive.least, "steps")]
    return Result(
        measures,
        [
            Panel("Memory", x, "Memory held (MB)", megabytes, y_scale="log"),
            Panel("Windows", x, "Window size (of MAX)", sizes, from_zero=True),
        ],
        f"peak {adaptive.peak / 1e6:.1f} of {budget / 1e6:.0f} MB, fixed windows {fixed.peak / 1e6:.0f} MB; "
        f"windows fell to {during:.1%} of MAX and were back {back:.2f} windows after the burst",
    )


EXPERIMENT = Experiment(
    name="memory_burst",
    figure="Cammert et al. 2006, §2.1: a burst within a budget",
    claim="a burst of 20 × the normal rate stays within a budget, where fixed windows would need 5 × as "
    "much, and windows are back at their best within one window after it",
    method="a join of two streams, one row per tick each, twenty for one and a half windows; both windows "
    "from 1 % of MAX to MAX; bytes by Engine.metrics after each of 100 steps per window, outside of "
    "the manager and compared with the allocators in tests; each run in its own process, whose "
    "resident size is also read",
    run=run,
)
