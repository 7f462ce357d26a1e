"""Groups: never ahead of their members, equal however they are described, and well chosen."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TimeError
from headrace.time.bounds import NEVER, Bounds
from headrace.time.choosing import MatrixDelay, Profile, choices, choose_groups, choose_matrix_groups
from headrace.time.grouping import group_bounds, group_population
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.systems import DistributedSensors, GlobalCounter, SourceClasses
from headrace.time.timestamp import MIN_TIME
from tests.time.simulation import Figure2, bounds, emit, seeds


def grouping(rng: np.random.Generator, n: int) -> np.ndarray:
    m = int(rng.integers(1, n + 1))
    return np.concatenate((np.arange(m), rng.integers(0, m, n - m)))


def time_based(skew: SkewMatrix) -> SkewMatrix:
    t = skew.n == 0
    columns = (skew.source, skew.target, skew.t, skew.n, skew.delta)
    return SkewMatrix.build(skew.streams, *(c[t] for c in columns))


@given(bounds(), seeds)
def test_a_group_is_never_ahead_of_its_members(declared: Bounds, rng: np.random.Generator) -> None:
    closed = declared.closed()
    group = grouping(rng, closed.skew.size)
    alone, grouped = (
        HeartbeatGenerator(declared),
        HeartbeatGenerator(group_bounds(closed, group), close=False),
    )
    arrivals = emit(closed, rng, 25)
    for now in range(int(arrivals.clocks[-1]) + declared.horizon() + 3):
        at = arrivals.clocks == now
        for generator in (alone, grouped):
            generator.arrive(arrivals.streams[at], arrivals.times[at], now)
        members, whole = alone.heartbeats(now), grouped.heartbeats(now)
        assert (whole <= members).all()
        assert (whole == grouped.group_heartbeats(now)[group]).all()


def weakest(skew: SkewMatrix, group: np.ndarray) -> SkewMatrix:
    """B̂ of §5.2 by its definition: at every instant the weakest guarantee of any member on any member."""
    m, last = int(group.max()) + 1, int(skew.t.max(initial=0))
    names = [f"group {k}" for k in range(m)]
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for a, b in itertools.product(range(m), repeat=2):
        entries = [skew.entry(i, j) for i in np.flatnonzero(group == a) for j in np.flatnonzero(group == b)]
        for t in range(last + 1):
            best = [min((p.delta for p in entry if p.t <= t), default=None) for entry in entries]
            if None not in best:
                found.setdefault((names[a], names[b]), []).append((t, max(d for d in best if d is not None)))
    return SkewMatrix.of(names, found)


@given(bounds(counted=False), seeds)
def test_a_group_is_as_far_as_the_papers_join_says(declared: Bounds, rng: np.random.Generator) -> None:
    """Neither later nor earlier than Figure 2 over the weakest guarantees of the members."""
    closed = declared.closed()
    group = rng.permutation(grouping(rng, closed.skew.size))
    generator = HeartbeatGenerator(group_bounds(closed, group), close=False)
    latency = [max(closed.latency[k] for k in np.flatnonzero(group == g)) for g in range(group.max() + 1)]
    figure = Figure2(Bounds.of(weakest(closed.skew, group), latency, closed.timeout))
    for stream, time, clock in emit(closed, rng, 25).rows():
        generator.arrive([stream], [time], clock)
        figure.arrive(int(group[stream]), time, clock)
        assert generator.heartbeats(clock).tolist() == [figure.heartbeats(clock)[g] for g in group]


def test_a_group_stands_where_the_least_of_its_members_has_promised_to_be() -> None:
    skew = SkewMatrix.of(["a", "b", "c"], {})
    generator = HeartbeatGenerator(group_bounds(Bounds.of(skew, 0, NEVER), [1, 1, 0], ["one", "two"]))
    assert (generator.streams, generator.groups) == (("a", "b", "c"), ("one", "two"))
    generator.promise(0, 7)
    assert generator.heartbeats(0).tolist() == [7, MIN_TIME, MIN_TIME]
    generator.promise(1, 5)
    restored = HeartbeatGenerator(group_bounds(Bounds.of(skew, 0, NEVER), [1, 1, 0]))
    restored.restore(generator.snapshot())
    for each in (generator, restored):
        assert each.heartbeats(0).tolist() == [7, 5, MIN_TIME]
        assert each.group_heartbeats(0).tolist() == [MIN_TIME, 5]


@given(bounds(), seeds)
def test_only_streams_that_are_heard_move_a_heartbeat(declared: Bounds, rng: np.random.Generator) -> None:
    declared = replace(declared, timeout=NEVER)
    group = rng.permutation(grouping(rng, declared.skew.size))
    for given_ in (declared, group_bounds(declared.closed(), group)):
        whole, part = HeartbeatGenerator(given_), HeartbeatGenerator(given_)
        own = int(rng.integers(0, len(whole.streams)))
        heard = np.array([name in whole.heard_by([whole.streams[own]]) for name in whole.streams])
        for stream, time, clock in emit(declared.closed(), rng, 25).rows():
            whole.arrive([stream], [time], clock)
            if heard[stream]:
                part.arrive([stream], [time], clock)
            assert whole.heartbeats(clock)[own] == part.heartbeats(clock)[own]


@given(bounds(), seeds)
def test_groups_of_one_are_the_streams_themselves(declared: Bounds, rng: np.random.Generator) -> None:
    grouped = group_bounds(declared, np.arange(declared.skew.size), declared.streams).bounds
    assert grouped.skew == declared.skew
    assert grouped.latency == declared.latency


@given(bounds(counted=False), seeds)
def test_the_join_of_a_closed_matrix_is_closed(declared: Bounds, rng: np.random.Generator) -> None:
    assert group_bounds(declared.closed(), grouping(rng, declared.skew.size)).bounds.skew.is_idempotent()


def test_the_join_is_the_weakest_guarantee_at_each_instant() -> None:
    """S ∪ {(2, 2)} = S⁺ is the paper's example for S = {(1, 2), (3, 1)}."""
    skew = SkewMatrix.of(
        ["a", "b", "c"],
        {
            ("a", "c"): [(1, 2), (3, 1)],
            ("b", "c"): [(0, 9), (2, 0)],
            ("a", "a"): [(0, 0)],
            ("b", "b"): [(0, 0)],
            ("c", "c"): [(0, 0)],
        },
    )
    grouped = group_bounds(Bounds.of(skew, {"a": 4, "b": 7}, 5), [0, 0, 1]).bounds
    assert grouped.skew["group 0", "group 1"] == (Pair(1, 9), Pair(2, 2), Pair(3, 1))
    assert grouped.skew["group 0", "group 0"] == ()
    assert (grouped.latency, grouped.timeout) == ((7, 0), 5)


