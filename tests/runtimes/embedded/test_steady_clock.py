"""A wall clock that leaps makes no row late, unless it stays where it leapt to."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.time.clock import LASTING, STEP, SteadyClock

HOUR = 3_600_000_000
BASE = 1_700_000_000_000_000


class Wild:
    """A machine's clock that is set by hand, and one that is not."""

    def __init__(self) -> None:
        self.passed, self.offset = 0, 0

    def now(self) -> int:
        return BASE + self.passed + self.offset

    def monotonic(self) -> int:
        return self.passed


def test_a_leap_that_comes_back_is_not_followed_and_said() -> None:
    said: list[str] = []
    wild = Wild()
    clock = SteadyClock(wild, said.append)
    assert clock.now() == BASE
    for wild.offset in (HOUR, 50 * 365 * 24 * HOUR, 30 * STEP):
        wild.passed += STEP
        assert clock.now() == BASE + wild.passed
    wild.offset = 0
    wild.passed += STEP
    assert clock.now() == BASE + wild.passed
    assert len(said) == 4
    assert said[0] == "the system clock jumped by +3,600 s; the jump is ignored unless it lasts for a minute"
    assert "jumped back" in said[-1]


def test_a_leap_that_lasts_is_followed() -> None:
    wild = Wild()
    clock = SteadyClock(wild)
    clock.now()
    wild.offset = HOUR
    clock.now()
    wild.passed += LASTING
    assert clock.now() == wild.now()


def test_a_clock_that_is_set_back_is_waited_for() -> None:
    wild = Wild()
    clock = SteadyClock(wild)
    first = clock.now()
    wild.offset = -2 * LASTING
    for _ in range(4):
        wild.passed += LASTING // 2
        assert clock.now() == first
    wild.passed += STEP
    assert clock.now() == wild.now() == first + STEP


@given(st.lists(st.tuples(st.integers(0, 20 * STEP), st.sampled_from([0, HOUR, -HOUR, 2 * STEP, STEP // 2]))))
def test_a_run_is_never_ahead_of_the_true_time_by_a_leap_that_did_not_last(
    moves: list[tuple[int, int]],
) -> None:
    wild = Wild()
    clock = SteadyClock(wild)
    found = [clock.now()]
    for passed, offset in moves:
        wild.passed, wild.offset = wild.passed + min(passed, LASTING // (len(moves) + 1)), offset
        found.append(clock.now())
        assert found[-1] <= BASE + wild.passed + STEP
    assert all(a <= b for a, b in pairwise(found))
