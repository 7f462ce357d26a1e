"""`[RANGE T SLIDE S]`: windows start at multiples of the slide, as in Spark, Flink, ksqlDB and Arroyo."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.testing.asking import ask
from tests.sql.running import plan_of

STREAM = "CREATE STREAM s (v BIGINT); "
TIMES = st.lists(st.integers(-40, 40), min_size=1, max_size=8).map(sorted)


def windows(size: int, slide: int, times: list[int]) -> list[tuple[int, ...]]:
    """(time of the answer, rows, start, end) of every window with rows, by assigning rows to windows."""
    counts: dict[int, int] = {}
    for time in times:
        for start in range(time - size + 1, time + 1):
            if start % slide == 0:
                counts[start] = counts.get(start, 0) + 1
    return [(start + size - 1, n, start, start + size) for start, n in sorted(counts.items())]


@given(st.integers(1, 12), st.integers(1, 8), TIMES)
def test_windows_start_at_multiples_of_the_slide(size: int, slide: int, times: list[int]) -> None:
    """The length is the range and the answer comes at end − 1; before zero too."""
    text = (
        f"SELECT count(*) AS n, window_start, window_end FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS]"
    )
    assert ask(STREAM + text, s=[(time, 0) for time in times]) == windows(size, slide, times)


@given(st.integers(1, 12), st.integers(1, 8), TIMES)
def test_rows_of_a_window_are_shown_when_it_is_answered(size: int, slide: int, times: list[int]) -> None:
    found = ask(
        STREAM + f"SELECT v FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS]", s=[(t, t) for t in times]
    )
    expected = [
        (at, t) for at, _, start, end in windows(size, slide, times) for t in times if start <= t < end
    ]
    assert sorted(found) == sorted(expected)


def test_an_hour_each_40_minutes() -> None:
    """Hops of 40 minutes: 14:40 is the 22nd since midnight; 14:50 is in [14:00, 15:00) and [14:40, 15:40)."""
    text = "SELECT count(*) AS n, window_start, window_end FROM s [RANGE 1 HOUR SLIDE 40 MINUTES]"
    found = ask(STREAM + text, s=[(14 * 3600 + 50 * 60, 1)])
    assert [(start // 60, end // 60) for _, _, start, end in found] == [(840, 900), (880, 940)]


def test_a_row_in_a_gap_is_in_no_window() -> None:
    text = "SELECT count(*) AS n, window_start FROM s [RANGE 1 SECOND SLIDE 3 SECONDS]"
    assert ask(STREAM + text, s=[(3, 1), (5, 1)]) == [(3, 1, 3)]


def test_windows_that_end_at_different_instants_need_an_output_word() -> None:
    text = (
        "SELECT a.item FROM bids [RANGE 3 SLIDE 2] AS a, bids [RANGE {} SLIDE 2] AS b WHERE a.item = b.item"
    )
    with pytest.raises(SqlError, match="end at different times") as error:
        plan_of(text.format(4))
    assert error.value.code == "HR-Q052"
    plan_of(text.format(5))
    plan_of(f"ISTREAM({text.format(4)})")
