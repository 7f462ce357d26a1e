"""Estimation against Figure 4 written down naively, its laws, and strategies side by side."""

from __future__ import annotations

import csv
from collections.abc import Callable
from math import floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TimeError
from headrace.time.arrivals import skews
from headrace.time.bounds import NEVER
from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import LearnedHeartbeats
from headrace.time.quantile import BUCKETS, Confidence, QuantileEstimator, bucket, upper
from headrace.time.replay import NeededBounds, Outcome, best_fixed, fixed_outcome, replay, side_by_side, table
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.time.simulation import Arrivals, seeds


def arrivals(rng: np.random.Generator, streams: int = 3, count: int = 60) -> Arrivals:
    """Any arrivals at all: clocks in order, times in disorder."""
    clocks = np.cumsum(rng.integers(0, 7, count))
    times = clocks * 2 - rng.integers(0, 40, count)
    return Arrivals(rng.integers(0, streams, count), times, clocks)


class Figure4:
    """Srivastava & Widom §6.1 and Figure 4, line by line, with all history kept."""

    def __init__(self, n: int, t_max: int, tick: int, adaptivity: Adaptivity | None) -> None:
        self.n, self.t_max, self.tick, self.adaptivity = n, t_max, tick, adaptivity
        cells = [(i, j, t) for i in range(n) for j in range(n) for t in range(t_max + 1)]
        self.delta, self.win, self.num = (dict.fromkeys(cells, 0) for _ in range(3))
        self.since: dict[tuple[int, int, int], int | None] = dict.fromkeys(cells)
        self.log: list[tuple[int, int, int]] = []

    def tau_max(self, i: int, tick: int) -> int | None:
        return max((time for s, time, c in self.log if s == i and c <= tick), default=None)

    def arrive(self, j: int, tau: int, clock: int) -> None:
        c = clock // self.tick
        for i in range(self.n):
            for t in range(self.t_max + 1):
                newest = self.tau_max(i, c - t)
                self.step((i, j, t), 0 if newest is None else max(newest - tau + 1, 0), c)
        self.log.append((j, tau, c))

    def step(self, at: tuple[int, int, int], estimate: int, c: int) -> None:
        if self.adaptivity is None:
            self.delta[at] = max(self.delta[at], estimate)
            return
        if self.since[at] is None:
            self.since[at] = c
        self.num[at] += 1
        window, waited = self.adaptivity.window, self.num[at]
        if self.adaptivity.in_time:
            window, waited = window // self.tick, c - self.since[at]
        if estimate > self.delta[at]:
            self.delta[at], self.win[at], self.num[at], self.since[at] = estimate, 0, 0, c
        else:
            if estimate > self.win[at]:
                self.win[at] = estimate
            if waited > window:
                kept = floor(self.adaptivity.alpha * (self.delta[at] - self.win[at]))
                self.delta[at] = self.win[at] + kept
                self.win[at], self.num[at], self.since[at] = 0, 0, c


alphas = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
adaptivities = st.one_of(
    st.none(),
    st.builds(Adaptivity, st.integers(1, 6), alphas),
    st.builds(Adaptivity, st.integers(1, 60), alphas, in_time=st.just(True)),
)


@given(seeds, st.integers(0, 6), st.integers(1, 5), adaptivities)
def test_estimates_equal_figure_4(
    rng: np.random.Generator, t_max: int, tick: int, adaptivity: Adaptivity | None
) -> None:
    seen, naive = arrivals(rng), Figure4(3, t_max, tick, adaptivity)
    estimator = SkewEstimator(["a", "b", "c"], t_max, tick=tick, adaptivity=adaptivity)
    for part in np.array_split(np.arange(len(seen)), 7):
        estimator.observe(seen.streams[part], seen.times[part], seen.clocks[part])
        for k in part:
            naive.arrive(int(seen.streams[k]), int(seen.times[k]), int(seen.clocks[k]))
        assert all(estimator.delta[at] == value for at, value in naive.delta.items())


@given(seeds, st.integers(0, 5), st.integers(1, 4))
def test_bounds_learned_without_adaptivity_would_have_been_kept(
    rng: np.random.Generator, t_max: int, tick: int
) -> None:
    seen = arrivals(rng)
    estimator = SkewEstimator(["a", "b", "c"], t_max, tick=tick)
    estimator.observe(seen.streams, seen.times, seen.clocks)
    generator = HeartbeatGenerator(estimator.bounds(timeout=NEVER), close=False)
    promised = np.full(3, MIN_TIME)
    for stream, time, clock in seen.rows():
        assert time > promised[stream]
        generator.arrive([stream], [time], clock)
        promised = generator.heartbeats(clock)
    assert (promised > MIN_TIME).any()


