"""§6.2 of Srivastava & Widom, "left for future work": latency against completeness of adaptive estimation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Source, Union
from headrace.testing.arrivals import SECOND, Arrivals, merge, poisson
from headrace.time.bounds import Bounds
from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.skew import SkewMatrix

NAMES = ("s1", "s2", "s3")
SCHEMA = pa.schema([("arrived", pa.int64())])
STREAMS = [Source(name, SCHEMA) for name in NAMES]
RULES = Rules(disordered=True, enforce="strict")
RATE = 100.0
SLICE = SECOND // 40
WINDOWS = (10, 25, 50, 100, 200)
AT = (0.5, 50)
ALPHAS = (0.0, 0.5, 0.9)
TIMEOUT = 60 * SECOND
Heartbeats = LearnedHeartbeats | HeartbeatGenerator


@dataclass(frozen=True)
class Outcome:
    """Mean milliseconds from arrival to answer, and the share of rows that came too late to be answered."""

    latency: float
    late: float


def spiky(seconds: float) -> Arrivals:
    """Three Poisson streams; 5 to 50 ms in the network, and every 10 s one of them 400 ms more for 0.3 s."""
    rng = np.random.default_rng(41)
    streams = []
    for i in range(len(NAMES)):
        sent = poisson(RATE, int(RATE * seconds), rng, stream=i)
        spike = (sent.time // (SECOND // 10)) % 100
        taken = rng.uniform(5e3, 50e3, len(sent)) + 400e3 * ((spike >= 30 * i + 10) & (spike < 30 * i + 13))
        arrived = sent.time + taken.astype(np.int64)
        order = np.argsort(arrived, kind="stable")
        streams.append(Arrivals(arrived[order], sent.time[order], sent.stream))
    return merge(*streams)


def ordered_union(arrivals: Arrivals, heartbeats: Heartbeats) -> Outcome:
    """The union of the streams under these heartbeats: arrivals are pushed 25 ms at a time."""
    engine = Engine()
    engine.streams.manage(heartbeats, dict.fromkeys(STREAMS, RULES))
    engine.add("q", Union(tuple(STREAMS)))
    waited: list[npt.NDArray[np.int64]] = []
    last = int(arrivals.arrival[-1]) // SLICE + 1
    edges = np.searchsorted(arrivals.arrival, np.arange(last + 1) * SLICE)
    for k in range(last):
        now = (k + 1) * SLICE
        part = arrivals.take(np.arange(edges[k], edges[k + 1]))
        for i, name in enumerate(NAMES):
            mine = part.of(i)
            if len(mine):
                data = pa.RecordBatch.from_arrays([pa.array(mine.arrival)], schema=SCHEMA)
                engine.push(name, data, mine.time, now=now)
        engine.advance(now)
        waited += [now - b.data.column(0).to_numpy() for b in engine.drain()]
    late = sum(s.rows_late for s in engine.metrics().sources.values())
    return Outcome(float(np.concatenate(waited).mean()) / 1e3, late / len(arrivals))


def adaptive(window: int, alpha: float, adjusting: Adjusting | None = None) -> LearnedHeartbeats:
    """Figure 4 with W and α."""
    adaptivity = Adaptivity(window, alpha, adjusting)
    return LearnedHeartbeats(SkewEstimator(NAMES, 0, adaptivity=adaptivity), TIMEOUT)


def fixed(delta_ms: int) -> HeartbeatGenerator:
    """A bound that somebody guessed: every stream at most so far behind every other."""
    pairs = {(a, b): [(0, delta_ms * 1_000)] for a in NAMES for b in NAMES}
    return HeartbeatGenerator(Bounds.of(SkewMatrix.of(NAMES, pairs), timeout=TIMEOUT))


OTHERS: dict[str, Callable[[], Heartbeats]] = {
    "not adaptive (§6.1)": lambda: LearnedHeartbeats(SkewEstimator(NAMES, 0), TIMEOUT),
    "adaptive adaptivity": lambda: adaptive(50, 0.5, Adjusting()),
}


def run(conditions: Conditions) -> Result:
    """Every W and α, §6.1, W that adapts, quantiles, and fixed bounds, on the same arrivals."""
    arrivals = spiky(conditions.of(6.0, 20.0, 300.0))
    alphas = conditions.of((0.5,), ALPHAS, ALPHAS)
    windows = conditions.of((50, 200), WINDOWS, WINDOWS)
    grid = {(a, w): ordered_union(arrivals, adaptive(w, a)) for a in alphas for w in windows}
    others = {name: ordered_union(arrivals, make()) for name, make in OTHERS.items()}
    losses = conditions.of((0.01,), (0.001, 0.01, 0.03), (0.001, 0.003, 0.01, 0.03))
    confident = [_confident(arrivals, loss) for loss in losses]
    bounds = conditions.of((100,), (40, 60, 200, 450), (40, 60, 100, 200, 300, 450))
    guessed = [ordered_union(arrivals, fixed(ms)) for ms in bounds]
    at = min(1, len(bounds) - 1)
    plain, best = others["not adaptive (§6.1)"], grid[AT]
    words = f"W = {windows[0]:,} … {windows[-1]:,}"
    lines = [
        *(_line(f"α = {a:g}, {words}", [grid[a, w] for w in windows]) for a in alphas),
        *(_line(name, [outcome], "scatter") for name, outcome in others.items()),
        _line("quantile", confident),
        _line("fixed bound", guessed, "analytic"),
    ]
    x, y = "Rows that come too late (%)", "Average output latency (ms)"
    return Result(
        [
            Measure("estimation.not_adaptive_ms", plain.latency, "ms"),
            Measure("estimation.not_adaptive_late", plain.late),
            *_cells(grid),
            Measure("estimation.adjusting_ms", others["adaptive adaptivity"].latency, "ms"),
            Measure("estimation.adjusting_late", others["adaptive adaptivity"].late),
            Measure(
                "estimation.latency_gain", plain.latency / best.latency, "×", floor=1.5, paper="future work"
            ),
            Measure("estimation.adaptive_late", best.late, ceiling=0.1),
        ],
        [Panel("Spiky latencies", x, y, lines, y_scale="log")],
        f"W = {AT[1]} and α = {AT[0]} answer after {best.latency:.0f} ms and lose {best.late:.1%}; without "
        f"adaptivity {plain.latency:.0f} ms and {plain.late:.1%}; a bound of {bounds[at]} ms, in hindsight, "
        f"{guessed[at].latency:.0f} ms and {guessed[at].late:.1%}",
    )


def _confident(arrivals: Arrivals, loss: float) -> Outcome:
    return ordered_union(arrivals, LearnedHeartbeats(QuantileEstimator(NAMES, Confidence(loss)), TIMEOUT))


def _line(label: str, outcomes: list[Outcome], style: str = "points") -> Line:
    return Line(label, [100 * o.late for o in outcomes], [o.latency for o in outcomes], style)


def _cells(grid: dict[tuple[float, int], Outcome]) -> list[Measure]:
    names = {cell: f"estimation.alpha_{cell[0]:g}.window_{cell[1]}" for cell in grid}
    return [
        measure
        for cell, o in grid.items()
        for measure in (Measure(f"{names[cell]}_ms", o.latency, "ms"), Measure(f"{names[cell]}_late", o.late))
    ]


EXPERIMENT = Experiment(
    name="estimation",
    figure="Srivastava & Widom, §6.2",
    claim="W and α of the adaptive estimation trade latency against accuracy if the worst case is a rare "
    "spike; experiments are left for future work",
    method="an ordered union of three Poisson streams of 100 rows/s, 5 to 50 ms in the network and 400 ms "
    "more during spikes; latency is from arrival to result, rows behind the heartbeat are late; "
    "arrivals are pushed 25 ms at a time in the streams' own time, so service times do not count",
    run=run,
)
