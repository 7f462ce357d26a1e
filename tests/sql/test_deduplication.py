"""The guide's translation of `dropDuplicatesWithinWatermark`, and where it keeps what Spark keeps."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import assume, given
from hypothesis import strategies as st

from headrace.testing.asking import ask

GUIDE = Path(__file__).parents[2] / "docs" / "guide.md"
STREAM = "CREATE STREAM s (id STRING, payload BIGINT, at BIGINT) TIME at; "
DELAY = 10
ROWS = st.lists(st.tuples(st.integers(0, 60), st.sampled_from("ab"), st.integers(0, 1)), max_size=10).map(
    sorted
)


def kept(rows: list[tuple[int, str, int]]) -> list[tuple[int, str, int]]:
    (text,) = re.findall(r'FIRST = """(.*?)"""', GUIDE.read_text(), re.S)
    text = text.replace("10 SECONDS", f"{DELAY} TICKS")
    found = ask(STREAM + text, s=[(t, id, v, t) for t, id, v in rows], ticks_per_second=None)
    return sorted((t, id, v) for t, id, v, _ in found)


@given(ROWS)
def test_a_row_is_kept_if_its_id_was_not_there_within_the_delay(rows: list[tuple[int, str, int]]) -> None:
    alone = {
        (t, id, v)
        for t, id, v in rows
        if not any(i == id and t - DELAY < before < t for before, i, _ in rows)
    }
    assert kept(rows) == sorted(alone)


@given(ROWS)
def test_it_is_what_spark_keeps_where_repeats_stay_within_the_delay_of_the_first(
    rows: list[tuple[int, str, int]],
) -> None:
    """Spark forgets an id its delay after the first row that it kept, however often the id came since."""
    first: dict[str, int] = {}
    by_spark = []
    for t, id, v in rows:
        if id not in first or t - first[id] >= DELAY:
            assume(
                id not in first
                or all(i != id or u <= first[id] or t <= u or t - u >= DELAY for u, i, _ in rows)
            )
            first[id] = t
            by_spark.append((t, id, v))
    assume(len({(t, id) for t, id, _ in rows}) == len(rows))
    assert kept(rows) == sorted(by_spark)
