"""SELECT over one stream: columns and their names, conditions, DISTINCT, UNION, EXCEPT, subqueries, WITH."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from headrace.plan.nodes.core import Except, Project, Select, Source, Union
from headrace.sql import Catalog, query
from tests.sql.running import answer, plan_of

BIDS = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, None)]
ITEMS = [(2, 7, "lamp"), (3, 9, "map%")]

SAMPLE = pa.schema(
    [("i", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("b", pa.bool_()), ("t", pa.timestamp("us"))]
)
SAMPLES = Catalog({"sample": SAMPLE}, ticks_per_second=None)
ROW = (1, 6, 2.5, "Ab%c", True, dt.datetime(1971, 1, 2))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("i + 1 * 2", 8),
        ("(i + 1) * 2", 14),
        ("i / 4", 1.5),
        ("i % 4", 2),
        ("-i", -6),
        ("+i", 6),
        ("i - -1", 7),
        ("1L", 1),
        ("2.5e0", 2.5),
        ("'it\\'s'", "it's"),
        ("NULL", None),
        ("NOT b", False),
        ("b AND x > 2 AND i <> 5 OR FALSE", True),
        ("i = 6 AND NULL", None),
        ("x BETWEEN 2 AND 3", True),
        ("x NOT BETWEEN 2 AND 3", False),
        ("i IN (1, 2, 6)", True),
        ("i NOT IN (1, 2)", True),
        ("s LIKE 'A%'", True),
        ("s NOT LIKE '_b%'", False),
        ("s LIKE '%!%c' ESCAPE '!'", True),
        ("s ILIKE 'ab%'", True),
        ("i IS NULL", False),
        ("i IS NOT NULL", True),
        ("b IS TRUE", True),
        ("b IS NOT FALSE", True),
        ("i <=> 6", True),
        ("t - INTERVAL 1 DAY", dt.datetime(1971, 1, 1)),
        ("t + INTERVAL '36' HOURS", dt.datetime(1971, 1, 3, 12)),
        ("t - INTERVAL '1 day 30 minutes'", dt.datetime(1970, 12, 31, 23, 30)),
        ("INTERVAL 1 WEEK + t", dt.datetime(1971, 1, 9)),
        ("t + INTERVAL 5 MINUTES 30 SECONDS", dt.datetime(1971, 1, 2, 0, 5, 30)),
        ("t - INTERVAL 1 HOUR + INTERVAL 1 MINUTE", dt.datetime(1971, 1, 1, 23, 1)),
        ("t BETWEEN t - INTERVAL 1 SECOND AND t + INTERVAL 1 SECOND", True),
        ("t - INTERVAL 5000 WEEKS > t", False),
        ("regexp_count(s, '[A-Z]')", 1),
        ("i IS DISTINCT FROM NULL", True),
        ("CASE WHEN i > 5 THEN 'big' ELSE 'small' END", "big"),
        ("CASE i WHEN 5 THEN 1 WHEN 6 THEN 2 END", 2),
        ("CASE WHEN i > 9 THEN 1 END", None),
        ("if(i > 5, 1, 0)", 1),
        ("coalesce(NULL, i)", 6),
        ("upper(s) || '!'", "AB%C!"),
        ("SUBSTRING(s, 1, 2)", "Ab"),
        ("length(s)", 4),
        ("CAST(x AS INT)", 2),
        ("TRY_CAST('x' AS INT)", None),
        ("CAST(i AS STRING)", "6"),
        ("i::double", 6.0),
        ("year(t)", 1971),
        ("EXTRACT(MONTH FROM t)", 1),
        ("t >= TIMESTAMP '1971-01-01'", True),
        ("greatest(i, 9)", 9),
        ("Mod(i, 4)", 2),
        ("`i`", 6),
        ("SAMPLE.I", 6),
    ],
)
def test_an_expression_has_its_value(expression: str, value: Any) -> None:
    assert answer(f"SELECT {expression} AS v FROM sample", SAMPLES, sample=[ROW]) == [(1, value)]


def test_columns_are_called_as_they_were_written() -> None:
    text = "SELECT ITEM, price AS p, price  *\n 2, b.item, 1 FROM bids AS b"
    assert plan_of(text).schema.names == ["ITEM", "p", "price * 2", "item_1", "1"]


def test_a_star_is_every_column_in_its_place() -> None:
    assert plan_of("SELECT 1 AS one, *, b.* FROM bids b").schema.names == [
        "one",
        "item",
        "price",
        "item_1",
        "price_1",
    ]


def test_numbers_have_the_types_that_spark_gives_them() -> None:
    types = plan_of("SELECT 1, 3000000000, 1.50, 1e0, 99999999999999999999 FROM bids").schema.types
    assert types == [pa.int32(), pa.int64(), pa.decimal128(3, 2), pa.float64(), pa.decimal128(20, 0)]


def test_where_keeps_what_is_true_and_drops_the_unknown() -> None:
    text = "SELECT item FROM bids WHERE price > 5 AND item IN (7, 9)"
    assert answer(text, bids=BIDS) == [(1, 7)]
    assert plan_of("SELECT * FROM bids WHERE item = 1 AND (price = 2 AND item = 3)") == plan_of(
        "SELECT * FROM bids WHERE item = 1 AND price = 2 AND item = 3"
    )


def test_a_query_that_changes_nothing_adds_nothing() -> None:
    assert isinstance(plan_of("SELECT item, price FROM bids"), Source)
    assert isinstance(plan_of("SELECT * FROM bids WHERE item = 1"), Select)


def test_distinct_over_a_window_counts_copies() -> None:
    rows = [(1, 7, 1.0), (2, 7, 2.0), (8, 7, 3.0)]
    assert answer("SELECT DISTINCT item FROM bids [RANGE 3]", bids=rows) == [(1, 7), (8, 7)]


def test_distinct_over_a_stream_remembers_forever() -> None:
    rows = [(1, 7, 1.0), (2, 7, 2.0), (8, 8, 3.0)]
    assert answer("SELECT DISTINCT item FROM bids", bids=rows) == [(1, 7), (8, 8)]


def test_union_all_of_streams_is_a_stream() -> None:
    text = "SELECT item FROM bids UNION ALL SELECT id FROM items"
    assert answer(text, bids=BIDS, items=ITEMS) == [(1, 7), (2, 7), (3, 8), (3, 9), (4, 7)]
    plan = plan_of(text)
    assert isinstance(plan, Union)
    assert plan.schema == pa.schema([("item", pa.int64())])


def test_a_chain_of_unions_is_one_union() -> None:
    plan = plan_of("SELECT item FROM bids UNION ALL SELECT item FROM bids UNION ALL SELECT id FROM items")
    assert isinstance(plan, Union)
    assert len(plan.branches) == 3


def test_union_has_each_row_once() -> None:
    text = "SELECT item FROM bids [RANGE 10] UNION SELECT id FROM items [RANGE 10]"
    assert answer(text, bids=BIDS, items=ITEMS) == [(1, 7), (3, 8), (3, 9)]


def test_except_drops_what_the_other_has() -> None:
    text = "SELECT item FROM bids [RANGE 10] EXCEPT SELECT id FROM items"
    assert answer(text, bids=BIDS, items=ITEMS) == [(1, 7), (3, 8)]
    assert answer(f"DSTREAM({text})", bids=BIDS, items=ITEMS) == [(2, 7), (13, 8)]


def test_except_all_counts_copies() -> None:
    text = "SELECT item FROM bids [RANGE 10] EXCEPT ALL SELECT id FROM items [RANGE 10]"
    assert answer(text, bids=BIDS, items=ITEMS) == [(1, 7), (3, 8), (4, 7), (12, 7)]
    plan = plan_of(text)
    assert isinstance(plan.inputs[0], Except)
    assert plan.inputs[0].all


def test_a_subquery_is_a_from_item() -> None:
    text = "SELECT p + 1 AS q FROM (SELECT price * 2 AS p FROM bids WHERE item = 7) WHERE p IS NOT NULL"
    assert answer(text, bids=BIDS) == [(1, 21.0)]


def test_an_alias_can_rename_columns() -> None:
    assert answer("SELECT a FROM bids AS b(a, c) WHERE c > 15", bids=BIDS) == [(3, 8)]


def test_with_names_queries_that_see_those_before() -> None:
    text = """
        WITH dear AS (SELECT item FROM bids WHERE price > 5),
             named(i) AS (SELECT item * 10 FROM dear)
        SELECT i FROM named
    """
    assert answer(text, bids=BIDS) == [(1, 70), (3, 80)]


def test_with_hides_a_stream_of_the_same_name() -> None:
    assert answer("WITH bids AS (SELECT item FROM bids) SELECT * FROM bids", bids=BIDS[:1]) == [(1, 7)]


def test_with_can_stand_before_an_output() -> None:
    text = "WITH r AS (SELECT * FROM bids [RANGE 2]) DSTREAM(SELECT item FROM r)"
    assert answer(text, bids=BIDS[:1]) == [(3, 7)]


def test_parentheses_change_nothing() -> None:
    plain = plan_of("SELECT item FROM bids UNION ALL SELECT id FROM items")
    assert plan_of("((SELECT item FROM (bids)) UNION ALL (SELECT id FROM items))") == plain


def test_comments_and_semicolons_are_passed_over() -> None:
    text = "/* what */ SELECT item -- which\nFROM bids; -- done\n;"
    assert isinstance(plan_of(text), Project)


def test_a_query_knows_its_text_its_name_and_its_streams() -> None:
    found = query("SELECT item FROM bids, items", {"items": SAMPLE, "bids": BIDS_SCHEMA}, name="pairs")
    assert (found.name, found.text) == ("pairs", "SELECT item FROM bids, items")
    assert [each.name for each in found.sources] == ["bids", "items"]
    assert found.schema.names == ["item"]
    assert found.ticks_per_second == 1_000_000


BIDS_SCHEMA = pa.schema([("item", pa.int64()), ("price", pa.float64())])


def test_the_words_of_clauses_are_names_too() -> None:
    names = [
        "range",
        "rows",
        "now",
        "time",
        "stream",
        "slide",
        "view",
        "count",
        "istream",
        "session",
        "first",
    ]
    catalog = Catalog({"stream": pa.schema([(name, pa.int64()) for name in names])})
    found = query(f"SELECT {', '.join(names)} FROM stream WHERE range > now", catalog)
    assert found.schema.names == names
    assert query("SELECT s.rows AS range FROM stream AS s [ROWS 5]", catalog).schema.names == ["range"]


def test_queries_without_names_can_be_joined() -> None:
    text = "SELECT item, id FROM (SELECT item FROM bids), (SELECT id FROM items), (SELECT 1 AS one FROM bids)"
    assert plan_of(text).schema.names == ["item", "id"]
