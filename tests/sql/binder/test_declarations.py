"""CREATE STREAM, CREATE VIEW, catalogs, and the ways to say which streams there are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import SqlError
from headrace.plan.nodes.core import Source, TimeKind
from headrace.sql import Catalog, StreamDef, declare, query
from tests.sql.running import BIDS, SEQUENCE, answer

DECLARED = "CREATE STREAM s (a BIGINT, b DECIMAL(10, 2), c VARCHAR(9), `d e` DATE, ts TIMESTAMP) TIME ts;"


def test_a_declared_stream_has_its_columns_and_its_time() -> None:
    catalog = Catalog()
    declare(DECLARED, catalog)
    assert catalog.streams["s"] == StreamDef(
        "s",
        pa.schema(
            [
                ("a", pa.int64()),
                ("b", pa.decimal128(10, 2)),
                ("c", pa.string()),
                ("d e", pa.date32()),
                ("ts", pa.timestamp("us", "UTC")),
            ]
        ),
        TimeKind.EXTERNAL,
        "ts",
    )


@pytest.mark.parametrize(
    ("clause", "kind"),
    [("", TimeKind.EXTERNAL), ("TIME INTERNAL", TimeKind.INTERNAL), ("TIME latent", TimeKind.LATENT)],
)
def test_a_stream_may_have_its_time_from_elsewhere(clause: str, kind: TimeKind) -> None:
    found = query(f"CREATE STREAM s (a INT) {clause}; SELECT a FROM s")
    assert found.sources == (Source("s", pa.schema([("a", pa.int32())]), kind),)


def test_a_text_may_declare_what_it_queries() -> None:
    found = query(DECLARED + "SELECT a, year(ts) AS y FROM s [RANGE 1 DAY]")
    assert found.schema == pa.schema([("a", pa.int64()), ("y", pa.int32())])


def test_the_catalog_is_not_changed_by_a_query() -> None:
    catalog = Catalog({"bids": BIDS})
    query("CREATE VIEW v AS SELECT item FROM bids; SELECT * FROM v", catalog)
    assert catalog.names == ["bids"]


def test_a_declaration_that_fails_declares_nothing() -> None:
    catalog = Catalog()
    with pytest.raises(SqlError, match="HR-Q010"):
        declare(DECLARED + "CREATE VIEW v AS SELECT * FROM nowhere", catalog)
    assert catalog.names == []


def test_a_view_is_a_name_for_a_query() -> None:
    catalog = SEQUENCE.copy()
    declare("CREATE VIEW cheap (i, p) AS SELECT item, price FROM bids WHERE price < 15", catalog)
    rows = [(1, 7, 10.0), (2, 8, 20.0), (3, 9, 5.0)]
    assert answer("SELECT i FROM cheap", catalog, bids=rows) == [(1, 7), (3, 9)]
    assert answer("SELECT count(*) FROM cheap [RANGE 9]", catalog, bids=rows) == [(1, 1), (3, 2), (10, 1)]


def test_a_view_of_a_relation_stays_one() -> None:
    catalog = SEQUENCE.copy()
    declare("CREATE VIEW best AS SELECT item, max(price) AS p FROM bids [ROWS 9] GROUP BY item", catalog)
    rows = [(1, 7, 10.0), (2, 7, 20.0)]
    assert answer("SELECT p FROM best WHERE p > 5", catalog, bids=rows) == [(1, 10.0), (2, 20.0)]


def test_replacing_needs_a_word() -> None:
    catalog = SEQUENCE.copy()
    declare("CREATE VIEW v AS SELECT item FROM bids", catalog)
    with pytest.raises(SqlError, match="HR-Q060"):
        declare("CREATE VIEW V AS SELECT price FROM bids", catalog)
    declare("CREATE OR REPLACE VIEW V AS SELECT price FROM bids", catalog)
    assert query("SELECT * FROM v", catalog).schema.names == ["price"]


def test_streams_are_given_as_definitions_sources_or_schemas() -> None:
    text = "SELECT item FROM bids"
    plans = {
        query(text, {"bids": BIDS}).plan,
        query(text, [Source("bids", BIDS)]).plan,
        query(text, [StreamDef("bids", BIDS)]).plan,
        query(text, {"bids": Source("bids", BIDS)}).plan,
        query(text, Catalog({"bids": BIDS})).plan,
    }
    assert len(plans) == 1


@pytest.mark.parametrize("streams", ["bids", [BIDS], {"bids": 3}, 7, None])
def test_what_is_no_stream_is_refused(streams: object) -> None:
    with pytest.raises(SqlError, match="HR-Q063"):
        query("SELECT 1 FROM bids", streams)  # type: ignore[arg-type]


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(SqlError, match="HR-Q001"):
        query(b"SELECT 1 FROM bids", {"bids": BIDS})  # type: ignore[arg-type]


def test_a_definition_has_columns_with_names_of_their_own() -> None:
    with pytest.raises(SqlError, match="HR-Q062"):
        StreamDef("s", pa.schema([("a", pa.int64()), ("A", pa.int64())]))
    with pytest.raises(SqlError, match="HR-Q061"):
        StreamDef("s", BIDS, time_column="ts")


def test_streams_of_two_times_do_not_mix() -> None:
    streams = [StreamDef("a", BIDS), StreamDef("b", BIDS, ticks_per_second=None)]
    for text in ("SELECT * FROM a, b", "SELECT * FROM a UNION ALL SELECT * FROM b"):
        with pytest.raises(SqlError, match="HR-Q023"):
            query(text, streams)


def test_each_stream_counts_its_own_time() -> None:
    streams = [StreamDef("a", BIDS), StreamDef("b", BIDS, ticks_per_second=None)]
    assert query("SELECT * FROM a [RANGE 1 SECOND]", streams).ticks_per_second == 1_000_000
    assert query("SELECT * FROM b [RANGE 5]", streams).ticks_per_second is None
