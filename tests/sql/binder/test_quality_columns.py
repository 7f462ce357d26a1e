"""RANGE MIN … MAX … and GRANULARITY: what they mean as plans, and as answers."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import Granularity, IStream, Source, Window
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.windows import Range
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


def test_answers_change_at_multiples_of_the_grain_only() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 1, 9.0)]
    text = "SELECT sum(price) [GRANULARITY 10] AS p FROM bids [RANGE 20]"
    assert answer(text, SEQUENCE, bids=rows) == [(10, 6.0), (20, 9.0)]


def test_bounds_start_at_the_largest_window_and_the_finest_grain() -> None:
    rows = [(1, 1, 4.0), (6, 1, 2.0), (12, 1, 9.0)]
    text = "SELECT sum(price) {} AS p FROM bids [RANGE {}]"
    bounded = text.format("[GRANULARITY COARSEST 30, FINEST 5]", "MIN 3, MAX 20")
    assert answer(bounded, bids=rows) == answer(text.format("[GRANULARITY 5]", "20"), bids=rows)
