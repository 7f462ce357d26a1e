"""One grammar of durations, wherever one is written."""

from __future__ import annotations

from datetime import timedelta
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.builder.windows import duration
from headrace.errors import HeadraceError, TimeError
from headrace.pipeline.load import parse
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.trees import walk
from headrace.time.durations import TICKS, UNITS, readable, seconds, ticks

MICROS = 1_000_000
STREAM = headrace.StreamDef("s", pa.schema([("ts", pa.timestamp("us", "UTC"))]), time_column="ts")

FILE = """
[pipeline]
name = "p"
runtime = "embedded"
[streams.s]
source = "s.csv"
schema = "ts TIMESTAMP"
time = "ts"
bounds = {{ disorder = "{}" }}
[[queries]]
name = "q"
sql = "SELECT * FROM s"
sink = "out.csv"
"""


def in_cql(text: str) -> int:
    plan: Plan = headrace.query(f"SELECT count(*) AS n FROM s [RANGE {text}]", [STREAM]).plan
    (window,) = [node.spec for node in walk(plan) if hasattr(node, "spec")]
    return int(window.size)


def in_a_file(text: str) -> int:
    lateness = parse(FILE.format(text)).streams["s"].lateness
    assert lateness is not None
    return int(lateness.disorder)


WRITTEN = {
    "5 s": 5 * MICROS,
    "5s": 5 * MICROS,
    "5m": 300 * MICROS,
    "5 minutes": 300 * MICROS,
    "1 hour 30 min": 5400 * MICROS,
    "1h30m": 5400 * MICROS,
    "90d": 90 * 86_400 * MICROS,
    "1.5 seconds": 1_500_000,
    "10 ms": 10_000,
    "10ms": 10_000,
    "250us": 250,
    "1 week": 604_800 * MICROS,
    "200 ticks": 200,
}


@pytest.mark.parametrize("text", sorted(WRITTEN))
def test_a_duration_is_the_same_wherever_it_is_written(text: str) -> None:
    expected = WRITTEN[text]
    assert ticks(text, MICROS) == expected
    assert in_cql(text) == in_cql(duration(text)) == expected
    assert in_a_file(text) == expected
    assert seconds(text) == expected / MICROS


@given(
    st.lists(st.tuples(st.integers(1, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=3),
    st.sampled_from(["", " "]),
)
def test_units_add_up(parts: list[tuple[int, str]], between: str) -> None:
    text = " ".join(f"{amount}{between}{unit.lower()}" for amount, unit in parts)
    total = sum(
        (amount * (UNITS[unit] or Fraction(1, MICROS)) * MICROS for amount, unit in parts), Fraction(0)
    )
    assert ticks(text, MICROS) == total
    assert in_cql(text) == total


def test_other_ways_to_say_it() -> None:
    assert ticks(timedelta(minutes=2), MICROS) == 120 * MICROS
    assert ticks(7, MICROS) == ticks("7", None) == ticks("7 ticks", None) == 7
    assert ticks("0", MICROS) == 0
    assert seconds(2.5) == 2.5


NONE = {
    "": "is not a duration",
    "soon": "is not a duration",
    "5 fortnights": "no unit 'fortnights'",
    "5 months": "no unit 'months'",
    "-5 s": "is not a duration",
    "0.1 us": "is not a whole number of ticks",
    "5": "has no unit",
}


@pytest.mark.parametrize("text", sorted(NONE))
def test_what_is_not_a_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(TimeError, match=NONE[text]) as caught:
        ticks(text, MICROS, "here")
    assert caught.value.code == "HR-T051"
    assert caught.value.hint
    for write in (in_cql, in_a_file):
        with pytest.raises(HeadraceError):
            write(text)


def test_sequence_numbers_know_no_seconds() -> None:
    with pytest.raises(TimeError, match="sequence numbers"):
        ticks("5 s", None)
    assert "TICKS" in TICKS


@pytest.mark.parametrize(
    ("count", "per_second", "shown"),
    [
        (60_000_000, 1_000_000, "60 s"),
        (2_500, 1_000_000, "2.5 ms"),
        (7, 1_000_000, "7 us"),
        (3_600_000_000, 1_000_000, "60 min"),
        (86_400_000_000, 1_000_000, "24 h"),
        (864_000_000_000, 1_000_000, "10 d"),
        (1, None, "1 tick"),
        (60_000_000, None, "60,000,000 ticks"),
    ],
)
def test_ticks_are_shown_in_a_unit_that_people_read(count: int, per_second: int | None, shown: str) -> None:
    assert readable(count, per_second) == shown
    if per_second is not None:
        assert ticks(shown, per_second) == count
