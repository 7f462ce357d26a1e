"""The judge of the soak: growth is found under saw teeth, noise and bursts, and none is made up."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline import parse
from tests.soak.judging import BOUNDS, judge, judge_return
from tests.soak.world import PIPELINE, STREAMS

TIMES = np.arange(0.0, 900.0, 5.0)


def judged(name: str, values: np.ndarray, since: float = 300.0) -> bool:
    """Whether a series is called flat, where all the others are."""
    samples = [
        dict.fromkeys(BOUNDS, 0.0) | {"at": at, name: value} for at, value in zip(TIMES, values, strict=True)
    ]
    verdicts = {each.name: each for each in judge(samples, since)}
    assert all(each.flat for other, each in verdicts.items() if other != name)
    return verdicts[name].flat


@given(st.integers(0, 2**32), st.sampled_from(sorted(BOUNDS)), st.integers(12, 90))
def test_saw_teeth_are_flat_and_a_leak_under_them_is_found(seed: int, name: str, period: int) -> None:
    rng, level = np.random.default_rng(seed), 1e8
    allowed = BOUNDS[name].allows(level)
    # A chain of increments grows and is cut; every sample is a little off.
    teeth = level + allowed * (TIMES % period) / period + rng.normal(0, allowed / 20, len(TIMES))
    assert judged(name, teeth)
    assert not judged(name, teeth + TIMES / 600 * 2 * allowed)


@pytest.mark.parametrize("name", BOUNDS)
def test_what_happens_before_it_is_judged_and_single_bursts_do_not_count(name: str) -> None:
    values = np.full(len(TIMES), 1e8)
    values[:60] = np.linspace(0, 1e8, 60)
    values[[80, 81, 140]] *= 5
    assert judged(name, values)
    assert not judged(name, values, since=0.0)


def test_one_more_handle_is_a_leak() -> None:
    assert not judged("handles", 19 + np.floor(TIMES / 290))
    assert judged("handles", 19 + (TIMES % 7 == 0))


def test_shrinking_is_not_growth() -> None:
    assert judged("rss", 3e8 - TIMES * 1e5)


@pytest.mark.parametrize(("kept", "returned"), [(0.0, True), (1e6, True), (9e6, False)])
def test_what_a_burst_took_is_given_back(kept: float, returned: bool) -> None:
    held = np.where(TIMES < 100, 1e6, 1e6 + kept) + np.where((TIMES >= 200) & (TIMES < 300), 2e7, 0)
    rss = np.where(TIMES < 100, 1e8, 2e8)  # freed memory is kept once
    series = zip(TIMES, held, rss, strict=True)
    samples = [{"at": at, "pid": 1, "held": state, "rss": whole} for at, state, whole in series]
    earlier = [{"at": 0.0, "pid": 0, "held": 9e9, "rss": 9e9}]  # of a process that was killed
    bursts = [(100.0, 110.0), (200.0, 210.0)]
    assert [each.flat for each in judge_return(earlier + samples, bursts, 310.0)] == [returned, True]
    growing = [{**each, "rss": each["rss"] + (5e7 if each["at"] > 200 else 0)} for each in samples]
    assert [each.flat for each in judge_return(growing, bursts, 310.0)] == [returned, False]


def test_the_soak_has_a_pipeline() -> None:
    pipeline = parse(PIPELINE.format(port=1, budget="1 MB"))
    assert tuple(pipeline.read) == STREAMS
