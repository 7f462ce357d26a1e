"""Beyond the papers: the late rows under a bound, predicted from the first half of a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.arrays import Times
from headrace.engine import Engine
from headrace.engine.inputs import STRICT, Inputs
from headrace.plan.nodes.core import Source
from headrace.time.bound_costs import Arrived, Replay, least_bound
from headrace.time.ets import DisorderPromise

SECOND = 1_000_000
DATA = Path(__file__).parents[2] / "shared" / "data"
"""Recorded streams that are not part of the repository."""
REAL = ("wikipedia-edits", "sociopatterns")
SHARES = (0.2, 0.1, 0.05, 0.02)
DELAY = 20 * SECOND
WINDOW = 60 * SECOND
SOURCE = Source("s", pa.schema([("n", pa.int64())]))


def streams(rows: int) -> dict[str, Times]:
    """The times of each stream: the real ones where they are present, and a generated one."""
    found = {name: _recorded(DATA / name / "events.csv") for name in REAL if (DATA / name).is_dir()}
    rng = np.random.default_rng(61)
    steps = rng.exponential(2 * SECOND, rows).astype(np.int64)
    return found | {"generated": np.cumsum(steps)}


def _recorded(path: Path) -> Times:
    times = csv.read_csv(path).column("event_time_ms").to_numpy() * 1_000
    return np.sort(times)


def delayed(times: Times, seed: int, grain: int) -> Arrived:
    """The rows in order of arrival: exponential delays, and arrivals rounded up to multiples of a grain."""
    delay = np.random.default_rng(seed).exponential(DELAY, len(times)).astype(np.int64)
    arrivals = -(-(times + delay) // grain) * grain
    order = np.argsort(arrivals, kind="stable")
    return Arrived(times[order], arrivals[order])


def late_in_the_engine(arrived: Arrived, bound: int) -> int:
    """The rows that an engine with this bound counts as late."""
    engine = Engine()
    Inputs(promises={"s": DisorderPromise(bound)}, rules={"s": STRICT}).install(engine, [SOURCE])
    engine.add("q", SOURCE)
    numbers = np.arange(len(arrived))
    edges = [*np.flatnonzero(np.diff(arrived.arrivals, prepend=-1)), len(arrived)]
    for low, high in pairwise(edges):
        data = pa.RecordBatch.from_arrays([pa.array(numbers[low:high])], schema=SOURCE.schema)
        engine.push("s", data, arrived.times[low:high], now=int(arrived.arrivals[low]))
    return engine.metrics().sources["s"].rows_late


def halves(arrived: Arrived) -> Iterator[Arrived]:
    """The rows that arrived first, and the rest; an instant is not divided."""
    middle = int(np.searchsorted(arrived.arrivals, arrived.arrivals[len(arrived) // 2]))
    yield arrived.slice(slice(None, middle))
    yield arrived.slice(slice(middle, None))


def predictions(times: Times, seeds: range, grain: int) -> dict[float, tuple[float, float]]:
    """By the share that a bound is chosen for: the late rows that are predicted, and those that came."""
    found: dict[float, list[tuple[float, float]]] = {share: [] for share in SHARES}
    for seed in seeds:
        first, second = halves(delayed(times, seed, grain))
        needs = Replay(WINDOW).needs(first)
        for share in SHARES:
            bound = least_bound(needs, share)
            predicted = float(np.mean(needs > bound)) * len(second)
            found[share].append((predicted, float(late_in_the_engine(second, bound))))
    return {share: tuple(np.sum(pairs, axis=0)) for share, pairs in found.items()}  # type: ignore[misc]


def run(conditions: Conditions) -> Result:
    """Predict from the first half of each stream, count in the second half, with an engine."""
    seeds = range(conditions.of(1, 3, 10))
    grain = conditions.of(10, 5, 1) * SECOND
    times = streams(conditions.of(30_000, 60_000, 200_000))
    found = {name: predictions(each, seeds, grain) for name, each in times.items()}
    ratios = {name: _ratio(each) for name, each in found.items()}
    worst = max(ratios.values(), key=lambda ratio: abs(np.log(ratio)))
    missing = [name for name in REAL if name not in times]
    lines = [
        Line(name, [100 * s for s in SHARES], [each[s][0] / each[s][1] for s in SHARES])
        for name, each in found.items()
    ]
    without = f"; skipped, because their data is not there: {', '.join(missing)}" if missing else ""
    said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return Result(
        [
            *(
                Measure(f"bounds.{name}.predicted_late_over_real", ratio, "×")
                for name, ratio in ratios.items()
            ),
            Measure("bounds.predicted_late_over_real", worst, "×", floor=0.9, ceiling=1.1),
        ],
        [Panel("Predicted ÷ counted", "Share of late rows (%)", "Late rows (×)", lines, from_zero=True)],
        f"predicted ÷ counted late rows: {said}{without}",
    )


def _ratio(found: Mapping[float, tuple[float, float]]) -> float:
    predicted, counted = np.sum(list(found.values()), axis=0)
    return float(predicted / counted)


EXPERIMENT = Experiment(
    name="bounds",
    figure="Beyond the papers: what a bound costs",
    claim="the late rows of a bound, replayed on the first half of a stream, are those that an engine with "
    "this bound counts in the second half",
    method="real streams of edits and of contacts, where their data is present, and a generated one; rows "
    "are delayed by 20 s on average (exponential, seeded), and bounds are those that lose 20, 10, 5 and 2 % "
    "of the first half; late rows of all bounds and seeds together; the number that counts is that of the "
    "stream for which the prediction is worst",
    run=run,
)
