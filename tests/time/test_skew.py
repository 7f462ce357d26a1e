"""Matrices, closure, Theorem 3.3, and the worked examples of the paper."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TimeError
from headrace.time.bounds import NEVER, Bounds, ensure_progress, timeout_needed, unbounded
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.systems import DistributedSensors, GlobalCounter
from headrace.time.timestamp import MIN_TIME
from tests.time.simulation import bounds, emit, seeds


def naive_closure(skew: SkewMatrix) -> dict[tuple[int, int], set[Pair]]:
    """Every path up to length n, composed step by step, redundant pairs removed at the end."""
    n = skew.size
    direct = {(i, j): set(skew.entry(i, j)) for i in range(n) for j in range(n)}
    paths = {at: set(pairs) for at, pairs in direct.items()}
    for _ in range(n):
        longer = {at: set(pairs) for at, pairs in paths.items()}
        for i, k, j in itertools.product(range(n), repeat=3):
            for p, q in itertools.product(paths[i, k], direct[k, j]):
                if not p.n:
                    longer[i, j].add(Pair(p.t + q.t, p.delta + q.delta, q.n))
        paths = {at: nonredundant(pairs) for at, pairs in longer.items()}
    return {at: nonredundant(pairs) for at, pairs in paths.items()}


def nonredundant(pairs: set[Pair]) -> set[Pair]:
    return {
        p
        for p in pairs
        if not any(q != p and q.t <= p.t and q.n <= p.n and q.delta <= p.delta for q in pairs)
    }


@given(bounds())
def test_the_closure_holds_every_path_and_no_redundant_pair(declared: Bounds) -> None:
    closure, naive = declared.skew.closure(), naive_closure(declared.skew)
    n = closure.size
    assert {(i, j): set(closure.entry(i, j)) for i in range(n) for j in range(n)} == naive


@given(bounds())
def test_the_closure_is_idempotent_and_recognised_with_one_multiplication(declared: Bounds) -> None:
    closure = declared.skew.closure()
    assert closure.is_idempotent()
    assert closure.closure() == closure
    assert declared.skew.is_idempotent() == (declared.skew == closure)


@given(
    st.lists(
        st.lists(st.builds(Pair, st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), max_size=4),
        min_size=1,
        max_size=3,
    )
)
def test_bounds_of_streams_on_themselves_are_their_own_closure(own: list[list[Pair]]) -> None:
    names = [str(i) for i in range(len(own))]
    skew = SkewMatrix.of(names, {(name, name): pairs for name, pairs in zip(names, own, strict=True)})
    assert skew.closure() == skew == skew.product(skew)


@given(st.lists(st.builds(Pair, st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)), max_size=9))
def test_a_matrix_keeps_exactly_the_non_redundant_pairs(pairs: list[Pair]) -> None:
    assert set(SkewMatrix.of(["a"], {("a", "a"): pairs})["a", "a"]) == nonredundant(set(pairs))


def test_section_3_1_duplicates_need_both_tuple_based_pairs() -> None:
    k = 3

    def heartbeats(pairs: list[Pair], times: list[int]) -> list[int]:
        generator = HeartbeatGenerator(Bounds.of(SkewMatrix.of(["s"], {("s", "s"): pairs}), 0, NEVER))
        seen = []
        for clock, time in enumerate(times):
            generator.arrive([0], [time], clock)
            seen.append(generator.heartbeat(clock))
        return seen

    times = [7, 7, 7, 7, 8]
    assert heartbeats([Pair.tuples(0, 1)], times) == [6, 6, 6, 6, 7]
    assert heartbeats([Pair.tuples(k, 0)], times) == [MIN_TIME, MIN_TIME, MIN_TIME, 7, 7]
    assert heartbeats([Pair.tuples(0, 1), Pair.tuples(k, 0)], times) == [6, 6, 6, 7, 7]
    assert heartbeats([Pair.tuples(k, 0)], [7, 8, 9]) == [MIN_TIME, MIN_TIME, MIN_TIME]
    assert heartbeats([Pair.tuples(0, 1), Pair.tuples(k, 0)], [7, 8, 9]) == [6, 7, 8]


def three_sources() -> SkewMatrix:
    entries = {("1", "2"): [(1, 1)], ("1", "3"): [(1, 3)], ("2", "3"): [(1, 1)]}
    return SkewMatrix.of(["1", "2", "3"], entries)


def test_section_3_2_three_sources_give_an_indirect_guarantee() -> None:
    closure = three_sources().closure()
    assert closure["1", "3"] == (Pair(1, 3), Pair(2, 2))
    assert not three_sources().is_idempotent()
    latency = {"2": 10, "3": 20}
    direct = HeartbeatGenerator(Bounds.of(three_sources(), latency, NEVER), close=False)
    indirect = HeartbeatGenerator(Bounds.of(three_sources(), latency, NEVER))
    tau, c = 1000, 50
    for generator in (direct, indirect):
        generator.arrive([0], [tau], c)
        assert generator.heartbeats(c + 10)[1] == MIN_TIME
        assert generator.heartbeats(c + 1 + 10)[1] == tau - 1
        assert generator.heartbeats(c + 1 + 20)[2] == tau - 3
    assert direct.heartbeats(c + 2 + 20)[2] == tau - 3
    assert indirect.heartbeats(c + 2 + 20)[2] == tau - 2


def section_3_4(timeout: int | None) -> Bounds:
    entries = {("1", "1"): [(0, 0)], ("1", "2"): [(0, 5)], ("2", "2"): [(0, 0)]}
    return Bounds.of(SkewMatrix.of(["1", "2"], entries), 0, timeout)


def test_section_3_4_a_pause_holds_rows_until_the_timeout() -> None:
    tau = 100
    patient = HeartbeatGenerator(section_3_4(NEVER))
    impatient = HeartbeatGenerator(section_3_4(timeout=30))
    for generator in (patient, impatient):
        generator.arrive([0, 1], [tau, tau - 5], [7, 7])
        assert generator.heartbeats(36).tolist() == [tau, tau - 5]
        assert generator.heartbeat(36) == tau - 5
    assert patient.heartbeat(10**9) == tau - 5
    assert impatient.heartbeats(37).tolist() == [tau, tau]


def test_a_matrix_with_an_empty_entry_and_no_timeout_is_refused_by_name() -> None:
    with pytest.raises(TimeError) as refused:
        HeartbeatGenerator(section_3_4(None))
    assert (refused.value.code, refused.value.place) == ("HR-T011", "skew (2, 1)")
    assert "timeout" in refused.value.hint
    assert unbounded(section_3_4(None).skew.closure()) == [("2", "1")]


def test_a_matrix_that_needs_a_timeout_and_has_none_is_refused_by_name() -> None:
    skew = SkewMatrix.of(["x", "y"], {(a, b): [(0, 4 * (a != b))] for a in "xy" for b in "xy"})
    with pytest.raises(TimeError) as refused:
        HeartbeatGenerator(Bounds.of(skew))
    assert (refused.value.code, refused.value.place) == ("HR-T010", "skew (x, y)")
    assert "timeout" in refused.value.hint


@given(bounds(), seeds)
def test_theorem_3_3_no_timeout_needed_means_every_row_is_released(
    declared: Bounds, rng: np.random.Generator
) -> None:
    names = declared.streams
    entries = {(a, b): [*declared.skew[a, b], Pair(3, 0)] for a in names for b in names}
    complete = Bounds(SkewMatrix.of(names, entries), declared.latency)
    assert not timeout_needed(complete.closed().skew)
    arrivals = emit(complete.closed(), rng, 20)
    generator = HeartbeatGenerator(complete)
    generator.arrive(arrivals.streams, arrivals.times, arrivals.clocks)
    assert generator.heartbeat(int(arrivals.clocks[-1]) + complete.horizon()) == arrivals.times.max()


@given(bounds())
def test_theorem_3_3_a_timeout_needed_means_some_row_can_wait_for_ever(declared: Bounds) -> None:
    closed = declared.closed().skew
    if not timeout_needed(closed):
        ensure_progress(Bounds(closed, declared.latency))
        return
    with pytest.raises(TimeError):
        ensure_progress(Bounds(closed, declared.latency))
    i = int(np.argwhere(closed.tightest() != 0)[0][0])
    generator = HeartbeatGenerator(Bounds(declared.skew, declared.latency, NEVER))
    generator.arrive([i], [1000], 0)
    assert generator.heartbeat(10**6) < 1000


def test_section_4_1_a_global_counter_needs_no_timeout() -> None:
    counter = GlobalCounter.of(fastest=[2, 1, 8], slowest=[6, 9, 8])
    skew = counter.skew(["1", "2", "3"])
    assert skew["1", "2"] == (Pair.tuples(1, 0), Pair(9 - 2, 0))
    assert skew["2", "1"] == (Pair.tuples(1, 0), Pair(6 - 1, 0))
    assert skew["3", "1"] == (Pair(0, 0),)
    assert skew["1", "1"] == (Pair(0, 0),)
    assert not timeout_needed(skew.closure())
    generator = HeartbeatGenerator(Bounds.of(skew))
    generator.arrive([0], [41], 100)
    assert generator.heartbeats(100).tolist() == [41, MIN_TIME, MIN_TIME]
    generator.arrive([1], [40], 101)
    assert generator.heartbeats(101).tolist() == [41, 41, MIN_TIME]
    assert generator.heartbeats(106).tolist() == [41, 41, 41]


def test_section_4_1_a_waiting_token_never_violates_a_heartbeat() -> None:
    rng = np.random.default_rng(3)
    fastest, slowest = np.array([1, 2, 5]), np.array([4, 9, 7])
    free, held, rows = [0, 0, 0], [None, None, None], []
    token = 0
    for now in range(400):
        for k in range(3):
            if held[k] is not None and held[k][1] == now:
                rows.append((k, held[k][0], now))
                held[k] = None
                free[k] = now + int(rng.integers(0, 3))
            if held[k] is None and free[k] <= now:
                token += 1
                held[k] = (token, now + int(rng.integers(fastest[k], slowest[k] + 1)))
    generator = HeartbeatGenerator(Bounds.of(GlobalCounter.of(fastest, slowest).skew(["1", "2", "3"])))
    promised, now = np.full(3, MIN_TIME), -1
    for now, group in itertools.groupby(rows, key=lambda row: row[2]):
        for stream, time, clock in group:
            assert time > promised[stream]
            generator.arrive([stream], [time], clock)
        promised = generator.heartbeats(now)
    assert generator.heartbeat(now + 20) == max(row[1] for row in rows)


def test_section_4_2_sensors_need_a_timeout_unless_their_clocks_have_a_minimum_rate() -> None:
    plain = DistributedSensors.of(deviation=[3, 10])
    skew = plain.skew(["1", "2"])
    assert skew["1", "2"] == skew["2", "1"] == (Pair(0, 13),)
    assert (skew["1", "1"], skew["2", "2"]) == ((Pair(0, 3),), (Pair(0, 10),))
    assert skew.is_idempotent()
    assert timeout_needed(skew)
    rated = DistributedSensors.of(deviation=[3, 10], rate=[2, 5]).skew(["1", "2"])
    assert rated["1", "2"] == (Pair(0, 13), Pair(3, 0))
    assert rated["2", "1"] == (Pair(0, 13), Pair(7, 0))
    assert rated["2", "2"] == (Pair(0, 10), Pair(2, 0))
    assert not timeout_needed(rated.closure())
    assert HeartbeatGenerator(Bounds.of(rated)).next_change(0) is None


def test_a_silent_middle_source_shows_that_closure_speaks_of_clocks_not_of_tuples() -> None:
    """By tuples alone 2 and 3 break no bound of §3.2 here; the closure's heartbeat presumes that source 2,
    silent as it is, keeps its bound too."""
    direct = HeartbeatGenerator(Bounds.of(three_sources(), 0, NEVER), close=False)
    direct.arrive([0], [10], 0)
    assert direct.heartbeats(3)[2] == 7 < 8
    closed = HeartbeatGenerator(Bounds.of(three_sources(), 0, NEVER))
    closed.arrive([0], [10], 0)
    assert closed.heartbeats(3)[2] == 8


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: Pair(-1, 0), "HR-T001"),
        (lambda: SkewMatrix.of(["a"], {("a", "b"): [(0, 0)]}), "HR-T002"),
        (lambda: SkewMatrix.of(["a", "a"], {}), "HR-T003"),
        (lambda: Bounds.of(SkewMatrix.of(["a"], {}), [1, 2]), "HR-T004"),
        (lambda: Bounds.of(SkewMatrix.of(["a"], {}), -1), "HR-T004"),
        (lambda: Bounds.of(SkewMatrix.of(["a"], {}), {"b": 1}), "HR-T002"),
        (lambda: Bounds.of(SkewMatrix.of(["a"], {}), 0, -1), "HR-T005"),
        (lambda: GlobalCounter.of([5], [4]), "HR-T006"),
        (lambda: DistributedSensors.of([5], rate=[0]), "HR-T006"),
    ],
)
def test_what_cannot_be_a_bound_is_refused_with_its_code(make: object, code: str) -> None:
    with pytest.raises(TimeError) as refused:
        make()  # type: ignore[operator]
    assert refused.value.code == code
    assert refused.value.hint
