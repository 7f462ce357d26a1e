"""What heartbeats cost per arrival: streams one by one, very many sources in groups, and estimation.

    nice python -m benchmarks.time_bench

Each figure is the best of several runs over the same batches, heartbeats asked once per batch; cases that are
compared take turns within one run, so that a noisy neighbour disturbs them alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import numpy.typing as npt

from benchmarks.report import OUT, Result, write
from headrace.time.bounds import Bounds
from headrace.time.choosing import Profile, choose_groups
from headrace.time.estimation import Adaptivity, SkewEstimator
from headrace.time.grouping import Grouped, group_population
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.quantile import QuantileEstimator
from headrace.time.skew import SkewMatrix
from headrace.time.systems import DistributedSensors

Ints = npt.NDArray[np.int64]
BATCH, BATCHES, RUNS = 10_000, 20, 7


def single_pairs(n: int, rng: np.random.Generator) -> Bounds:
    """One pair per entry, with delays and latencies of their own."""
    i, j = np.divmod(np.arange(n * n, dtype=np.int64), n)
    t, delta = rng.integers(0, 50, n * n), rng.integers(0, 5_000, n * n)
    skew = SkewMatrix.build([f"s{k}" for k in range(n)], i, j, t, np.zeros_like(i), delta)
    return Bounds.of(skew, rng.integers(0, 50, n).tolist(), timeout=10**9)


def batches(sources: int, rng: np.random.Generator) -> list[tuple[Ints, Ints, Ints]]:
    """Arrivals with clocks that advance within a batch and times in some disorder."""
    clocks = np.cumsum(rng.integers(0, 2, BATCH * BATCHES))
    times = clocks * 10 + rng.integers(-2_000, 2_000, len(clocks))
    streams = rng.integers(0, sources, len(clocks))
    return [(streams[p], times[p], clocks[p]) for p in np.array_split(np.arange(len(clocks)), BATCHES)]


def generator_run(bounds: Bounds | Grouped, load: list[tuple[Ints, Ints, Ints]]) -> Callable[[], float]:
    """Seconds to take the load, from a fresh generator."""

    def run() -> float:
        generator = HeartbeatGenerator(bounds, close=False)
        start = perf_counter()
        for streams, times, clocks in load:
            generator.arrive(streams, times, clocks)
            generator.heartbeats(int(clocks[-1]))
        return perf_counter() - start

    return run


def observe_run(
    make: Callable[[], SkewEstimator | QuantileEstimator], load: list[tuple[Ints, Ints, Ints]]
) -> Callable[[], float]:
    """Seconds to learn from the load, from a fresh estimator."""

    def run() -> float:
        estimator = make()
        start = perf_counter()
        for streams, times, clocks in load:
            estimator.observe(streams, times, clocks)
        return perf_counter() - start

    return run


def single_run(bounds: Bounds, arrivals: int) -> Callable[[], float]:
    """Seconds for arrivals that come alone, each followed by a question."""

    def run() -> float:
        generator = HeartbeatGenerator(bounds, close=False)
        start = perf_counter()
        for k in range(arrivals):
            generator.arrive([k % 10], [k], k)
            generator.heartbeat(k)
        return perf_counter() - start

    return run


def best(cases: dict[str, Callable[[], float]], runs: int = RUNS) -> dict[str, float]:
    """The least seconds of each case; cases take turns. The first round compiles and does not count."""
    for run in cases.values():
        run()
    rounds = [{name: run() for name, run in cases.items()} for _ in range(runs)]
    return {name: min(r[name] for r in rounds) for name in cases}


def generators(rng: np.random.Generator) -> list[Result]:
    """For n = 10, 100, 1,000 streams, and 100,000 sources in 100 groups against 100 equal streams."""
    deviation = rng.integers(0, 1_000, 100_000)
    chosen = choose_groups(Profile.of(deviation), 100)
    grouped = group_population(DistributedSensors.of(deviation, latency=[40]), chosen.group, timeout=10**9)
    cases = {f"n{n}": generator_run(single_pairs(n, rng), batches(n, rng)) for n in (10, 100, 1_000)}
    many = batches(100_000, rng)
    few = [(chosen.group[streams], times, clocks) for streams, times, clocks in many]
    cases |= {"groups": generator_run(grouped, many), "n100.same": generator_run(grouped.bounds, few)}
    seconds = best(cases)
    per = {name: s / (BATCH * BATCHES) for name, s in seconds.items()}
    alone = best({"alone": single_run(single_pairs(10, rng), 2_000)}, 3)["alone"] / 2_000
    return [
        {"name": "heartbeat.n10.arrivals_per_s", "value": 1 / per["n10"], "unit": "1/s", "floor": 5e6},
        {"name": "heartbeat.n10.ns", "value": per["n10"] * 1e9, "unit": "ns"},
        {"name": "heartbeat.n100.ns", "value": per["n100"] * 1e9, "unit": "ns"},
        {"name": "heartbeat.n1000.ns", "value": per["n1000"] * 1e9, "unit": "ns"},
        {"name": "heartbeat.groups.ns", "value": per["groups"] * 1e9, "unit": "ns"},
        {
            "name": "heartbeat.groups.vs_n100",
            "value": per["groups"] / per["n100.same"],
            "unit": "×",
            "ceiling": 1.25,
        },
        {"name": "heartbeat.n10.alone.us", "value": alone * 1e6, "unit": "µs"},
    ]


def estimators(rng: np.random.Generator) -> list[Result]:
    """Ten streams, t_max = 100: §6.1, Figure 4, and the quantile."""
    names = [f"s{k}" for k in range(10)]
    load = [(s[:1_000], x[:1_000], c[:1_000]) for s, x, c in batches(10, rng)]
    cases = {
        "plain": observe_run(lambda: SkewEstimator(names, 100, tick=50), load),
        "adaptive": observe_run(
            lambda: SkewEstimator(names, 100, tick=50, adaptivity=Adaptivity(100, 0.5)),
            load,
        ),
        "quantile": observe_run(lambda: QuantileEstimator(names), load),
    }
    per = {name: s / (1_000 * BATCHES) for name, s in best(cases).items()}
    return [{"name": f"estimation.t100.{k}.ns", "value": s * 1e9, "unit": "ns"} for k, s in per.items()]


def main() -> int:
    rng = np.random.default_rng(1)
    return 0 if write(OUT / "time.json", [*generators(rng), *estimators(rng)]) else 1


if __name__ == "__main__":
    sys.exit(main())