@given(st.integers(2, 9), seeds)
def test_a_population_groups_as_its_matrix_does_without_making_it(n: int, rng: np.random.Generator) -> None:
    names, group = [f"s{k}" for k in range(n)], grouping(rng, n)
    fastest, latency = rng.integers(0, 9, n), rng.integers(0, 9, n)
    counter = GlobalCounter.of(fastest, fastest + rng.integers(0, 9, n), latency)
    sensors = DistributedSensors.of(rng.integers(0, 20, n), latency)
    for population in (counter, sensors):
        direct = group_bounds(Bounds.of(population.skew(names), latency.tolist()), group).bounds
        compact = group_population(population, group).bounds
        assert compact.skew == time_based(direct.skew)
        assert compact.latency == direct.latency


@given(st.integers(2, 9), seeds)
def test_sensors_with_rates_group_soundly(n: int, rng: np.random.Generator) -> None:
    names, group = [f"s{k}" for k in range(n)], grouping(rng, n)
    sensors = DistributedSensors.of(rng.integers(0, 20, n), rate=rng.integers(1, 5, n))
    exact = group_bounds(Bounds.of(sensors.skew(names)), group).bounds.skew
    compact = group_population(sensors, group).bounds.skew
    both = [
        np.concatenate(c)
        for c in zip(*((m.source, m.target, m.t, m.n, m.delta) for m in (exact, compact)), strict=True)
    ]
    assert SkewMatrix.build(exact.streams, *both) == exact
    assert not (compact.tightest() != 0).any()


@given(st.integers(1, 7), bounds(size=3), seeds)
def test_classes_group_as_their_matrix_does(n: int, kinds: Bounds, rng: np.random.Generator) -> None:
    c = kinds.skew.size
    within = SkewMatrix.of(kinds.streams, {(a, a): [(1, 2), Pair.tuples(2, 1)] for a in kinds.streams})
    classes = SourceClasses(rng.integers(0, c, n), kinds.skew, within, np.zeros(n, dtype=np.int64))
    names, group = [f"s{k}" for k in range(n)], grouping(rng, n)
    direct = group_bounds(Bounds.of(classes.skew(names)), group).bounds.skew
    assert group_population(classes, group).bounds.skew == direct


