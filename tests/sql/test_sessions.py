"""`[SESSION gap]` in text, against answers computed by hand."""

from __future__ import annotations

from headrace.plan.nodes.core import IStream, RStream
from headrace.plan.nodes.session import SessionAggregate
from headrace.sql import query
from tests.sql.running import STREAMS, answer, plan_of

BIDS = [(1, 7, 10.0), (2, 8, 1.0), (6, 7, 30.0), (12, 7, 20.0), (30, 8, 2.0)]
TEXT = """
    SELECT item, count(*) AS n, max(price) AS p, window_start, window_end
    FROM bids [SESSION 5] GROUP BY item
"""


def test_a_session_is_reported_once_at_its_last_tick() -> None:
    """The rows of 7 at 1 and 6 are just the gap apart: together, as in Spark and Flink; that at 12 is not."""
    assert answer(TEXT, bids=BIDS) == [
        (6, 8, 1, 1.0, 2, 7),
        (10, 7, 2, 30.0, 1, 11),
        (16, 7, 1, 20.0, 12, 17),
        (34, 8, 1, 2.0, 30, 35),
    ]


def test_without_group_by_there_is_one_session_at_a_time() -> None:
    text = "SELECT count(*) AS n, window_end FROM bids [SESSION 5]"
    assert answer(text, bids=BIDS) == [(10, 3, 11), (16, 1, 17), (34, 1, 35)]


def test_equal_answers_at_neighbouring_ticks_are_both_reported() -> None:
    text = "SELECT count(*) AS n FROM bids [SESSION 5] GROUP BY item"
    rows = [(1, 7, 1.0), (2, 8, 1.0)]
    assert answer(text, bids=rows) == [(5, 1), (6, 1)]
    assert isinstance(plan_of(text), RStream)
    assert answer(f"ISTREAM({text})", bids=rows) == [(5, 1)]
    assert isinstance(plan_of(f"ISTREAM({text})"), IStream)


def test_every_aggregate_can_be_taken_of_a_session() -> None:
    text = """
        SELECT first(price) f, last_value(price) l, count(DISTINCT price) d, avg(price) a, sum(item) s,
               min(price) lo, stddev_pop(price) sd
        FROM bids [SESSION 5]
    """
    rows = [(1, 7, 4.0), (2, 7, 2.0), (3, 7, None), (4, 7, 4.0), (5, 7, 2.0)]
    assert answer(text, bids=rows) == [(9, 4.0, 2.0, 2, 3.0, 35, 2.0, 1.0)]


def test_conditions_before_and_after_the_sessions() -> None:
    text = "SELECT item, count(*) AS n FROM bids [SESSION 5] WHERE price > 1 GROUP BY item HAVING n > 1"
    assert answer(text, bids=BIDS) == [(10, 7, 2)]


def test_the_gap_is_a_duration() -> None:
    plan = query("SELECT count(*) FROM bids [SESSION 1 MINUTE 30 SECONDS]", STREAMS).plan
    (below,) = plan.inputs
    while not isinstance(below, SessionAggregate):
        (below,) = below.inputs
    assert below.gap == 90_000_000


def test_sessions_can_be_the_stream_of_another_query() -> None:
    text = f"SELECT max(n) AS most FROM (RSTREAM({TEXT})) [UNBOUNDED] AS s"
    assert answer(text, bids=BIDS) == [(6, 1), (10, 2)]


def test_sessions_of_a_partition_are_grouped() -> None:
    """Without a partition the row at 2 would be a session of its own; that at 6 keeps it and 7 together."""
    text = """
        SELECT item, count(*) AS n, window_start, window_end
        FROM bids [PARTITION BY () SESSION 5] GROUP BY item
    """
    assert sorted(answer(text, bids=BIDS)) == [
        (10, 7, 2, 1, 11),
        (10, 8, 1, 1, 11),
        (16, 7, 1, 12, 17),
        (34, 8, 1, 30, 35),
    ]


def test_sessions_by_all_keys_are_the_plain_ones() -> None:
    assert plan_of(TEXT.replace("[SESSION", "[PARTITION BY item SESSION")) == plan_of(TEXT)