@given(seeds, adaptivities)
def test_learned_heartbeats_never_decrease_and_equal_the_rebound_generator(
    rng: np.random.Generator, adaptivity: Adaptivity | None
) -> None:
    seen, names = arrivals(rng), ["a", "b", "c"]
    estimator = SkewEstimator(names, 4, adaptivity=adaptivity)
    learned = LearnedHeartbeats(estimator, NEVER)
    generator = HeartbeatGenerator(SkewEstimator(names, 4).bounds(NEVER), close=False)
    before = np.full(3, MIN_TIME)
    for stream, time, clock in seen.rows():
        learned.arrive([stream], [time], clock)
        generator.arrive([stream], [time], clock)
        generator.rebind(estimator.bounds())
        now = learned.heartbeats(clock)
        assert (now >= before).all()
        assert (now == generator.heartbeats(clock)).all()
        before = now


def test_adaptive_estimates_forget_a_spike_and_others_do_not() -> None:
    steady = np.arange(1, 400)
    times = steady.copy()
    times[50] -= 30
    kinds = {"no": None, "fixed": Adaptivity(20, 0.5), "slow": Adaptivity(20, 1.0)}
    final = {}
    for kind, adaptivity in kinds.items():
        estimator = SkewEstimator(["a"], 0, adaptivity=adaptivity)
        estimator.observe(np.zeros(len(times), dtype=np.int64), times, steady)
        final[kind] = int(estimator.delta[0, 0, 0])
    assert final == {"no": 30, "fixed": 0, "slow": 30}


def test_a_window_in_time_forgets_after_that_time_however_many_rows_come() -> None:
    """One row with a skew of 30, then rows at one rate or ten times as many."""
    fell = {}
    for every in (10, 1):
        clocks = np.arange(0, 2_000, every)
        times = np.where(clocks == 100, 70, clocks)
        estimator = SkewEstimator(["a"], 0, adaptivity=Adaptivity(500, 0.0, in_time=True))
        for time, clock in zip(times, clocks, strict=True):
            estimator.observe([0], [time], [clock])
            if clock > 100 and every not in fell and estimator.delta[0, 0, 0] < 20:
                fell[every] = int(clock)
    assert fell == {10: 610, 1: 601}


def adapted_window(exceeding: bool) -> int:
    rng = np.random.default_rng(0)
    clocks = np.arange(1, 3000)
    noise = rng.integers(0, 100, len(clocks)) if exceeding else np.where(clocks == 2, 2000, 0)
    adaptivity = Adaptivity(
        64, 0.5 if exceeding else 0.99, Adjusting(exceeded=0.01, falling=3, least=8, most=4096)
    )
    estimator = SkewEstimator(["a"], 0, adaptivity=adaptivity)
    estimator.observe(np.zeros(len(clocks), dtype=np.int64), clocks * 2 - noise, clocks)
    return int(estimator.snapshot()["limit"][0, 0, 0])


def test_adaptive_adaptivity_waits_longer_when_exceeded_and_less_when_falling() -> None:
    assert adapted_window(exceeding=True) > 64
    assert adapted_window(exceeding=False) < 64


estimators: list[Callable[[], SkewEstimator | QuantileEstimator]] = [
    lambda: SkewEstimator(["a", "b", "c"], 5, tick=2),
    lambda: SkewEstimator(["a", "b", "c"], 5, adaptivity=Adaptivity(4, 0.5, Adjusting(0.1, 2, 2, 64))),
    lambda: SkewEstimator(["a", "b", "c"], 5, tick=3, adaptivity=Adaptivity(20, 0.5, in_time=True)),
    lambda: QuantileEstimator(["a", "b", "c"], Confidence(0.1, floor=2, ceiling=30)),
    lambda: QuantileEstimator(["a", "b", "c"], Confidence(0.1, half_life=7)),
]


