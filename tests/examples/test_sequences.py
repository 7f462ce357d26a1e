"""The examples of sequences find what the oracle finds, though readings arrive out of step."""

from __future__ import annotations

import pytest

from examples.sequences import CATALOG, QUERIES, main, readings, run
from headrace import query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream


def test_the_examples_find_what_the_oracle_finds() -> None:
    given = readings()
    answers = run(given)
    for name, text in QUERIES.items():
        found = query(text, CATALOG)
        expected = oracle.stream(found.plan, {s: given[s].events for s in given})
        assert len(expected) > 20, name
        assert_same_stream(answers[name], expected, schema=found.schema)


def test_the_examples_print_what_they_found(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    shown = capsys.readouterr().out
    assert all(f"{name}: " in shown for name in QUERIES)
