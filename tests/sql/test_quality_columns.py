"""headrace_window() and headrace_granularity(): every answer can tell the quality that it rests on."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.errors import SqlError
from headrace.plan.nodes.core import Aggregate, Granularity, Plan, Window
from headrace.plan.nodes.trees import walk
from headrace.sql import Code, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.sql.running import BIDS, ITEMS, SEQUENCE, answer, plan_of

RANGE = "[RANGE MIN 2, MAX 10]"
ROWS = [(0, 1, 5.0), (4, 1, 7.0), (8, 2, 1.0), (12, 1, 2.0), (25, 2, 3.0)]


def changed(text: str, changes: dict[str, list[tuple[int, int]]], rows: list[Any]) -> list[tuple[Any, ...]]:
    """The answer while windows and granularities change: what the oracle says too."""
    found, engine = query(text, SEQUENCE), Engine()
    engine.add("q", found)
    answers = []
    for time, *values in rows:
        for each in engine.quality.settings():
            kind = "granularity" if "granularity" in each.what else "window"
            for at, value in changes.get(kind, ()):
                if each.earliest <= at <= time and each.value != value:
                    engine.quality.resize(each.node, value, at=at)
        row = pa.RecordBatch.from_pylist([dict(zip(BIDS.names, values, strict=True))], schema=BIDS)
        engine.push("bids", row, [time])
        answers += engine.drain()
    engine.streams.end("bids")
    answers += engine.drain()
    data = {"bids": [(t, dict(zip(BIDS.names, values, strict=True))) for t, *values in rows]}
    histories = engine.quality.histories("q")
    expected = oracle.stream(found.plan, data, histories)
    assert_same_stream(answers, expected, schema=found.schema)
    assert_same_stream(answers, oracle.stream(found.logical, data, _as_written(found.logical, histories)))
    return [(time, *row) for time, row in expected]


def _as_written(plan: Plan, histories: Any) -> Any:
    """The same histories by the nodes of the plan as it was written: there is one of each kind at most."""
    by_kind = {type(node): history for node, history in histories.items()}
    nodes = [each for each in walk(plan) if isinstance(each, (Window, Granularity))]
    return {node: by_kind[type(node)] for node in nodes if type(node) in by_kind}


def test_a_row_tells_the_size_that_it_was_given() -> None:
    text = f"SELECT item, headrace_window() AS w FROM bids {RANGE}"
    told = changed(text, {"window": [(4, 3), (12, 10)]}, ROWS)
    assert told == [(0, 1, 10), (4, 1, 3), (8, 2, 3), (12, 1, 10), (25, 2, 10)]


def test_a_group_tells_the_worst_that_its_answer_rests_on() -> None:
    text = f"SELECT count(*) AS n, headrace_window() AS w, max(headrace_window()) AS best FROM bids {RANGE}"
    told = changed(text, {"window": [(4, 6)]}, ROWS)
    assert told[:4] == [(0, 1, 10, 10), (4, 2, 6, 10), (8, 3, 6, 10), (10, 1, 6, 6)]
    assert {each[2:] for each in told[4:]} == {(6, 6)}


def test_rows_may_be_grouped_and_filtered_by_it() -> None:
    text = f"SELECT headrace_window() AS w, count(*) AS n FROM bids {RANGE} GROUP BY headrace_window()"
    told = changed(text, {"window": [(8, 2)]}, ROWS)
    assert (4, 10, 2) in told
    assert (8, 2, 1) in told
    kept = changed(f"SELECT item FROM bids {RANGE} WHERE headrace_window() < 10", {"window": [(8, 2)]}, ROWS)
    assert [t for t, _ in kept] == [8, 12, 25]
    having = f"SELECT item FROM bids {RANGE} GROUP BY item HAVING headrace_window() < 10"
    assert {t for t, _ in changed(having, {"window": [(8, 2)]}, ROWS)} >= {8, 25}


def test_an_aggregate_tells_its_granularity() -> None:
    text = """SELECT sum(price) [GRANULARITY COARSEST 10, FINEST 2] AS p, headrace_granularity() AS g,
              min(headrace_granularity() * 2) AS twice FROM bids [RANGE 20]"""
    told = changed(text, {"granularity": [(8, 5)]}, ROWS)
    assert told[:3] == [(0, 5.0, 2, 4), (4, 12.0, 2, 4), (10, 13.0, 5, 4)]


@pytest.mark.parametrize(
    ("window", "size"), [("[RANGE 10]", 10), ("[RANGE 10 SLIDE 5]", 10), ("[NOW]", 1), (RANGE, 10)]
)
def test_a_query_need_not_change_where_the_window_is_fixed(window: str, size: int) -> None:
    grouped = f"SELECT count(*) AS n, headrace_window() AS w FROM bids {window} GROUP BY headrace_window()"
    assert {w for _, _, w in answer(grouped, bids=ROWS)} == {size}
    assert {w for _, w in answer(f"SELECT headrace_window() FROM bids {window}", bids=ROWS)} == {size}
    told = query(f"SELECT headrace_window() FROM bids {window}", SEQUENCE).schema.field(0)
    assert (told.name, told.type) == ("headrace_window()", pa.int64())


def test_a_fixed_granularity_is_a_constant() -> None:
    text = "SELECT count(*) [GRANULARITY 5] AS n, headrace_granularity() AS g FROM bids [RANGE 10]"
    assert {g for _, _, g in answer(text, bids=ROWS)} == {5}
    assert not any(each.quality_column for each in walk(plan_of(text)) if isinstance(each, Granularity))


def test_each_window_of_a_join_tells_its_own() -> None:
    text = """SELECT a.item, headrace_window(a) AS wa, headrace_window(b) AS wb, headrace_window(i) AS wi
              FROM bids [RANGE MIN 2, MAX 10] AS a, bids [RANGE MIN 3, MAX 8] AS b, items [RANGE 6] AS i
              WHERE a.item = b.item AND a.item = i.id AND headrace_window(b) > 1"""
    rows = answer(text, bids=[(1, 7, 1.0)], items=[(2, 7, "x")])
    assert rows == [(2, 7, 10, 8, 6)]
    shown = [each.quality_column for each in walk(plan_of(text)) if isinstance(each, Window)]
    assert sum(name is not None for name in shown) == 2


def test_the_other_window_is_meant_where_only_one_has_a_size() -> None:
    text = f"""SELECT b.item, headrace_window() AS w FROM bids {RANGE} AS b, items [ROWS 1] AS i
               WHERE b.item = i.id"""
    assert answer(text, bids=[(1, 7, 1.0)], items=[(2, 7, "x")]) == [(2, 7, 10)]


def test_a_subquery_tells_what_it_was_asked() -> None:
    inner = f"ISTREAM(SELECT item, headrace_window() AS w FROM bids {RANGE})"
    assert answer(f"SELECT max(w) AS w FROM ({inner}) [RANGE 5]", bids=ROWS[:1]) == [(0, 10)]
    assert answer(f"WITH v AS ({inner}) SELECT item, w FROM v", bids=ROWS[:1]) == [(0, 1, 10)]


def test_nothing_is_told_that_nobody_asks() -> None:
    text = f"SELECT item FROM (SELECT item, headrace_window() AS w FROM bids {RANGE})"
    assert not any(each.quality_column for each in walk(plan_of(text)) if isinstance(each, Window))
    star = query(f"SELECT * FROM bids {RANGE} WHERE headrace_window() > 1", SEQUENCE)
    assert star.schema.names == BIDS.names


def test_a_column_of_that_name_is_left_alone() -> None:
    catalog = {"s": pa.schema([("headrace_window", pa.string())])}
    found = query(f"SELECT headrace_window, headrace_window() FROM s {RANGE}", catalog, ticks_per_second=None)
    assert [f.type for f in found.schema] == [pa.string(), pa.int64()]


def test_a_sequence_tells_the_window_around_it() -> None:
    text = f"SELECT a.item, headrace_window() AS w FROM SEQ(bids AS a, items AS b) RECENT {RANGE}"
    assert answer(text, bids=[(1, 7, 1.0)], items=[(2, 7, "x")]) == [(2, 7, 10)]


def test_units_are_ticks() -> None:
    found = query("SELECT headrace_window() AS w FROM bids [RANGE 1 HOUR]", {"bids": BIDS, "items": ITEMS})
    assert "3600000000" in str(found.plan)


def test_explain_shows_where_it_is_told() -> None:
    text = f"""SELECT count(*) [GRANULARITY COARSEST 9, FINEST 3], headrace_granularity(), headrace_window()
               FROM bids {RANGE}"""
    said = str(query(text, SEQUENCE).explain())
    assert "window [RANGE MIN 2, MAX 10], size in column headrace_window" in said
    assert "granularity coarsest 9, finest 3, size in column headrace_granularity" in said


def test_panes_still_serve_a_sliding_window() -> None:
    plan = plan_of("SELECT count(*), headrace_window() FROM bids [RANGE 10 SLIDE 5]")
    assert not any(type(each) is Aggregate for each in walk(plan))


MISTAKES = [
    ("SELECT headrace_window() FROM bids", "headrace_window()", "RANGE MIN"),
    ("SELECT headrace_window() FROM bids [ROWS 5]", "headrace_window()", "RANGE MIN"),
    ("SELECT headrace_window(bids) FROM bids [UNBOUNDED]", "headrace_window(bids)", "[RANGE …]"),
    (
        "SELECT headrace_window() FROM bids [RANGE 5] AS a, bids [RANGE 5] AS b",
        "headrace_window()",
        "headrace_window(a) or headrace_window(b)",
    ),
    ("SELECT headrace_window(a, b) FROM bids [RANGE 5] AS a", "headrace_window(a, b)", "headrace_window(a)"),
    ("SELECT headrace_window('a') FROM bids [RANGE 5] AS a", "headrace_window('a')", "headrace_window(a)"),
    (
        "SELECT headrace_window() FROM (SELECT * FROM bids [RANGE 5])",
        "headrace_window()",
        "SELECT that has the window",
    ),
    ("SELECT headrace_granularity() FROM bids [RANGE 5]", "headrace_granularity()", "[GRANULARITY"),
    ("SELECT count(*), headrace_granularity() FROM bids [RANGE 5]", "headrace_granularity()", "[GRANULARITY"),
    (
        "SELECT count(*) [GRANULARITY 5] FROM bids [RANGE 9] WHERE headrace_granularity() > 1",
        "headrace_granularity()",
        "[GRANULARITY",
    ),
    (
        "SELECT count(*) [GRANULARITY 5], headrace_granularity(a) FROM bids [RANGE 9] AS a",
        "headrace_granularity(a)",
        "headrace_granularity()",
    ),
]


@pytest.mark.parametrize(("text", "place", "hint"), MISTAKES)
def test_where_there_is_nothing_to_tell_the_place_is_shown(text: str, place: str, hint: str) -> None:
    with pytest.raises(SqlError, match=Code.QUALITY_COLUMN) as caught:
        query(text, SEQUENCE)
    line, carets = (caught.value.excerpt or "\n").split("\n")
    assert line[carets.index("^") : carets.rindex("^") + 1] == place
    assert hint in caught.value.hint


def test_an_unknown_item_is_named() -> None:
    with pytest.raises(SqlError, match=Code.UNKNOWN_STREAM) as caught:
        query("SELECT headrace_window(bid) FROM bids [RANGE 5]", SEQUENCE)
    assert "bids" in caught.value.hint
