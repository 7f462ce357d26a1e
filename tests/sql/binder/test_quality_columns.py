"""RANGE MIN … MAX … and GRANULARITY: what they mean as plans, and as answers."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import Granularity, IStream, RStream, Source, Window
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.windows import Range, Rows, Sliding
from headrace.sql import query
from tests.sql.running import BIDS, SEQUENCE, answer, plan_of

HOUR = 3_600_000_000
SOURCE = Source("bids", BIDS)


@pytest.mark.parametrize("text", ["[RANGE MIN 2 HOURS, MAX 5 HOURS]", "[RANGE MAX 5 HOURS, MIN 2 HOURS]"])
def test_a_range_has_bounds_in_either_order(text: str) -> None:
    plan = query(f"SELECT * FROM bids {text}", {"bids": BIDS}).plan
    assert plan == IStream(Window(SOURCE, Range(5 * HOUR, 2 * HOUR)))


def test_minutes_are_not_the_lower_bound() -> None:
    plan = query("SELECT * FROM bids [RANGE MIN 10 MIN, MAX 90 MIN]", {"bids": BIDS}).plan
    assert plan == IStream(Window(SOURCE, Range(90 * HOUR // 60, 10 * HOUR // 60)))


@pytest.mark.parametrize(
    ("clause", "grain", "coarsest"),
    [
        ("[GRANULARITY 10]", 10, None),
        ("[GRANULARITY COARSEST 20, FINEST 10]", 10, 20),
        ("[GRANULARITY FINEST 10, COARSEST 20]", 10, 20),
    ],
)
def test_granularity_rounds_what_is_aggregated(clause: str, grain: int, coarsest: int | None) -> None:
    text = f"SELECT item, avg(price) {clause} AS p, count(*) FROM bids [RANGE 50] GROUP BY item"
    plan = plan_of(text)
    (found,) = (each for each in walk(plan) if isinstance(each, Granularity))
    assert found == Granularity(Window(SOURCE, Range(50)), grain, coarsest)


def test_a_filter_may_stand_before_the_clause() -> None:
    plan = plan_of("SELECT count(*) FILTER (WHERE price > 1) [GRANULARITY 5] AS n FROM bids [RANGE 50]")
    assert any(isinstance(each, Granularity) for each in walk(plan))


def test_windows_that_slide_and_windows_of_rows_have_bounds_too() -> None:
    sliding = query("SELECT * FROM bids [RANGE MIN 2 HOURS, MAX 5 HOURS SLIDE 1 HOUR]", {"bids": BIDS}).plan
    assert isinstance(sliding, RStream)
    assert sliding.input == Window(SOURCE, Sliding(5 * HOUR, HOUR, 0, 2 * HOUR))
    rows = [
        ("[ROWS MIN 2, MAX 5]", Rows(5, (), 2)),
        ("[PARTITION BY item ROWS MAX 5, MIN 2]", Rows(5, ("item",), 2)),
    ]
    for text, spec in rows:
        assert plan_of(f"SELECT * FROM bids {text}") == IStream(Window(SOURCE, spec))


def test_bounds_change_no_answer_until_something_changes() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (7, 2, 2.0), (12, 1, 9.0), (23, 1, 1.0)]
    for fixed, bounded in [
        ("RANGE 20 SLIDE 5", "RANGE MIN 5, MAX 20 SLIDE 5"),
        ("RANGE 12 SLIDE 5 OFFSET 1", "RANGE MIN 2, MAX 12 SLIDE 5 OFFSET 1"),
        ("ROWS 3", "ROWS MIN 1, MAX 3"),
        ("PARTITION BY item ROWS 2", "PARTITION BY item ROWS MIN 1, MAX 2"),
    ]:
        text = "SELECT item, sum(price) AS p, count(*) AS n, max(price) AS m FROM bids [{}] GROUP BY item"
        assert answer(text.format(bounded), bids=rows) == answer(text.format(fixed), bids=rows), bounded


def test_each_aggregate_may_have_its_own_granularity() -> None:
    """As if each granularity had a SELECT of its own, joined on the groups; counts of nothing are 0."""
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 2, 9.0), (31, 1, 1.0), (48, None, 3.0)]
    one = """SELECT item, sum(price) [GRANULARITY 10] AS p, count(*) [GRANULARITY 4] AS n,
             max(price) FILTER (WHERE price > 2) [GRANULARITY 10] AS m FROM bids [RANGE 20] GROUP BY item
             HAVING count(*) [GRANULARITY 4] < 5"""
    apart = """SELECT coalesce(a.item, b.item) AS item, a.p, coalesce(b.n, 0) AS n, a.m
        FROM (SELECT item, sum(price) [GRANULARITY 10] AS p, max(price) FILTER (WHERE price > 2) AS m
              FROM bids [RANGE 20] GROUP BY item) AS a
        FULL JOIN (SELECT item, count(*) [GRANULARITY 4] AS n FROM bids [RANGE 20] GROUP BY item) AS b
        ON a.item <=> b.item WHERE coalesce(b.n, 0) < 5"""
    found = answer(one, bids=rows)
    assert found == answer(apart, bids=rows)
    assert (4, 1, None, 1, None) in found, "the finer one is answered first"
    assert (20, 1, 6.0, 2, 4.0) not in found
    assert any(n == 0 for _, _, _, n, _ in found)


def test_granularities_of_groups_without_keys() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 2, 9.0)]
    text = "SELECT sum(price) [GRANULARITY 10] AS p, count(*) [GRANULARITY 4] AS n FROM bids [RANGE 20]"
    assert answer(text, bids=rows)[:4] == [(4, None, 1), (8, None, 2), (10, 6.0, 2), (12, 6.0, 3)]


def test_a_granularity_over_slides_answers_at_some_of_them() -> None:
    """Windows end at 3, 8, 13, …; with a granularity of two slides, the result changes at 8, 18, … only."""
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 2, 9.0)]
    text = "ISTREAM(SELECT sum(price) {} AS p FROM bids [RANGE 20 SLIDE 5 OFFSET 3])"
    assert answer(text.format(""), bids=rows)[0] == (2, 4.0)
    rounded = answer(text.format("[GRANULARITY 10]"), bids=rows)
    assert {(time + 1 - 3) % 10 for time, _ in rounded} == {0}
    assert rounded == [(2, 4.0), (12, 15.0), (22, 9.0)]


def test_answers_change_at_multiples_of_the_grain_only() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 1, 9.0)]
    text = "SELECT sum(price) [GRANULARITY 10] AS p FROM bids [RANGE 20]"
    assert answer(text, SEQUENCE, bids=rows) == [(10, 6.0), (20, 9.0)]


def test_bounds_start_at_the_largest_window_and_the_finest_grain() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 1, 9.0)]
    text = "SELECT sum(price) {} AS p FROM bids [RANGE {}]"
    bounded = text.format("[GRANULARITY COARSEST 30, FINEST 5]", "MIN 3, MAX 20")
    assert answer(bounded, bids=rows) == answer(text.format("[GRANULARITY 5]", "20"), bids=rows)
