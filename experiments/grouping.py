"""§5.2 of Srivastava & Widom, the open problem: which sources to group."""

from __future__ import annotations

import numpy as np

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.arrays import Ints
from headrace.time.choosing import Profile, choose_groups
from headrace.time.grouping import group_population
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.systems import DistributedSensors

AT = 8
COUNTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 400)


def sensors(count: int) -> DistributedSensors:
    """§4.2: clocks off by up to 1 ms … 1 s, networks of 5 ms … 0.5 s, each independent of the other."""
    rng = np.random.default_rng(31)
    deviation, latency = (
        np.exp(rng.uniform(np.log(low), np.log(high), count)) for low, high in ((1, 1_000), (5, 500))
    )
    return DistributedSensors.of(deviation.astype(np.int64), latency.astype(np.int64))


def mean_delay(population: DistributedSensors, group: Ints, seconds: int) -> float:
    """How far heartbeats are behind the clock, in ms, over all sources and instants, as rows arrive."""
    count = len(population.latency)
    generator = HeartbeatGenerator(group_population(population, group, timeout=10**9), close=False)
    sources, times, clocks = _arrivals(population, count * seconds * 10, seconds)
    behind = []
    for now in range(2_000, seconds * 1_000, 100):
        due = slice(*np.searchsorted(clocks, (now - 100, now)))
        generator.arrive(sources[due], times[due], clocks[due])
        behind.append(float((now - generator.heartbeats(now)).mean()))
    return float(np.mean(behind[10:]))


def _arrivals(population: DistributedSensors, rows: int, seconds: int) -> tuple[Ints, Ints, Ints]:
    """Rows of random sources, in order of arrival: source, time on its own clock, instant."""
    rng = np.random.default_rng(32)
    sent = np.sort(rng.integers(0, seconds * 1_000, rows))
    sources = rng.integers(0, len(population.latency), rows)
    wrong = rng.uniform(-0.5, 0.5, rows) * population.deviation[sources]
    late = rng.uniform(0, 1, rows) * population.latency[sources]
    arrived = sent + late.astype(np.int64)
    order = np.argsort(arrived, kind="stable")
    return sources[order], (sent + wrong.astype(np.int64))[order], arrived[order]


def random_groups(count: int, groups: int, seed: int) -> Ints:
    """Every source in any group, none empty."""
    rng = np.random.default_rng(seed)
    group = np.concatenate((np.arange(groups), rng.integers(0, groups, count - groups)))
    return rng.permutation(group).astype(np.int64)


def run(conditions: Conditions) -> Result:
    """Heartbeat delay with 1, 2, 4, … groups, chosen and random."""
    count = conditions.of(60, 400, 1_000)
    seconds = conditions.of(5, 8, 20)
    counts = [m for m in (*COUNTS, count) if m <= count]
    population = sensors(count)
    profile = Profile.of(population.deviation, population.latency)
    alone = mean_delay(population, np.arange(count), seconds)
    made = {m: choose_groups(profile, m) for m in counts}
    chosen = [mean_delay(population, made[m].group, seconds) for m in counts]
    predicted = [alone + made[m].extra for m in counts]
    random = [
        float(np.mean([mean_delay(population, random_groups(count, m, seed), seconds) for seed in range(3)]))
        for m in counts
    ]
    at = counts.index(AT)
    extra = (chosen[at] - alone) / (random[at] - alone)
    lines = [
        Line("random", counts, random),
        Line("chosen", counts, chosen),
        Line("chosen, as foretold", counts, predicted, "analytic"),
        Line("one heartbeat per source", counts, [alone] * len(counts), "flat"),
    ]
    x, y = "Number of groups", "Heartbeat delay (ms)"
    return Result(
        [
            Measure("grouping.alone_ms", alone, "ms"),
            Measure(f"grouping.chosen_{AT}_ms", chosen[at], "ms"),
            Measure(f"grouping.random_{AT}_ms", random[at], "ms"),
            Measure("grouping.one_ms", chosen[0], "ms"),
            Measure("grouping.chosen_over_random_extra", extra, "×", ceiling=0.5, paper="open problem"),
        ],
        [Panel(f"{count} sources", x, y, lines, "log", from_zero=True)],
        f"{AT} chosen groups of {count} sources delay heartbeats by {chosen[at] - alone:.0f} ms, random ones "
        f"by {random[at] - alone:.0f} ms",
    )


EXPERIMENT = Experiment(
    name="grouping",
    figure="Srivastava & Widom, §5.2",
    claim="one heartbeat for a group of similar sources costs little delay; how to choose the groups is left "
    "open",
    method="sensors with clocks off by 1 ms to 1 s and latencies of 5 to 500 ms; how far the heartbeat of "
    "each source's group is behind the clock, averaged over sources and instants while rows arrive; random "
    "groupings are the mean of three; in the streams' own time, so service times do not count",
    run=run,
)
