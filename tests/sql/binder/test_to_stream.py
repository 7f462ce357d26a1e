"""ISTREAM, DSTREAM, RSTREAM in both forms, and what is meant where none is written."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import DStream, IStream, RStream, Source, ToStream
from tests.sql.running import answer, plan_of

BIDS = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, 30.0)]


@pytest.mark.parametrize(("word", "kind"), [("ISTREAM", IStream), ("DSTREAM", DStream), ("rstream", RStream)])
def test_both_forms_of_an_output_are_one_plan(word: str, kind: type[ToStream]) -> None:
    around = plan_of(f"{word}(SELECT item, price AS p FROM bids [RANGE 5])")
    inside = plan_of(f"SELECT {word}(item, price AS p) FROM bids [RANGE 5]")
    assert around == inside
    assert isinstance(around, kind)
    assert around.schema.names == ["item", "p"]


def test_istream_of_a_star() -> None:
    assert plan_of("SELECT ISTREAM(*) FROM bids [NOW]") == plan_of("ISTREAM(SELECT * FROM bids [NOW])")


def test_istream_of_distinct_columns() -> None:
    same = plan_of("ISTREAM(SELECT DISTINCT item FROM bids [RANGE 5])")
    assert plan_of("SELECT ISTREAM(DISTINCT item) FROM bids [RANGE 5]") == same
    assert plan_of("SELECT DISTINCT ISTREAM(item) FROM bids [RANGE 5]") == same


def test_istream_of_a_stream_is_the_stream() -> None:
    assert plan_of("ISTREAM(SELECT * FROM bids)") == plan_of("SELECT * FROM bids")


def test_a_stream_stays_a_stream() -> None:
    assert isinstance(plan_of("SELECT * FROM bids"), Source)
    assert answer("SELECT price FROM bids WHERE item = 7", bids=BIDS) == [(1, 10.0), (4, 30.0)]


def test_a_relation_is_reported_as_it_grows() -> None:
    text = "SELECT max(price) FROM bids [ROWS 2]"
    assert answer(text, bids=BIDS) == [(1, 10.0), (3, 20.0), (4, 30.0)]
    assert isinstance(plan_of(text), IStream)


def test_rstream_repeats_at_the_slides() -> None:
    plan = plan_of("RSTREAM(SELECT item FROM bids [RANGE 10 SLIDE 5])")
    assert isinstance(plan, RStream)
    assert plan.slide == 5
    assert plan == plan_of("SELECT item FROM bids [RANGE 10 SLIDE 5]")


def test_rstream_repeats_at_every_tick_where_nothing_slides() -> None:
    assert answer("RSTREAM(SELECT item FROM bids [RANGE 2])", bids=BIDS[:1]) == [(1, 7), (2, 7)]


def test_istream_of_a_sliding_query_reports_changes() -> None:
    text = "ISTREAM(SELECT item FROM bids [RANGE 10 SLIDE 5])"
    assert answer(text, bids=BIDS) == [(4, 7), (4, 7), (4, 8)]


def test_an_output_is_a_stream_that_can_be_windowed_again() -> None:
    text = """
        SELECT count(*) AS n
        FROM ISTREAM(SELECT max(price) FROM bids [ROWS 2]) [RANGE 2] AS m
    """
    assert answer(text, bids=BIDS) == [(1, 1), (4, 2), (5, 1)]


def test_outputs_can_be_united() -> None:
    text = "ISTREAM(SELECT item FROM bids [RANGE 2]) UNION ALL DSTREAM(SELECT item FROM bids [RANGE 2])"
    assert answer(text, bids=BIDS[:1]) == [(1, 7), (3, 7)]
