"""Clocks never go back; the simulated one counts work and skips idleness."""

from __future__ import annotations

import time

from headrace.time.clock import ManualClock, SimulatedClock, SystemClock


def test_the_system_clock_counts_microseconds_and_never_goes_back() -> None:
    clock = SystemClock()
    seen = [clock.now() for _ in range(1000)]
    assert seen == sorted(seen)
    assert abs(seen[-1] - time.time_ns() // 1000) < 60_000_000


def test_a_manual_clock_moves_only_forward() -> None:
    clock = ManualClock(10)
    assert [clock.advance(5), clock.advance(-3), clock.advance_to(12), clock.advance_to(20)] == [
        15,
        15,
        15,
        20,
    ]


def test_the_simulated_clock_jumps_over_gaps_and_counts_work() -> None:
    clock = SimulatedClock(0)
    hour = 3_600_000_000
    assert clock.jump_to(hour) >= hour
    before = clock.now()
    total = sum(i * i for i in range(300_000))
    assert total > 0
    assert clock.now() > before, "work takes its time"
    assert clock.jump_to(0) >= before, "a jump into the past is no jump"