@pytest.mark.parametrize("make", estimators)
@given(rng=seeds, cut=st.integers(0, 60))
def test_a_restored_estimator_goes_on_as_if_nothing_happened(
    make: Callable[[], SkewEstimator], rng: np.random.Generator, cut: int
) -> None:
    seen = arrivals(rng)
    straight, broken = LearnedHeartbeats(make(), 9), LearnedHeartbeats(make(), 9)
    for part in (slice(0, cut), slice(cut, None)):
        snapshot = broken.snapshot()
        broken = LearnedHeartbeats(make(), 9)
        broken.restore(snapshot)
        for learned in (straight, broken):
            learned.arrive(seen.streams[part], seen.times[part], seen.clocks[part])
    end = int(seen.clocks[-1])
    for now in range(end, end + 14):
        assert (straight.heartbeats(now) == broken.heartbeats(now)).all()
    assert straight.heartbeat(end + 20) >= seen.times.max()


@given(seeds)
def test_a_pause_of_all_streams_releases_everything_after_the_timeout(rng: np.random.Generator) -> None:
    seen = arrivals(rng, count=20)
    one, many = (LearnedHeartbeats(SkewEstimator(["a", "b", "c"], 2), 5) for _ in range(2))
    for stream, time, clock in seen.rows():
        one.arrive([stream], [time], clock)
    many.arrive(seen.streams, seen.times, seen.clocks)
    end = int(seen.clocks[-1])
    assert (one.heartbeats(end) == many.heartbeats(end)).all()
    assert one.heartbeat(end + 5) == max(seen.times.max(), one.heartbeat(end + 5))
    assert one.heartbeat(end + 5) >= seen.times.max()


