"""Interleavings push every row once, in its stream's order, and their clock never lies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import schemas
from tests.strategies.interleavings import Step, at_random, batch_of, interleavings, skew_needed

SCHEMA = pa.schema([("k", pa.int64())])
STREAMS = st.dictionaries(st.sampled_from("xyz"), schemas.rows(SCHEMA, 12), min_size=1)


@st.composite
def interleaved(draw: st.DrawFn, lag: int = 0) -> tuple[dict[str, schemas.Rows], list[Step]]:
    streams = draw(STREAMS)
    batches = {name: batch_of(rows, SCHEMA) for name, rows in streams.items()}
    return streams, interleavings(
        batches, at_random(np.random.default_rng(draw(st.integers(0, 99)))), lag=lag
    )


def pushed(steps: list[Step], name: str) -> list[tuple[int, dict[str, object]]]:
    batches = [step[2] for step in steps if step[0] == "push" and step[1] == name]
    return [(int(t), row) for b in batches for t, row in zip(b.start, b.data.to_pylist(), strict=True)]


@given(interleaved())
def test_each_stream_is_pushed_whole_in_its_order_then_ended_once(
    case: tuple[dict[str, schemas.Rows], list[Step]],
) -> None:
    streams, steps = case
    for name, rows in streams.items():
        assert pushed(steps, name) == rows
        own = [step[0] for step in steps if step[0] != "advance" and step[1] == name]
        assert own == ["push"] * (len(own) - 1) + ["end"]


@given(st.data(), st.integers(0, 5))
def test_the_clock_moves_forward_and_vouches_for_all_that_follows(draw: st.DataObject, lag: int) -> None:
    _, steps = draw.draw(interleaved(lag))
    now = None
    for step in steps:
        if step[0] == "advance":
            assert now is None or step[1] > now
            now = step[1]
        if step[0] == "push":
            assert now is not None
            assert step[2].first > now - lag


@given(interleaved())
def test_the_skew_needed_makes_every_promise_true_and_no_less_would(
    case: tuple[dict[str, schemas.Rows], list[Step]],
) -> None:
    _, steps = case
    delta = skew_needed(steps)
    assert promises_hold(steps, delta)
    assert delta == 0 or not promises_hold(steps, delta - 1)


def promises_hold(steps: list[Step], delta: int) -> bool:
    """Whether no row comes at or before t + (now − arrival of t) − δ, at any instant before it."""
    now = 0
    seen: dict[str, list[tuple[int, int, int]]] = {}
    for step in steps:
        if step[0] == "advance":
            now = step[1]
            seen = {
                name: [(t, since, now) for t, since, _ in past[-1:]] + past for name, past in seen.items()
            }
        elif step[0] == "push":
            _, name, batch = step
            if any(batch.first <= t + (until - since) - delta for t, since, until in seen.get(name, [])):
                return False
            seen.setdefault(name, []).append((batch.last, now, now))
    return True


def test_the_simplest_choice_pushes_each_stream_at_once() -> None:
    rows = [(1, {"k": 1}), (2, {"k": 2})]
    steps = interleavings({"x": batch_of(rows, SCHEMA), "y": batch_of([], SCHEMA)}, lambda n: 0)
    assert [step[:2] for step in steps] == [("advance", 0), ("push", "x"), ("end", "x"), ("end", "y")]
