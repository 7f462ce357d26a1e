"""Smaller windows against random load shedding: exact join results kept at the same memory (§1, §2.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result

LEFT = pa.schema([("k", pa.int64())])
RIGHT = pa.schema([("k2", pa.int64())])
SHARES = (0.1, 0.2, 0.3, 0.4, 0.6, 0.8)
FEW = (0.1, 0.2, 0.4)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Rows of two streams: times and keys of each."""

    left: tuple[Ints, Ints]
    right: tuple[Ints, Ints]


@dataclass(frozen=True)
class Kept:
    """Results of a run, and the most bytes it held."""

    results: int
    peak: int


def pairs(window: int, windows: int, near: bool) -> Workload:
    """One row a tick on each side, each with one partner: at most a window away, mostly near if `near`."""
    rng, rows = np.random.default_rng(7), window * windows
    times = np.arange(rows)
    if near:
        apart = np.minimum(rng.exponential(window / 10, rows), window - 1).astype(np.int64)
    else:
        apart = rng.integers(0, window, rows)
    later = times + np.where(rng.random(rows) < 0.5, apart, -apart)
    order = np.argsort(later, kind="stable")
    return Workload((times, times), (np.maximum(later[order], 0), times[order]))


def joined(load: Workload, window: int, budget: int | None, keep: float = 1.0) -> Kept:
    """The join with windows that may shrink to nearly nothing, or over a random share `keep` of the rows."""
    bounds = f"[RANGE MIN {max(1, window // 100)}, MAX {window}]"
    text = f"SELECT a.k FROM a {bounds} AS a, b {bounds} AS b WHERE a.k = b.k2"
    engine = headrace.Engine()
    engine.add("q", headrace.query(text, {"a": LEFT, "b": RIGHT}, ticks_per_second=None))
    engine.memory.set_budget(budget)
    rng, step, results, peak = np.random.default_rng(3), max(1, window // 25), 0, 0
    sides = (("a", LEFT, *load.left), ("b", RIGHT, *load.right))
    for begin in range(0, int(load.left[0][-1]) + 1, step):
        for name, schema, times, keys in sides:
            cut = slice(*np.searchsorted(times, (begin, begin + step)))
            chosen = rng.random(cut.stop - cut.start) < keep
            rows = pa.RecordBatch.from_arrays([pa.array(keys[cut][chosen])], schema=schema)
            engine.push(name, rows, times[cut][chosen])
        results += sum(len(batch) for batch in engine.drain())
        peak = max(peak, engine.metrics().bytes)
    return Kept(results, peak)


def run(conditions: Conditions) -> Result:
    """Both ways at shares of the memory that the exact join needs, for partners near and anywhere."""
    window = conditions.of(4_000, 10_000, 40_000)
    shares, windows = conditions.of(FEW, SHARES, SHARES), conditions.of(3, 5, 5)
    panels, measures, words = [], [], []
    for kind, near in (("near", True), ("anywhere", False)):
        load = pairs(window, windows, near)
        exact = joined(load, window, None)
        budgets = [int(share * exact.peak) for share in shares]
        smaller = [joined(load, window, budget) for budget in budgets]
        shed = [joined(load, window, None, keep=share) for share in shares]
        lines = [
            Line(
                label,
                [k.peak / exact.peak for k in kept],
                [k.results / exact.results for k in kept],
                "points",
            )
            for label, kept in (("smaller windows", smaller), ("random shedding", shed))
        ]
        panels.append(
            Panel(f"Partners {kind}", "Memory (of the exact join's)", "Results kept", lines, from_zero=True)
        )
        at = shares.index(0.2)
        kept = smaller[at].results / exact.results
        lost = float(np.interp(smaller[at].peak, [k.peak for k in shed], [k.results for k in shed]))
        lost /= exact.results
        measures += [
            Measure(f"memory.shedding.windows_kept_{kind}", kept, "of all, at a budget of 0.2"),
            Measure(f"memory.shedding.random_kept_{kind}", lost, "of all, at the same memory"),
            Measure(f"memory.shedding.windows_over_random_{kind}", kept / max(lost, 1e-9), "×", floor=1.0),
            Measure(
                f"memory.shedding.windows_memory_{kind}", smaller[at].peak / budgets[at], "×", ceiling=1.05
            ),
        ]
        words.append(f"partners {kind}: {kept:.0%} kept by smaller windows, {lost:.0%} by shedding")
    return Result(measures, panels, "at a fifth of the memory, " + "; ".join(words))


EXPERIMENT = Experiment(
    name="memory_shedding",
    figure="Cammert et al. 2006, §1 and §2.1: against random load shedding",
    claim="at the same memory, smaller windows keep more of the exact join's results than random load "
    "shedding, above all results of rows that are close in time",
    method="each row of one stream has one partner in the other, at a distance that is exponential with a "
    "tenth of the window as mean (near) or uniform up to the window (anywhere); windows within a "
    "budget that is a share of the exact join's peak, compared with keeping a random share of the "
    "rows of both streams, read off at the memory that the smaller windows held; every result of "
    "either is one of the exact join's",
    run=run,
)