@given(st.lists(st.integers(0, MAX_TIME), min_size=1))
def test_a_bucket_holds_its_values_within_a_64th(values: list[int]) -> None:
    column = np.array(values, dtype=np.int64)
    at = bucket(column)
    assert ((at >= 0) & (at < BUCKETS)).all()
    assert (upper(at) >= column).all()
    assert all(int(u) - v <= v // 64 for u, v in zip(upper(at), values, strict=True))
    assert (np.diff(bucket(np.sort(column))) >= 0).all()


@given(st.lists(st.integers(MIN_TIME + 1, MAX_TIME - 1), min_size=1, max_size=8))
def test_skews_say_how_far_behind_the_greatest_before_and_saturate(times: list[int]) -> None:
    expected = [min(MAX_TIME, max([0, *(x - t + 1 for x in times[:k])])) for k, t in enumerate(times)]
    assert skews(np.array(times, dtype=np.int64), MIN_TIME).tolist() == expected


def test_a_quantile_bound_loses_about_epsilon_between_floor_and_ceiling() -> None:
    rng = np.random.default_rng(7)
    clocks = np.arange(1, 40_001) * 10
    times = clocks - rng.exponential(500, len(clocks)).astype(np.int64)
    streams = rng.integers(0, 2, len(clocks))
    estimator = QuantileEstimator(["a", "b"], Confidence(epsilon=0.01))
    lost = 0
    for part in np.array_split(np.arange(len(clocks)), 400):
        learned_before = estimator.delta[streams[part]]
        newest = times[: part[0]].max(initial=MIN_TIME)
        if part[0] > 4000:
            lost += int((skews(times[part], int(newest)) > learned_before).sum())
        estimator.observe(streams[part], times[part], clocks[part])
    assert 0.005 < lost / 36_000 < 0.015
    for floor_, ceiling, expected in ((10**6, MAX_TIME, 10**6), (0, 50, 50)):
        bounded = QuantileEstimator(["a", "b"], Confidence(0.01, floor_, ceiling))
        bounded.observe(streams, times, clocks)
        assert bounded.delta.tolist() == [expected, expected]


def test_a_stream_with_few_rows_is_judged_by_all_unless_it_is_plainly_later() -> None:
    clocks = np.arange(1, 2001)
    times = clocks * 10 - np.where(clocks % 2, 0, 50)
    streams = np.where(clocks > 1980, 1 + clocks % 2, 0)
    times[streams == 2] -= 5_000
    estimator = QuantileEstimator(["often", "seldom", "late"], Confidence(0.02))
    estimator.observe(streams, times, clocks)
    often, seldom, late = estimator.delta
    assert seldom == often
    assert late > 4_000


def test_the_report_says_which_bound_would_have_lost_no_row_and_some() -> None:
    times = np.arange(10_000) * 100
    behind = np.zeros(10_000, dtype=np.int64)
    behind[1_000:1_005], behind[2_000:2_090] = 90_000, 7_000
    report = NeededBounds(["a", "b"])
    report.observe(np.zeros(10_000, dtype=np.int64), times - behind, np.arange(10_000))
    overall, only = report.report()
    exact = {share: best_fixed(times - behind, int(share * 10_000)) for share in (0.0, 0.001, 0.01)}
    assert overall.bound[0.0] == exact[0.0] == 89_901
    assert exact[0.001] <= overall.bound[0.001] <= exact[0.001] * 65 / 64
    assert exact[0.01] == overall.bound[0.01] == 0
    assert (only.stream, only.rows, only.bound) == ("a", 10_000, overall.bound)
    assert "no row: 89901" in str(overall)
    again = NeededBounds(["a", "b"])
    again.restore(report.snapshot())
    assert again.report() == report.report()


def test_what_cannot_be_estimated_is_refused_with_its_code() -> None:
    for code, make in {
        "HR-T030": lambda: Adaptivity(0, 0.5),
        "HR-T030 a window in time": lambda: Adaptivity(9, 0.5, Adjusting(), in_time=True),
        "HR-T031": lambda: SkewEstimator(["a"], -1),
        "HR-T032": lambda: Confidence(1.5),
        "HR-T005": lambda: LearnedHeartbeats(SkewEstimator(["a"], 1), -1),
    }.items():
        with pytest.raises(TimeError, match=code.partition(" ")[0]):
            make()


def channels(path: Path, rows: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    with (path / "events.csv").open() as file:
        read = [(r["source"], int(r["event_time_ms"])) for r in csv.DictReader(file)]
    names = sorted({source for source, _ in read})
    index = {name: k for k, name in enumerate(names)}
    streams = np.array([index[source] for source, _ in read[:rows]])
    return names, streams, np.array([time for _, time in read[:rows]])


def delayed(streams: np.ndarray, times: np.ndarray, seed: int) -> Arrivals:
    """The same rows over a network: a delay per channel and a heavy-tailed one per row."""
    rng = np.random.default_rng(seed)
    latency = rng.lognormal(6, 1.5, len(times)) + rng.integers(0, 3000, streams.max() + 1)[streams]
    clocks = times + latency.astype(np.int64)
    order = np.argsort(clocks, kind="stable")
    return Arrivals(streams[order], times[order], clocks[order])


def quantile_against_fixed(names: list[str], seen: Arrivals) -> tuple[Outcome, Outcome]:
    learned = LearnedHeartbeats(QuantileEstimator(names, Confidence(0.001)), NEVER)
    mine = replay("quantile", learned, seen.streams, seen.times, seen.clocks)
    return mine, fixed_outcome(best_fixed(seen.times, mine.late), seen.times, seen.clocks)


def test_51_channels_release_99_percent_within_twice_the_best_fixed_bound(
    shared_data: Callable[[str], Path],
) -> None:
    names, streams, times = channels(shared_data("wikipedia-edits"), 39_244)
    assert len(names) == 51
    ordered = Arrivals(streams[:4_000], times[:4_000], times[:4_000])
    for seen in (ordered, delayed(streams, times, 1)):
        mine, fixed = quantile_against_fixed(names, seen)
        assert mine.completeness >= 0.99
        assert fixed.late <= mine.late
        assert 0 <= mine.delay[0.99] <= 2 * fixed.delay[0.99]


def test_strategies_are_compared_side_by_side(shared_data: Callable[[str], Path]) -> None:
    names, streams, times = channels(shared_data("wikipedia-edits"), 4_000)
    seen = delayed(streams, times, 2)
    compared = side_by_side(names, seen.streams, seen.times, seen.clocks, tick=1000, timeout=60_000)
    outcomes = {mine.strategy: mine for mine, _ in compared}
    print(table(compared))
    assert list(outcomes) == ["no adaptivity", "adaptive", "adaptive adaptivity", "quantile"]
    assert all(o.rows == 4_000 and o.completeness > 0.95 for o in outcomes.values())
    assert outcomes["adaptive"].mean_delay < outcomes["no adaptivity"].mean_delay
    assert outcomes["adaptive"].late >= outcomes["no adaptivity"].late
    assert outcomes["quantile"].late < outcomes["no adaptivity"].late


def lost(delays: np.ndarray, epsilon: float, streams: int, rng: np.random.Generator) -> np.ndarray:
    """Which rows are late, each judged by what was promised before it came."""
    sent = np.arange(len(delays)) * 10
    clocks, order = sent + delays, np.argsort(sent + delays, kind="stable")
    names = [f"s{i}" for i in range(streams)]
    learned = LearnedHeartbeats(QuantileEstimator(names, Confidence(epsilon)), NEVER)
    late, of = np.zeros(len(delays), np.bool_), rng.integers(0, streams, len(delays))
    promised = np.full(streams, MIN_TIME)
    for at, piece in enumerate(np.array_split(order, len(order) // 4)):
        late[4 * at : 4 * at + len(piece)] = sent[piece] <= promised[of[piece]]
        learned.arrive(of[piece], sent[piece], np.full(len(piece), clocks[piece].max()))
        promised = learned.heartbeats(int(clocks[piece].max()))
    return late


INDEPENDENT: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential": lambda rng, n: rng.exponential(2000, n),
    "uniform": lambda rng, n: rng.uniform(0, 500, n),
    "log-normal": lambda rng, n: rng.lognormal(6, 1, n),
    "mostly none": lambda rng, n: np.where(rng.random(n) < 0.9, 0, rng.exponential(900, n)),
}


@given(seeds, st.sampled_from(sorted(INDEPENDENT)), st.sampled_from([1, 5]))
def test_the_first_rows_are_never_late(rng: np.random.Generator, kind: str, streams: int) -> None:
    assert not lost(INDEPENDENT[kind](rng, 20).astype(np.int64), 0.02, streams, rng).any()


@pytest.mark.parametrize("streams", [1, 5])
@pytest.mark.parametrize("kind", sorted(INDEPENDENT))
def test_independent_delays_lose_no_more_than_is_allowed_from_the_first_row_on(
    kind: str, streams: int
) -> None:
    """What is promised is the expected loss, so it is judged over several runs: one may lose 14 of 100."""
    rows, epsilon = 2_000, 0.02
    runs = [np.random.default_rng(seed) for seed in range(8)]
    late = [lost(INDEPENDENT[kind](rng, rows).astype(np.int64), epsilon, streams, rng) for rng in runs]
    for begin in (100, 500, rows):
        allowed = epsilon * begin
        assert np.mean([each[:begin].sum() for each in late]) <= allowed + np.sqrt(allowed)


def correlated(rng: np.random.Generator, rows: int) -> np.ndarray:
    steps = rng.normal(size=rows) * np.sqrt(1 - 0.99**2)
    level = np.zeros(rows)
    for i in range(1, rows):
        level[i] = 0.99 * level[i - 1] + steps[i]
    return np.exp(level) * 1000


DEPENDENT: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "drift": lambda rng, n: rng.exponential(500, n) * (1 + np.arange(n) / 1000),
    "regimes": lambda rng, n: rng.exponential(np.where((np.arange(n) // 2000) % 2, 8000, 500)),
    "correlated": correlated,
    "backlogs": lambda rng, n: np.maximum(300 - np.arange(n) % 3000, 0) * 10 + rng.exponential(200, n),
}


@pytest.mark.parametrize(
    ("kind", "most"), [("drift", 1.5), ("regimes", 2.5), ("correlated", 1.4), ("backlogs", 1.0)]
)
@pytest.mark.parametrize("streams", [1, 5])
def test_delays_that_depend_on_each_other_lose_little_more(kind: str, most: float, streams: int) -> None:
    """They lost 1.5 to 4.8 times the loss; see what `headrace.time.quantile` says of such delays."""
    rng = np.random.default_rng(3)
    late = lost(DEPENDENT[kind](rng, 8_000).astype(np.int64), 0.01, streams, rng)
    assert late.mean() <= most * 0.01


@given(seeds, st.sampled_from([0.01, 0.1]))
def test_while_too_much_is_lost_the_bound_is_the_greatest_skew_or_more(
    rng: np.random.Generator, epsilon: float
) -> None:
    """For any arrivals at all: nothing is lost then but what is later than all before, or was promised."""
    estimator = QuantileEstimator(["a"], Confidence(epsilon))
    learned, greatest, late, promised, newest = LearnedHeartbeats(estimator, NEVER), 0, 0, MIN_TIME, MIN_TIME
    clocks = np.cumsum(rng.integers(0, 5, 400))
    times = clocks * 10 - np.where(rng.random(400) < 0.3, rng.integers(0, 3000, 400), 0) * rng.integers(0, 2)
    for rows, (time, clock) in enumerate(zip(times.tolist(), clocks.tolist(), strict=True), 1):
        late += time <= promised
        greatest, newest = max(greatest, newest - time + 1), max(newest, time)
        learned.arrive([0], [time], [clock])
        promised = learned.heartbeat(clock)
        if rows < 20:
            assert promised == MIN_TIME
        elif late > 2 * epsilon * rows + 3 * np.sqrt(epsilon * rows) and rows * epsilon >= 1:
            assert int(estimator.delta[0]) >= greatest
