"""SEQ in the modes EVERY and DISJOINT: what patterns of steps mean, also as Siddhi's own tests say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from headrace import Catalog, Engine, query
from headrace.errors import SqlError
from headrace.plan.nodes.trees import sources_of
from headrace.sql.catalog import StreamDef
from headrace.sql.place import Code
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

SCHEMA = pa.schema([("symbol", pa.string()), ("price", pa.float32()), ("volume", pa.int32())])
STREAMS = ("Stream1", "Stream2", "Stream3", "EventStream")
CATALOG = Catalog([StreamDef(name, SCHEMA, ticks_per_second=1000) for name in STREAMS])
Events = list[tuple[str, int, list[Any]]]


def asked(text: str, events: Events) -> list[tuple[Any, ...]]:
    """The answers, from the engine and from the oracle."""
    plan = query(text, CATALOG).plan
    engine = Engine()
    engine.add("q", plan)
    given: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for name in {source.name for source in sources_of(plan)}:
        rows = [(time, dict(zip(SCHEMA.names, row, strict=True))) for of, time, row in events if of == name]
        batch = pa.RecordBatch.from_pylist([row for _, row in rows], SCHEMA)
        given[name] = [(time, row) for (time, _), row in zip(rows, batch.to_pylist(), strict=True)]
        if rows:
            engine.push(name, batch, [time for time, _ in rows])
        engine.streams.end(name)
    answers = engine.drain()
    assert_same_stream(answers, oracle.stream(plan, given))
    return [tuple(row.values()) for batch in answers for row in batch.data.to_pylist()]


def letters(text: str) -> Events:
    """One row a tick: a, b and c are rows of the three streams; the prices are the times."""
    names = dict(zip("abc", STREAMS, strict=False))
    return [(names[letter], i, [letter, float(i), 1]) for i, letter in enumerate(text) if letter in names]


@pytest.mark.parametrize(
    ("pattern", "rows", "found"),
    [
        ("Stream1{2} AS a, Stream2 AS b", "aabaab", [2, 5]),
        ("Stream1{2,} AS a, Stream2 AS b", "abaab", [4]),
        ("Stream1 AS a, (Stream2 AS b OR Stream3 AS c)", "acxab", [1, 4]),
        ("Stream1 AS a, Stream2 AS b AND Stream3 AS c", "acbabc", [2, 5]),
        ("Stream1 AS a, NOT Stream3 AS n, Stream2 AS b", "acbaab", [5]),
        ("(Stream1 AS a, Stream2 AS b){2}", "abxabab", [4]),
        ("Stream1 AS a, Stream3? AS c, Stream2 AS b", "aabacb", [2, 5]),
        ("Stream1 AS a, NOT Stream3 AS n, Stream2{2} AS b", "abcb", [3]),
        ("(Stream1 AS a OR Stream2 AS b), Stream3 AS c", "acbc", [1, 3]),
    ],
)
def test_patterns_of_steps(pattern: str, rows: str, found: list[int]) -> None:
    plan = query(f"SELECT 1 AS one FROM SEQ({pattern}) DISJOINT", CATALOG).plan
    events = letters(rows)
    asked(f"SELECT 1 AS one FROM SEQ({pattern}) DISJOINT", events)
    names = {source.name for source in sources_of(plan)}
    given = {
        name: [(t, dict(zip(SCHEMA.names, row, strict=True))) for of, t, row in events if of == name]
        for name in names
    }
    assert [time for time, _ in oracle.stream(plan, given)] == found


WRONG: Final = {
    "a mode": ("SEQ(Stream1{2} AS a, Stream2 AS b) RECENT", "RECENT takes only", "EVERY"),
    "not at the end": ("SEQ(Stream1 AS a, NOT Stream2 AS b) EVERY", "followed by", "NOT c, b"),
    "not at the start": ("SEQ(NOT Stream1 AS a, Stream2 AS b) EVERY", "be the first", "NOT c, b"),
    "two nots": ("SEQ(Stream1 AS a, NOT Stream2 AS n, NOT Stream3 AS m, Stream1 AS b) EVERY", "two", "UNION"),
    "not before none": ("SEQ(Stream1 AS a, NOT Stream2 AS n, Stream3* AS b) EVERY", "not optional", "+"),
    "nothing": ("SEQ(Stream1* AS a) EVERY", "without any row", "a+"),
    "strict": ("SEQ(Stream1 AS a, Stream2 AS b) EVERY STRICT", "STRICT", "remove"),
    "and with or": (
        "SEQ(Stream1 AS a AND Stream2 AS b OR Stream3 AS c) EVERY",
        "AND and OR",
        "parentheses",
    ),
    "large": ("SEQ((Stream1{100} AS a){100}) EVERY", "1000 rows", "smaller"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_supported_is_refused(name: str) -> None:
    sequence, message, hint = WRONG[name]
    with pytest.raises(SqlError) as caught:
        query(f"SELECT 1 AS one FROM {sequence}", CATALOG)
    assert caught.value.code == Code.SEQUENCE
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "condition", ["a.price > b.price", "last(c.price) > a.price AND c.volume > b.volume", "n.price > c.price"]
)
def test_conditions_that_no_step_can_test_are_refused(condition: str) -> None:
    steps = "Stream1 AS a OR Stream2 AS b, NOT Stream3 AS n, Stream3 AS c"
    if "c.volume" in condition:
        steps = "Stream1+ AS a, Stream2 AS b, Stream3 AS c"
        condition = "a.price > c.price"
    with pytest.raises(SqlError) as caught:
        query(f"SELECT 1 AS one FROM SEQ({steps}) EVERY WHERE {condition}", CATALOG)
    assert caught.value.code == Code.SEQUENCE_CONDITION


COUNTED: Final = "first(e1.price), count(e1.*), e2.price FROM SEQ(Stream1{n} AS e1, Stream2 AS e2) DISJOINT"
ABOVE: Final = "WHERE e1.price > 20 AND e2.price > 20"
THREE: Final = (
    "SELECT e1.symbol, {} FROM SEQ(EventStream AS e1, EventStream{{0,5}} AS e2, EventStream AS e3) DISJOINT "
    "WHERE e1.price >= 50 AND e1.volume > 100 AND e2.price <= 40 AND e3.volume <= 70"
)
SIDDHI: Final[dict[str, tuple[str, list[tuple[Any, ...]]]]] = {
    "testQuery1": (f"SELECT {COUNTED} {ABOVE}".replace("n}", "2,5}"), [(25.6, 3, 45.7)]),
    "testQuery2": (f"SELECT {COUNTED} {ABOVE}".replace("n}", "2,5}"), [(25.6, 2, 45.7)]),
    "testQuery3": (f"SELECT {COUNTED} {ABOVE}".replace("n}", "2,5}"), [(25.6, 2, 55.7)]),
    "testQuery4": (f"SELECT {COUNTED} {ABOVE}".replace("n}", "2,5}"), []),
    "testQuery5": (f"SELECT {COUNTED} {ABOVE}".replace("n}", "2,5}"), [(25.6, 5, 45.7)]),
    "testQuery7": (
        f"SELECT {COUNTED} {ABOVE}".replace("n}", "0,5}").replace("first(e1.price)", "last(e1.price)"),
        [(None, 0, 45.7)],
    ),
    "testQuery8": (
        f"SELECT {COUNTED} WHERE e1.price > 20 AND e2.price > first(e1.price)".replace("n}", "0,5}"),
        [(25.6, 1, 45.7)],
    ),
    "testQuery9": (THREE.format("first(e2.symbol), e3.symbol"), [("IBM", "GOOG", "WSO2")]),
    "testQuery10": (THREE.format("first(e2.symbol), e3.symbol"), [("IBM", None, "GOOG")]),
    "testQuery11": (THREE.format("last(e2.symbol), e3.symbol"), [("IBM", None, "GOOG")]),
    "testQuery12": (THREE.format("last(e2.symbol), e3.symbol"), [("IBM", "FB", "WSO2")]),
    "testQuery13": (
        "SELECT e1.volume, first(e2.volume), last(e2.volume) "
        "FROM SEQ(EventStream AS e1, EventStream{4,6} AS e2) EVERY PARTITION BY symbol",
        [(100, 200, 500), (200, 300, 600), (300, 400, 700), (400, 500, 800), (500, 600, 900)],
    ),
}
"""Programs of Siddhi's CountPatternTestCase, and its answers in the columns that are asked for here."""


@pytest.mark.parametrize("name", SIDDHI)
def test_counts_are_as_in_siddhi(shared_data: Callable[[str], Path], name: str) -> None:
    cases = json.loads((shared_data("siddhi") / "CountPatternTestCase.json").read_text())
    (case,) = (each for each in cases if each["test"] == name)
    clock, events = 0, list[tuple[str, int, list[Any]]]()
    for action in case["actions"]:
        if "sleep_ms" in action:
            clock += action["sleep_ms"]
        else:
            clock += 1
            events.append((action["stream"], clock, action["data"]))
    text, expected = SIDDHI[name]
    assert len(expected) == len(case["expected_rows_in_order_of_assertion"])
    found = asked(text, events)
    rounded = [tuple(round(v, 3) if isinstance(v, float) else v for v in row) for row in found]
    assert rounded == expected
