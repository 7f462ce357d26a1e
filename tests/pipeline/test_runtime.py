"""Which runtime runs a file: the one it names, else Spark, else this process where Spark is not installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from headrace.pipeline import parse

TEXT = """
[pipeline]
name = "p"

[streams.s]
source = "in.jsonl"
schema = "k BIGINT, at TIMESTAMP"
time = "at"

[[queries]]
name = "q"
sql = "SELECT k FROM s [NOW]"
sink = "out.jsonl"
"""
NAMED = TEXT.replace('name = "p"', 'name = "p"\nruntime = "{}"')
OF_SPARK = TEXT.replace('source = "in.jsonl"', 'source = { type = "spark", format = "kafka" }')


@pytest.fixture(params=[True, False], ids=["pyspark", "no pyspark"])
def installed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    found = importlib.util.find_spec

    def find(name: str, *more: Any) -> Any:
        return (object() if request.param else None) if name == "pyspark" else found(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    return bool(request.param)


def test_the_default_is_spark_where_it_is_installed_else_embedded_with_a_note(installed: bool) -> None:
    pipeline = parse(TEXT)
    assert pipeline.runtime == ("spark" if installed else "embedded")
    assert any("pyspark is not installed" in each for each in pipeline.warnings) == (not installed)


@pytest.mark.parametrize("named", ["spark", "embedded"])
def test_a_runtime_that_is_named_is_taken(installed: bool, named: str) -> None:
    pipeline = parse(NAMED.format(named))
    assert pipeline.runtime == named
    assert not any("pyspark" in each for each in pipeline.warnings)


def test_what_only_spark_can_read_is_left_to_spark(installed: bool) -> None:
    assert parse(OF_SPARK).runtime == "spark"
