"""SEQ in the modes EVERY and DISJOINT: what patterns of steps mean; `test_siddhi` has Siddhi's own tests."""

from __future__ import annotations

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

SCHEMA = pa.schema([("symbol", pa.string()), ("price", pa.float32()), ("ts", pa.int64())])
STREAMS = ("Stream1", "Stream2", "Stream3")
CATALOG = Catalog([StreamDef(name, SCHEMA, time_column="ts", ticks_per_second=1000) for name in STREAMS])
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
    return [(names[letter], i, [letter, float(i), i]) for i, letter in enumerate(text) if letter in names]


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
        ("Stream1 AS a, NOT Stream2 AS n AND Stream3 AS c", "abcac", [4]),
        # absent for a time: at the end, in the middle, at the beginning
        ("Stream1 AS a, NOT Stream2 AS n FOR 3 TICKS", "axxxabxxaxxb", [3, 11]),
        ("Stream1 AS a, NOT Stream1 AS n FOR 3 TICKS", "axaxxax", [5, 8]),
        ("Stream1 AS a, NOT Stream2 AS n FOR 2 TICKS, Stream3 AS c", "acxcabxcaxbc", [3, 11]),
        ("NOT Stream2 AS n FOR 3 TICKS, Stream1 AS a", "axbxxaba", [0, 5]),
        ("NOT Stream1 AS n FOR 3 TICKS, Stream1 AS a", "aaxxaxa", [0, 4]),
        ("NOT Stream2 AS n FOR 2 TICKS, Stream1{2} AS a", "baxaa", [4]),
        ("Stream1{2} AS a, NOT Stream2 AS n FOR 2 TICKS", "axaxxaab", [4]),
        # or and and
        ("Stream1 AS a, (NOT Stream2 AS n FOR 3 TICKS OR Stream3 AS c)", "axcxabcaxxxab", [2, 6, 10]),
        ("Stream1 AS a, NOT Stream2 AS n FOR 3 TICKS AND Stream3 AS c", "acxxaxxxxcabcxxacbx", [3, 9]),
        ("Stream1 AS a, (NOT Stream2 AS n FOR 2 TICKS, Stream3 AS c){2}", "axxcxxxc", [7]),
        ("(Stream1 AS a OR Stream2 AS b), NOT Stream3 AS n FOR 2 TICKS", "axxbcbxx", [2, 7]),
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
    "not at the end": ("SEQ(Stream1 AS a, NOT Stream2 AS b) EVERY", "followed by", "NOT c FOR"),
    "not at the start": ("SEQ(NOT Stream1 AS a, Stream2 AS b) EVERY", "must last", "FOR 10 SECONDS"),
    "not in or": ("SEQ(Stream1 AS a, (NOT Stream2 AS b OR Stream3 AS c)) EVERY", "followed by", "NOT c FOR"),
    "only not": ("SEQ(NOT Stream2 AS b FOR 1 SECOND) EVERY", "without NOT", "SEQ(NOT c FOR"),
    "or at the start": (
        "SEQ((NOT Stream2 AS b FOR 1 SECOND OR Stream1 AS a), Stream3 AS c) EVERY",
        "cannot begin",
        "begin with a step",
    ),
    "not after optional": (
        "SEQ(Stream1? AS a, NOT Stream2 AS b FOR 1 SECOND) EVERY",
        "cannot begin",
        "begin with a step",
    ),
    "not twice": (
        "SEQ(Stream1 AS a, NOT Stream2 AS b FOR 1 SECOND, NOT Stream3 AS c FOR 1 SECOND) EVERY",
        "two NOT",
        "UNION",
    ),
    "within": ("SEQ(Stream1 AS a, NOT Stream2 AS b FOR 1 SECOND) EVERY WITHIN 1 SECOND", "WITHIN", "longer"),
    "recent": ("SEQ(Stream1 AS a, NOT Stream2 AS b FOR 1 SECOND) RECENT", "RECENT takes only", "EVERY"),
    "group in and": (
        "SEQ(Stream1 AS a, NOT Stream2 AS b FOR 1 SECOND AND (Stream3 AS c, Stream1 AS d)) EVERY",
        "single steps",
        "NOT c FOR 10 SECONDS AND b",
    ),
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
    "condition", ["a.price > b.price", "last(c.price) > a.price AND c.ts > b.ts", "n.price > c.price"]
)
def test_conditions_that_no_step_can_test_are_refused(condition: str) -> None:
    steps = "Stream1 AS a OR Stream2 AS b, NOT Stream3 AS n, Stream3 AS c"
    if "c.ts" in condition:
        steps = "Stream1+ AS a, Stream2 AS b, Stream3 AS c"
        condition = "a.price > c.price"
    with pytest.raises(SqlError) as caught:
        query(f"SELECT 1 AS one FROM SEQ({steps}) EVERY WHERE {condition}", CATALOG)
    assert caught.value.code == Code.SEQUENCE_CONDITION


def test_a_row_is_chosen_from_the_first_or_last_one_of_a_step_on() -> None:
    text = """
        SELECT first(a.price, 1) AS second, last(a.price, 2) AS third_last, first(a.price, 3) AS fourth
        FROM   SEQ(Stream1+ AS a, Stream2 AS b) DISJOINT WHERE b.price > first(a.price, 1) + 2"""
    assert asked(text, letters("aaaxb")) == [(1.0, 0.0, None)]


def test_absence_needs_the_time_of_the_step_before() -> None:
    catalog = Catalog([StreamDef(name, SCHEMA, ticks_per_second=1000) for name in STREAMS])
    with pytest.raises(SqlError) as caught:
        query("SELECT 1 AS one FROM SEQ(Stream1 AS a, NOT Stream2 AS b FOR 1 SECOND) EVERY", catalog)
    assert "TIME column" in caught.value.message


def test_absence_is_compared_with_the_steps_before_it() -> None:
    text = """
        SELECT a.ts AS began FROM SEQ(Stream1 AS a, NOT Stream2 AS n FOR 5 TICKS) EVERY
        WHERE  n.price > a.price + 3"""
    assert asked(text, letters("aabxb")) == [(1,)]
