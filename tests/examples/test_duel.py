"""The demonstration tells the truth: what it shows is what the engine and the oracle say."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from typing import Any

import pytest

from examples.auction import STREAMS, Stream
from examples.duel.__main__ import main
from examples.duel.engines import BEHIND, QUERIES, STEP, Duel, Runner, queries
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

MINUTES = 5


@pytest.fixture(scope="module")
def shown() -> tuple[Duel, str]:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        duel = main(MINUTES)
    return duel, text.getvalue()


@pytest.fixture(scope="module")
def duel(shown: tuple[Duel, str]) -> Duel:
    return shown[0]


def events(runner: Runner, name: str) -> list[Any]:
    return [(answer.time, answer.row) for answer in runner.answers[name]]


def accepted(stream: Stream, apart: Counter[tuple[Any, ...]]) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a stream that were neither late nor rejected, in order of arrival."""
    kept = []
    for time, row in zip(stream.times.to_pylist(), stream.rows.to_pylist(), strict=True):
        if apart[tuple(row.values())]:
            apart[tuple(row.values())] -= 1
        else:
            kept.append((time, row))
    return kept


@pytest.mark.parametrize("name", QUERIES)
def test_with_and_without_ets_the_answers_are_the_oracles(duel: Duel, name: str) -> None:
    late = [row for _, each in duel.prompt.late for row in each.rows.to_pylist()]
    rejected = [row for each in duel.prompt.rejected if each.rows for row in each.rows.to_pylist()]
    apart = {"bids": Counter(tuple(row.values()) for row in late + rejected)}
    sources = {s: accepted(duel.auction.streams[s], apart.get(s, Counter())) for s in STREAMS}
    plan = next(each.plan for each in queries() if each.name == name)
    expected = oracle.stream(plan, sources)
    assert expected
    assert_same_stream(events(duel.prompt, name), expected)
    assert_same_stream(events(duel.silent, name), expected)


def test_every_row_is_processed_late_or_rejected(duel: Duel) -> None:
    for runner in (duel.prompt, duel.silent):
        sources = runner.engine.metrics().sources
        for name, s in sources.items():
            assert s.rows_in == len(duel.auction.streams[name])
            assert s.rows_in == s.rows_processed + s.rows_late + s.rows_rejected
        assert (sources["bids"].rows_late, sources["bids"].rows_rejected) == (4, 2)
        assert {each.code for each in runner.rejected} == {"HR-R001", "HR-R002"}


def test_only_the_silent_streams_hold_answers_back(duel: Duel) -> None:
    worst = {
        runner.name: {q: max(a.delay for a in runner.answers[q] if a.out < duel.auction.end) for q in QUERIES}
        for runner in (duel.prompt, duel.silent)
    }
    soon = BEHIND["bids"] + STEP
    assert all(delay <= soon for delay in worst["on demand"].values())
    assert worst["none"]["highest"] <= soon
    assert worst["none"]["log"] > 10 * soon
    before_the_end = [a for a in duel.silent.answers["sold"] if a.out < duel.auction.end]
    assert len(before_the_end) < len(duel.silent.answers["sold"])


def test_the_text_fits_a_terminal_and_shows_what_was_held_back(shown: tuple[Duel, str]) -> None:
    _, text = shown
    assert max(map(len, text.splitlines())) <= 80
    assert "of them held back" in text
    assert "exactly the same answers" in " ".join(text.split())
    assert "DFS(auto)-Sink" in text
