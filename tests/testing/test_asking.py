"""`ask` answers as the engine does, and is held to the oracle."""

from __future__ import annotations

import pytest

from headrace.errors import SqlError
from headrace.testing import asking, oracle
from headrace.testing.asking import ask

STREAM = "CREATE STREAM s (v BIGINT); "


def test_rows_in_answers_out() -> None:
    assert ask(STREAM + "SELECT v + 1 AS w FROM s WHERE v > 1", s=[(1, 1), (2, 2), (3, None)]) == [(2, 3)]
    assert ask(STREAM + "SELECT v FROM s") == []
    assert ask(STREAM + "DSTREAM(SELECT v FROM s [RANGE 7])", ticks_per_second=None, s=[(1, 5)]) == [(8, 5)]


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(SqlError, match="HR-Q011"):
        ask(STREAM + "SELECT w FROM s")


def test_an_answer_that_the_oracle_does_not_give_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking.oracle, "stream", lambda plan, sources: [(1, (99,))])
    assert oracle.stream is asking.oracle.stream
    with pytest.raises(AssertionError, match="differ"):
        ask(STREAM + "SELECT v FROM s", s=[(1, 1)])
