"""Each window on a FROM item, in text, against answers computed by hand."""

from __future__ import annotations

import pytest

from headrace.plan.nodes.core import Plan, Window
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded, WindowSpec
from headrace.sql import query
from tests.sql.running import STREAMS, answer

BIDS = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, 30.0)]


def window_in(plan: Plan) -> WindowSpec:
    while not isinstance(plan, Window):
        (plan,) = plan.inputs
    return plan.spec


@pytest.mark.parametrize(
    ("clause", "spec"),
    [
        ("[RANGE 10 MINUTES]", Range(600_000_000)),
        ("[range 1 hour 30 minutes]", Range(5_400_000_000)),
        ("[RANGE 0.5 SECONDS]", Range(500_000)),
        ("[RANGE INTERVAL '2' DAYS]", Range(172_800_000_000)),
        ("[RANGE 7 TICKS]", Range(7)),
        ("[RANGE 10 MINUTES SLIDE 1 MINUTE]", Sliding(600_000_000, 60_000_000)),
        ("[RANGE 1 WEEK SLIDE 1 MS]", Sliding(604_800_000_000, 1000)),
        ("[ROWS 100]", Rows(100)),
        ("[PARTITION BY item ROWS 5]", Rows(5, ("item",))),
        ("[PARTITION BY b.ITEM, price ROWS 5]", Rows(5, ("item", "price"))),
        ("[NOW]", Now()),
        ("[Unbounded]", Unbounded()),
        ("[ROWS UNBOUNDED]", Unbounded()),
        ("[RANGE UNBOUNDED]", Unbounded()),
    ],
)
def test_a_window_reads_the_same_before_and_after_the_alias(clause: str, spec: WindowSpec) -> None:
    for item in (f"bids {clause} AS b", f"bids {clause} b", f"bids AS b {clause}", f"bids b {clause}"):
        assert window_in(query(f"SELECT * FROM {item}", STREAMS).plan) == spec
        assert window_in(query(f"SELECT * FROM (SELECT * FROM bids) {item[4:]}", STREAMS).plan) == spec


def test_a_plain_number_counts_sequence_numbers() -> None:
    plan = query("SELECT * FROM bids [RANGE 100]", STREAMS, ticks_per_second=None).plan
    assert window_in(plan) == Range(100)


def test_other_ticks_make_other_numbers_of_the_same_duration() -> None:
    plan = query("SELECT * FROM bids [RANGE 2 SECONDS]", STREAMS, ticks_per_second=1000).plan
    assert window_in(plan) == Range(2000)


def test_range_holds_rows_for_its_length() -> None:
    text = "DSTREAM(SELECT item FROM bids [RANGE 5])"
    assert answer(text, bids=BIDS) == [(6, 7), (8, 8), (9, 7)]


def test_now_holds_rows_for_a_tick() -> None:
    assert answer("RSTREAM(SELECT item FROM bids [NOW])", bids=BIDS) == [(1, 7), (3, 8), (4, 7)]


def test_rows_leave_when_newer_ones_come() -> None:
    assert answer("DSTREAM(SELECT price FROM bids [ROWS 1])", bids=BIDS) == [(3, 10.0), (4, 20.0)]


def test_a_partition_has_rows_of_its_own() -> None:
    text = "DSTREAM(SELECT price FROM bids [PARTITION BY item ROWS 1])"
    assert answer(text, bids=BIDS) == [(4, 10.0)]


def test_unbounded_lets_nothing_go() -> None:
    assert answer("DSTREAM(SELECT * FROM bids [UNBOUNDED])", bids=BIDS) == []
    assert answer("SELECT count(*) FROM bids [UNBOUNDED]", bids=BIDS) == [(1, 1), (3, 2), (4, 3)]


def test_a_selection_is_applied_to_what_the_window_holds() -> None:
    text = "SELECT price FROM bids [ROWS 1] WHERE item = 8"
    assert answer(f"DSTREAM({text})", bids=BIDS) == [(4, 20.0)]


def test_a_sliding_window_reports_each_window_once() -> None:
    """Windows [−5, 5) and [0, 10) hold all three rows, and end at 4 and 9."""
    text = "SELECT item FROM bids [RANGE 10 SLIDE 5]"
    assert answer(text, bids=BIDS) == [(4, 7), (4, 7), (4, 8), (9, 7), (9, 7), (9, 8)]


def test_a_sliding_aggregate_knows_its_bounds() -> None:
    text = """
        SELECT item, count(*) AS n, window_start, window_end
        FROM bids [RANGE 4 SLIDE 2] GROUP BY item, window_start, window_end
    """
    assert answer(text, bids=BIDS) == [
        (1, 7, 1, -2, 2),
        (3, 7, 1, 0, 4),
        (3, 8, 1, 0, 4),
        (5, 7, 1, 2, 6),
        (5, 8, 1, 2, 6),
        (7, 7, 1, 4, 8),
    ]


def test_a_column_called_window_end_is_itself() -> None:
    text = """
        WITH w AS (SELECT item AS window_end FROM bids)
        SELECT window_end, count(*) AS n FROM w [RANGE 10 SLIDE 10] GROUP BY window_end
    """
    assert answer(text, bids=BIDS) == [(9, 7, 2), (9, 8, 1)]