def partitions(n: int, m: int) -> list[np.ndarray]:
    return [np.array(g) for g in itertools.product(range(m), repeat=n) if max(g) < m]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 3), seeds)
def test_with_one_feature_the_choice_is_the_best_of_all_groupings(
    feature: list[int], m: int, rng: np.random.Generator
) -> None:
    profile = Profile.of(feature, weight=rng.integers(1, 5, len(feature)))
    best = min(profile.extra(g) for g in partitions(len(feature), m))
    assert choose_groups(profile, m).extra == pytest.approx(best)


@given(st.integers(2, 40), seeds)
def test_each_further_group_costs_no_more_and_one_each_nothing(n: int, rng: np.random.Generator) -> None:
    profile = Profile.of(rng.integers(0, 50, n), rng.exponential(10, n))
    costs = [choice.extra for choice in choices(profile, n)]
    assert all(a >= b for a, b in itertools.pairwise(costs))
    assert costs[-1] == pytest.approx(0)
    for choice in choices(profile, n):
        assert choice.extra == pytest.approx(profile.extra(choice.group))


def test_a_hundred_thousand_sources_are_grouped_better_than_at_random() -> None:
    rng = np.random.default_rng(4)
    profile = Profile.of(rng.lognormal(3, 1, 100_000), rng.integers(0, 5, 100_000) * 10)
    chosen = choose_groups(profile, 100)
    at_random = [profile.extra(rng.integers(0, 100, 100_000)) for _ in range(5)]
    assert len(np.unique(chosen.group)) == 100
    assert chosen.extra < 0.1 * min(at_random)


def matrix(rng: np.random.Generator, n: int) -> tuple[Bounds, np.ndarray]:
    """A bound between any two of `n` streams, and their rates."""
    i, j = np.divmod(np.arange(n * n), n)
    zero = np.zeros(n * n, dtype=np.int64)
    skew = SkewMatrix.build(
        [f"s{k}" for k in range(n)], i, j, rng.integers(0, 20, n * n), zero, rng.integers(0, 20, n * n)
    )
    return Bounds.of(skew, rng.integers(0, 30, n).tolist()), rng.exponential(1, n) + 0.01


@given(seeds, st.integers(2, 9), st.integers(1, 4))
def test_no_move_of_one_stream_makes_matrix_groups_better(rng: np.random.Generator, n: int, m: int) -> None:
    declared, rates = matrix(rng, n)
    chosen = choose_matrix_groups(declared, m, rates, sweeps=1000)
    model = MatrixDelay(declared, rates)
    least = model.delay(chosen.group)
    assert chosen.extra == pytest.approx(least - model.delay(np.arange(n)))
    assert least <= model.delay(choose_groups(model.profile(), m).group) + 1e-9
    for stream, group in itertools.product(range(n), range(min(m, n))):
        moved = chosen.group.copy()
        moved[stream] = group
        assert least <= model.delay(moved) + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_matrix_groups_are_better_than_random_ones(seed: int) -> None:
    """Not a law: a choice that no single move improves may by chance be worse than some random one."""
    rng = np.random.default_rng(seed)
    declared, rates = matrix(rng, 9)
    chosen, model = choose_matrix_groups(declared, 3, rates), MatrixDelay(declared, rates)
    alone = model.delay(np.arange(9))
    assert chosen.extra <= np.mean([model.delay(rng.integers(0, 3, 9)) - alone for _ in range(20)])


def test_many_sources_feed_few_heartbeats() -> None:
    rng = np.random.default_rng(5)
    deviation = rng.integers(0, 1000, 100_000)
    chosen = choose_groups(Profile.of(deviation), 100)
    generator = HeartbeatGenerator(
        group_population(DistributedSensors.of(deviation), chosen.group, timeout=10**6)
    )
    sources = rng.integers(0, 100_000, 5_000)
    clocks = np.arange(5_000) * 10
    times = clocks + rng.integers(-deviation[sources], deviation[sources] + 1)
    generator.arrive(sources, times, clocks)
    heartbeats = generator.group_heartbeats(int(clocks[-1]))
    assert len(heartbeats) == 100
    assert heartbeats.max() > heartbeats.min() > clocks[-1] - 2100


def test_a_gap_in_the_group_numbers_is_refused() -> None:
    with pytest.raises(TimeError, match="HR-T040"):
        group_population(DistributedSensors.of([1, 2]), [0, 2])
    with pytest.raises(TimeError, match="HR-T041"):
        group_population(DistributedSensors.of([1, 2]), [0])
