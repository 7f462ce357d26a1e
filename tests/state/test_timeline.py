"""Timelines: a priority queue over arrays."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.state.part import decode, encode
from headrace.state.timeline import Timeline
from headrace.time.timestamp import MAX_TIME

STEPS = st.lists(
    st.lists(st.integers(0, 30), max_size=8) | st.integers(0, 8) | st.sampled_from(["save", "full"]),
    max_size=20,
)


def events(times: list[int], payload: int) -> np.ndarray:
    return np.array([[t, payload] for t in times], np.int64).reshape(-1, 2)


@given(STEPS)
def test_events_come_out_in_order_of_time_and_snapshots_continue(steps: list[list[int] | int | str]) -> None:
    line, copy = Timeline(2), Timeline(2)
    model: list[tuple[int, int]] = []
    now = 0
    copy.apply(line.changes(full=True))
    for payload, step in enumerate(steps):
        if isinstance(step, str):
            copy.apply(decode(encode(line.changes(full=step == "full"))))
            assert sorted(copy.values(1)) == sorted(p for _, p in model)
        elif isinstance(step, list):
            times = [now + 1 + t for t in step]
            line.add(events(times, payload))
            model += [(t, payload) for t in times]
        else:
            now += step
            taken = line.take(now).tolist()
            assert [t for t, _ in taken] == sorted(t for t, _ in taken)
            assert sorted(map(tuple, taken)) == sorted(e for e in model if e[0] <= now)
            model = [e for e in model if e[0] > now]
        assert len(line) == len(model)
        assert line.next() == min((t for t, _ in model), default=MAX_TIME)


def test_what_never_happens_is_not_kept() -> None:
    line = Timeline(2)
    line.add(events([MAX_TIME, 3], 0))
    assert len(line) == 1


def test_changes_that_nobody_snapshots_are_not_remembered() -> None:
    line = Timeline(2)
    line.changes(full=True)
    for t in range(5000):
        line.add(events([t + 1], t))
        line.take(t)
    assert len(line._added) <= 1100
    assert line.bytes() < 10_000
    copy = Timeline(2)
    copy.apply(line.changes(full=False))
    assert copy.take(5000).tolist() == [[5000, 4999]]


def test_remap_renames_payloads_held() -> None:
    line = Timeline(2)
    line.add(events([3, 1], 1))
    line.remap(1, np.array([7, 8]))
    assert line.take(9).tolist() == [[1, 8], [3, 8]]
