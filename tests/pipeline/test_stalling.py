"""Theorem 3.3 in pipeline files: a warning where rows could wait forever, naming the pair of streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.check import describe
from headrace.errors import TimeError
from headrace.pipeline import Pipeline, parse
from headrace.pipeline.stalling import stalls
from headrace.time.bounds import Bounds, ensure_progress, timeout_needed

TEXT = """
[pipeline]
name = "p"
runtime = "embedded"
checkpoint = "state"
[streams.a]
source = {{ path = "a.csv", follow = {follow} }}
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = {a}
[streams.b]
source = {{ path = "b.csv", follow = {follow} }}
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = {b}
{skew}
[[queries]]
name = "q"
sql = "{sql}"
sink = "q.jsonl"
"""
BOTH = "SELECT k FROM a UNION ALL SELECT k FROM b"


def pipeline(a: str, b: str, skew: str = "", sql: str = BOTH, follow: str = "true") -> Pipeline:
    return parse(TEXT.format(a=a, b=b, skew=skew, sql=sql, follow=follow))


def skewed(*pairs: tuple[str, str, str, str]) -> str:
    tables = (f'{{ of = "{a}", on = "{b}", pairs = [["{t}", "{d}"]] }}' for a, b, t, d in pairs)
    return f"[skew]\nbounds = [{', '.join(tables)}]"


WARNED = {
    "nothing between them": (
        pipeline('{ disorder = "5 s" }', '{ latency = "1 s" }'),
        "rows of b wait as long as a is silent: nothing bounds how far a may lag behind b",
    ),
    "one way only": (
        pipeline("{}", '{ disorder = "5 s" }', skewed(("a", "b", "1 s", "0 s"))),
        "rows of b wait as long as a is silent",
    ),
    "estimates": (
        pipeline("{ estimate = true }", "{ estimate = true }"),
        "rows of b wait as long as a is silent",
    ),
    "a pause of all": (
        pipeline("{}", "{}", skewed(("a", "b", "1 s", "2 s"), ("b", "a", "1 s", "20 s"))),
        "when all streams pause, b's rows of the last 20 s wait until the next row of a",
    ),
    "one stream": (
        pipeline('{ disorder = "5 s" }', "{}", sql="SELECT k FROM a"),
        "when a pauses, its rows of the last 5 s wait until the next row of a",
    ),
    "slack": (
        pipeline('{ slack = "5 rows" }', "{}", sql="SELECT k FROM a"),
        "when a pauses, its newest rows wait until the next row of a",
    ),
    "learned together": (
        pipeline("{}", "{}", '[skew]\nestimate = { horizon = "10 s" }'),
        "when all streams pause, b's newest rows wait until the next row of a",
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_bounds_that_cannot_prove_progress_are_named(name: str) -> None:
    found, said = WARNED[name]
    (warning,) = [each for each in found.warnings if "query q:" in each]
    assert said in warning
    assert "or a timeout under [skew]" in warning


QUIET = {
    "the clock": pipeline('{ latency = "5 s" }', '{ skew = "1 s" }'),
    "a timeout": pipeline("{}", "{}", '[skew]\ntimeout = "1 min"'),
    "files that end": pipeline("{}", "{}", follow="false"),
    "δ = 0 both ways": pipeline("{}", "{}", skewed(("a", "b", "1 s", "0 s"), ("b", "a", "1 s", "0 s"))),
}


@pytest.mark.parametrize("name", QUIET)
def test_bounds_that_prove_progress_are_not_warned_about(name: str) -> None:
    assert not any("query q:" in each for each in QUIET[name].warnings)


def test_on_spark_a_file_beside_a_stream_that_goes_on_does_not_end() -> None:
    text = TEXT.format(a="{}", b='{ latency = "1 s" }', skew="", sql=BOTH, follow="true")
    text = text.replace('"a.csv", follow = true', '"a.csv"').replace('"embedded"', '"spark"')
    assert any("rows of b wait as long as a is silent" in each for each in parse(text).warnings)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("ab"), st.integers(0, 2)), max_size=4))
def test_there_is_a_warning_exactly_where_the_theorem_asks_for_a_timeout(
    drawn: list[tuple[str, str, int]],
) -> None:
    found = pipeline("{}", "{}", skewed(*((a, b, "1 s", f"{delta} s") for a, b, delta in drawn)))
    bounds = found.declared.bounds()
    closed = Bounds(bounds.skew.closure(), bounds.latency).closed()
    missing = set("ab") - set(closed.streams)
    needed = timeout_needed(closed.skew) or bool(missing)
    assert bool(stalls(found)) == needed
    if needed and not missing:
        with pytest.raises(TimeError):
            ensure_progress(closed)


def test_check_shows_the_bounds_and_the_warning() -> None:
    text = describe(pipeline('{ slack = "1 rows", transit = "2 s" }\nidle = "none"', '{ skew = "3 s" }'))
    assert "stream a: a.csv, external time in at, transit 2 s, slack 1 row, idle: none" in text
    assert "stream b: b.csv, external time in at, skew 3 s" in text
    assert "warning: query q: rows of b wait as long as a is silent" in text
