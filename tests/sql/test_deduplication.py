"""`DISTINCT ON … WITHIN …` keeps what Spark's `dropDuplicatesWithinWatermark` means to keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.sql import query
from headrace.testing.asking import ask

STREAM = "CREATE STREAM s (id STRING, payload BIGINT, at BIGINT) TIME at; "
DELAY = 10
Rows = list[tuple[int, str, int]]
ROWS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.integers(0, 1)), max_size=10).map(
    lambda rows: sorted(rows, key=lambda row: row[0])
)


def kept(rows: Rows, text: str = f"SELECT DISTINCT ON (id) WITHIN {DELAY} TICKS * FROM s") -> Rows:
    found = ask(STREAM + text, s=[(t, id, v, t) for t, id, v in rows], ticks_per_second=None)
    return [(t, id, v) for t, id, v, _ in found]


@given(ROWS)
def test_a_row_is_kept_if_its_id_was_not_kept_within_the_delay(rows: Rows) -> None:
    first: dict[str, int] = {}
    by_spark = []
    for t, id, v in rows:
        if id not in first or t - first[id] >= DELAY:
            first[id] = t
            by_spark.append((t, id, v))
    assert kept(rows) == by_spark


@given(ROWS)
def test_without_a_time_it_is_the_first_row_number(rows: Rows) -> None:
    numbered = "SELECT * FROM s QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY at) = 1"
    assert kept(rows, "SELECT DISTINCT ON (id) * FROM s") == kept(rows, numbered)


def test_where_comes_first_and_keys_may_be_computed() -> None:
    rows = [(1, "a", 0), (2, "A", 1), (3, "b", 1), (4, "B", 1)]
    assert kept(rows, "SELECT DISTINCT ON (upper(id)) * FROM s WHERE payload = 1") == [rows[1], rows[2]]


@pytest.mark.parametrize(
    ("text", "said"),
    {
        "SELECT DISTINCT ON (id) * FROM s [ROWS 3]": "without a window",
        "SELECT DISTINCT ON (id) id, count(*) FROM s [ROWS 3] GROUP BY id": "without a window",
        "SELECT DISTINCT ON (id) * FROM s ORDER BY id, at": "another choice of rows",
        "SELECT DISTINCT ON (id) * FROM s ORDER BY at LIMIT 3": "another choice of rows",
        "SELECT DISTINCT ON (id) ISTREAM(*) FROM s": "after DISTINCT ON",
        "SELECT DISTINCT ON (nothing) * FROM s": "does not exist",
        "SELECT DISTINCT ON (id) WITHIN 3 FORTNIGHTS * FROM s": "not a unit of time",
    }.items(),
)
def test_what_it_cannot_be_combined_with_is_an_error_with_a_hint(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said) as caught:
        query(STREAM + text)
    assert caught.value.hint
