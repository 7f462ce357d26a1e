"""Each query both ways, as text and composed: one plan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace import Catalog, Engine, StreamDef, TableDef, TimeKind, col, declare, lit, query, stream, table
from headrace.builder import (
    Builder,
    aggregate,
    avg,
    coalesce,
    count,
    count_distinct,
    desc,
    expr,
    first,
    fn,
    headrace_granularity,
    headrace_window,
    lag,
    last,
    max_,
    min_,
    missing,
    repeated,
    sequence,
    stddev,
    sum_,
    variance,
    when,
)
from tests.sql.running import BIDS, ITEMS, STREAMS, answer

CATALOG = Catalog(STREAMS)
declare("CREATE VIEW dear AS SELECT item, price FROM bids WHERE price > 100", CATALOG)
LABELS = pa.table({"id": pa.array([1], pa.int64()), "label": ["lamp"]})
CATALOG.add_table(TableDef("labels", LABELS.schema, LABELS))
labels = table("labels", LABELS)
bids, items, dear = (stream(name, CATALOG) for name in ("bids", "items", "dear"))
ten = bids.window("10 minutes")
x, y = bids.alias("x"), bids.alias("y")

CASES: dict[str, tuple[str, Callable[[], Builder]]] = {
    # --- one stream, row by row ------------------------------------------------------------------------
    "a stream": ("SELECT * FROM bids", lambda: bids),
    "a view": ("SELECT item FROM dear", lambda: dear.select("item")),
    "where": ("SELECT * FROM bids WHERE price > 10", lambda: bids.where("price > 10")),
    "where, in Python": ("SELECT * FROM bids WHERE price > 10", lambda: bids.where(col("price") > 10)),
    "two conditions": (
        "SELECT * FROM bids WHERE price > 10 AND item <> 3",
        lambda: bids.where("price > 10", col("item").ne(3)),
    ),
    "where twice": (
        "SELECT * FROM bids WHERE price > 10 AND (item = 1 OR item = 2)",
        lambda: bids.where("price > 10").where("item = 1 OR item = 2"),
    ),
    "or, in Python": (
        "SELECT * FROM bids WHERE (price > 10 OR item IN (1, 2)) AND NOT price IS NULL",
        lambda: bids.where((col("price") > 10) | col("item").isin([1, 2]), ~col("price").is_null()),
    ),
    "select": ("SELECT item, price * 2 FROM bids", lambda: bids.select("item", "price * 2")),
    "select with names": (
        "SELECT item AS i, price * 2 AS twice, price AS p FROM bids",
        lambda: bids.select("item AS i", twice="price * 2", p=col("price")),
    ),
    "the row before": (
        "SELECT item, price - LAG(price) OVER (PARTITION BY item) AS rise FROM bids",
        lambda: bids.select("item", rise="price - LAG(price) OVER (PARTITION BY item)"),
    ),
    "the row before, in Python": (
        "SELECT price - LAG(price, 2, 0) OVER (PARTITION BY item) AS rise FROM bids",
        lambda: bids.select(rise=col("price") - lag("price", 2, default="0", partition_by="item")),
    ),
    "where after select": (
        "SELECT * FROM (SELECT item, price * 2 AS twice FROM bids) WHERE twice > 3",
        lambda: bids.select("item", twice="price * 2").where("twice > 3"),
    ),
    "select after where": (
        "SELECT item FROM bids WHERE price > 3",
        lambda: bids.where("price > 3").select("item"),
    ),
    "select twice": (
        "SELECT twice + 1 AS more FROM (SELECT price * 2 AS twice FROM bids)",
        lambda: bids.select(twice="price * 2").select(more="twice + 1"),
    ),
    "functions": (
        "SELECT upper(name) AS u, coalesce(name, 'x') AS c,"
        " CASE WHEN id > 3 THEN 'a' ELSE 'b' END AS w FROM items",
        lambda: items.select(
            u=fn("upper", col("name")),
            c=coalesce(col("name"), "x"),
            w=when(col("id") > 3, "a").otherwise("b"),
        ),
    ),
    "text among Python": (
        "SELECT * FROM bids WHERE (price * 2) > item AND price < 1.5",
        lambda: bids.where(expr("price * 2") > col("item"), "price < 1.5"),
    ),
    "literals": (
        "SELECT 5 AS a, 1.5e0 AS b, 'it\\'s' AS c, NULL AS d, TRUE AS e, CAST(5 AS BIGINT) AS f FROM bids",
        lambda: bids.select(
            a=lit(5), b=lit(1.5), c=lit("it's"), d=lit(None), e=lit(True), f=lit(5, "bigint")
        ),
    ),
    # --- windows ---------------------------------------------------------------------------------------
    "range": ("SELECT * FROM bids [RANGE 10 MINUTES]", lambda: bids.window(range="10 minutes")),
    "range by timedelta": (
        "SELECT * FROM bids [RANGE 90 SECONDS]",
        lambda: bids.window(dt.timedelta(seconds=90)),
    ),
    "range by ticks": ("SELECT * FROM bids [RANGE 7 TICKS]", lambda: bids.window(7)),
    "slide": (
        "SELECT * FROM bids [RANGE 10 MINUTES SLIDE 1 MINUTE]",
        lambda: bids.window("10 minutes", slide=dt.timedelta(minutes=1)),
    ),
    "rows": ("SELECT * FROM bids [ROWS 100]", lambda: bids.window(rows=100)),
    "partition by": (
        "SELECT * FROM bids [PARTITION BY item ROWS 5]",
        lambda: bids.window(rows=5, partition_by="item"),
    ),
    "partition by two": (
        "SELECT * FROM bids [PARTITION BY item, price ROWS 5]",
        lambda: bids.window(rows=5, partition_by=[col("item"), "price"]),
    ),
    "now": ("SELECT * FROM bids [NOW]", lambda: bids.window(now=True)),
    "unbounded": ("SELECT * FROM bids [UNBOUNDED]", lambda: bids.window(unbounded=True)),
    "where before a window": (
        "SELECT * FROM (SELECT * FROM bids WHERE price > 10) [ROWS 3]",
        lambda: bids.where("price > 10").window(rows=3),
    ),
    "where after a window": (
        "SELECT * FROM bids [ROWS 3] WHERE price > 10",
        lambda: bids.window(rows=3).where("price > 10"),
    ),
    "session": (
        "SELECT item, count(*) AS n, window_end FROM bids [SESSION 30 SECONDS] WHERE price > 3 GROUP BY item",
        lambda: (
            bids.window(session="30 seconds")
            .where("price > 3")
            .group_by("item")
            .agg(n=count(), window_end="window_end")
        ),
    ),
    "a range with bounds": (
        "SELECT * FROM bids [RANGE MIN 2 HOURS, MAX 5 HOURS]",
        lambda: bids.window("5 hours", min="2 hours"),
    ),
    "granularity": (
        "SELECT avg(price) [GRANULARITY COARSEST 2 HOURS, FINEST 9 TICKS] AS p FROM bids [RANGE 1 DAY]",
        lambda: bids.window("1 day").agg(p=avg("price").granularity(9, "2 hours")),
    ),
    "the quality that rows were given": (
        "SELECT avg(price) [GRANULARITY COARSEST 2 HOURS, FINEST 9 TICKS] AS p, headrace_granularity() AS g, "
        "headrace_window() AS w FROM bids [RANGE MIN 1 HOUR, MAX 1 DAY]",
        lambda: bids.window("1 day", min="1 hour").agg(
            p=avg("price").granularity(9, "2 hours"), g=headrace_granularity(), w=headrace_window("bids")
        ),
    ),
    "one granularity": (
        "SELECT item, count(*) FILTER (WHERE price > 1) [GRANULARITY 1 MINUTE] AS n "
        "FROM bids [RANGE 1 DAY] GROUP BY item",
        lambda: (
            bids.window("1 day").group_by("item").agg(n=count().filter("price > 1").granularity("1 minute"))
        ),
    ),
    "a session of all": (
        "SELECT count(*) AS n FROM bids [SESSION 9 TICKS] HAVING n > 1",
        lambda: bids.window(session=9).agg(n=count()).having("n > 1"),
    ),
    # --- groups ----------------------------------------------------------------------------------------
    "group by": (
        "SELECT item, count(*) AS n, max(price) AS top FROM bids [RANGE 10 MINUTES] GROUP BY item",
        lambda: ten.group_by("item").agg(n=count(), top=max_("price")),
    ),
    "the issue's example": (
        "SELECT item, count(*) AS n FROM (SELECT * FROM bids WHERE price > 10) [RANGE 10 MINUTES]"
        " GROUP BY item",
        lambda: bids.where("price > 10").window(range="10 minutes").group_by("item").agg(n=count()),
    ),
    "having": (
        "SELECT item, count(*) AS n FROM bids [RANGE 10 MINUTES] GROUP BY item"
        " HAVING n > 3 AND avg(price) < 9",
        lambda: ten.group_by("item").agg(n=count()).having("n > 3").having(avg("price") < 9),
    ),
    "having first": (
        "SELECT item FROM bids [RANGE 10 MINUTES] GROUP BY item HAVING count(*) > 3",
        lambda: ten.group_by("item").having(count() > 3).agg(),
    ),
    "no keys": ("SELECT count(*) AS n FROM bids [RANGE 10 MINUTES]", lambda: ten.agg(n=count())),
    "keys without aggregates": (
        "SELECT item FROM bids [RANGE 10 MINUTES] GROUP BY item",
        lambda: ten.group_by("item").agg(),
    ),
    "keys that are computed": (
        "SELECT item % 10 AS class, sum(price) AS s FROM bids [RANGE 10 MINUTES] GROUP BY item % 10",
        lambda: ten.group_by(**{"class": col("item") % 10}).agg(s=sum_("price")),
    ),
    "keys left out": (
        "SELECT count(*) AS n FROM bids [RANGE 10 MINUTES] GROUP BY item",
        lambda: ten.group_by("item").select(n=count()),
    ),
    "bounds of windows": (
        "SELECT item, window_end, count(*) AS n FROM bids [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY item",
        lambda: bids.window("10 minutes", slide="1 minute").group_by("item").agg("window_end", n=count()),
    ),
    "every aggregate": (
        "SELECT count(price) AS a, count(DISTINCT price) AS b, sum(price) AS c, avg(price) AS d,"
        " min(price) AS e, max(price) AS f, stddev(price) AS g, variance(price) AS h, first(price) AS i,"
        " last(price) AS j, var_pop(price) AS k FROM bids [ROWS 9]",
        lambda: bids.window(rows=9).agg(
            a=count("price"),
            b=count_distinct("price"),
            c=sum_("price"),
            d=avg(col("price")),
            e=min_("price"),
            f=max_("price"),
            g=stddev("price"),
            h=variance("price"),
            i=first("price"),
            j=last("price"),
            k=aggregate("var_pop", "price"),
        ),
    ),
    "computing with aggregates": (
        "SELECT max(price) - min(price) AS spread,"
        " count(*) FILTER (WHERE price > 3) AS dear FROM bids [ROWS 9]",
        lambda: bids.window(rows=9).agg(
            spread=max_("price") - min_("price"), dear=count().filter(col("price") > 3)
        ),
    ),
    "where after groups": (
        "SELECT * FROM (SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item) WHERE n > 3",
        lambda: bids.window(rows=9).group_by("item").agg(n=count()).where("n > 3"),
    ),
    "groups of groups": (
        "SELECT max(n) AS most FROM (SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item)",
        lambda: bids.window(rows=9).group_by("item").agg(n=count()).agg(most=max_("n")),
    ),
    # --- several streams -------------------------------------------------------------------------------
    "join": (
        "SELECT * FROM bids [RANGE 10 MINUTES], items [UNBOUNDED] WHERE item = id",
        lambda: ten.join(items.window(unbounded=True), on="item = id"),
    ),
    "join with names": (
        "SELECT b.price, i.name FROM bids [NOW] AS b JOIN items AS i ON b.item = i.id AND b.price > 3",
        lambda: (
            bids.alias("b")
            .window(now=True)
            .join(items.alias("i"), on=["b.item = i.id", col("b.price") > 3])
            .select("b.price", "i.name")
        ),
    ),
    "join on a column of both": (
        "SELECT x.item FROM bids [ROWS 3] AS x"
        " JOIN bids [ROWS 5] AS y ON x.item = y.item AND x.price < y.price",
        lambda: (
            bids.window(rows=3)
            .alias("x")
            .join(bids.window(rows=5).alias("y"), on=["item", "x.price < y.price"])
            .select("x.item")
        ),
    ),
    "every pair": ("SELECT * FROM bids [NOW], items [NOW]", lambda: _now(bids).join(_now(items))),
    "three": (
        "SELECT a.price, c.name FROM bids [NOW] a, bids [NOW] b, items [NOW] c"
        " WHERE a.item = b.item AND c.id = b.item AND a.price < b.price",
        lambda: (
            _now(bids.alias("a"))
            .join(_now(bids.alias("b")), on="item")
            .join(_now(items.alias("c")), on=["c.id = b.item", "a.price < b.price"])
            .select("a.price", "c.name")
        ),
    ),
    "a filtered side": (
        "SELECT * FROM (SELECT * FROM bids [NOW] WHERE price > 10) AS bids, items [NOW] WHERE item = id",
        lambda: _now(bids).where("price > 10").join(_now(items), on="item = id"),
    ),
    "a grouped side": (
        "SELECT i.name, g.n FROM items [UNBOUNDED] AS i"
        " JOIN (SELECT item, count(*) AS n FROM bids [RANGE 10 MINUTES] GROUP BY item) AS g ON i.id = g.item",
        lambda: (
            items.window(unbounded=True)
            .alias("i")
            .join(ten.group_by("item").agg(n=count()).alias("g"), on="i.id = g.item")
            .select("i.name", "g.n")
        ),
    ),
    "groups of a join": (
        "SELECT name, max(price) AS top FROM bids [RANGE 10 MINUTES], items"
        " WHERE item = id AND price > 3 GROUP BY name",
        lambda: ten.join(items, on="item = id").where("price > 3").group_by("name").agg(top=max_("price")),
    ),
    "a table": (
        "SELECT price, label FROM bids [NOW], labels WHERE item = labels.id",
        lambda: _now(bids).join(labels, on="item = labels.id").select("price", "label"),
    ),
    "union all": (
        "SELECT item FROM bids UNION ALL SELECT id FROM items",
        lambda: bids.select("item").union_all(items.select("id")),
    ),
    "union of three": (
        "SELECT item FROM bids UNION SELECT id FROM items UNION SELECT item FROM dear",
        lambda: bids.select("item").union(items.select("id"), dear.select("item")),
    ),
    "union one by one": (
        "SELECT item FROM bids UNION ALL SELECT id FROM items UNION ALL SELECT item FROM dear",
        lambda: bids.select("item").union_all(items.select("id")).union_all(dear.select("item")),
    ),
    "except": (
        "SELECT item FROM bids [ROWS 3] EXCEPT SELECT id FROM items",
        lambda: bids.window(rows=3).select("item").except_(items.select("id")),
    ),
    "except all of a union": (
        "SELECT item FROM bids EXCEPT ALL (SELECT id FROM items UNION SELECT item FROM dear)",
        lambda: bids.select("item").except_all(items.select("id").union(dear.select("item"))),
    ),
    "except twice": (
        "(SELECT item FROM bids EXCEPT SELECT id FROM items) EXCEPT SELECT item FROM dear",
        lambda: bids.select("item").except_(items.select("id")).except_(dear.select("item")),
    ),
    "where after a union": (
        "SELECT * FROM (SELECT item FROM bids UNION ALL SELECT id FROM items) WHERE item > 3",
        lambda: bids.select("item").union_all(items.select("id")).where("item > 3"),
    ),
    "distinct": (
        "SELECT DISTINCT item FROM bids [ROWS 3]",
        lambda: bids.window(rows=3).select("item").distinct(),
    ),
    "distinct of all": ("SELECT DISTINCT * FROM bids", bids.distinct),
    "where after distinct": (
        "SELECT * FROM (SELECT DISTINCT * FROM bids [ROWS 3]) WHERE price > 3",
        lambda: bids.window(rows=3).distinct().where("price > 3"),
    ),
    # --- sequences -------------------------------------------------------------------------------------
    "sequence": (
        "SELECT x.price, y.price AS p FROM SEQ(bids AS x, bids AS y) RECENT",
        lambda: sequence(x, y, mode="recent").select("x.price", p="y.price"),
    ),
    "sequence by a key": (
        "SELECT x.item, y.price FROM SEQ(bids AS x, bids AS y) CHRONICLE"
        " PARTITION BY item WITHIN 1 HOUR STRICT",
        lambda: sequence(x, y, mode="chronicle", partition_by="item", within="1 hour", strict=True).select(
            "x.item", "y.price"
        ),
    ),
    "missing": (
        "SELECT x.price FROM SEQ(bids AS x, NOT items AS i, bids AS y) UNRESTRICTED WHERE x.price < y.price",
        lambda: (
            sequence(x, missing(items.alias("i")), y, mode="unrestricted")
            .where("x.price < y.price")
            .select("x.price")
        ),
    ),
    "repeated": (
        "SELECT y.price FROM SEQ(bids+ AS x, bids AS y) CHRONICLE WITHIN 5 MINUTES",
        lambda: sequence(repeated(x), y, mode="chronicle", within="5 minutes").select("y.price"),
    ),
    "window of a sequence": (
        "SELECT count(*) AS n FROM SEQ(bids AS x, bids AS y) RECENT [RANGE 1 HOUR]",
        lambda: sequence(x, y, mode="recent").window("1 hour").agg(n="count(*)"),
    ),
    "a sequence that goes on": (
        "SELECT x.price FROM SEQ(bids AS x, bids AS y) RECENT PARTITION BY item WITHIN 1 HOUR",
        lambda: x.sequence(y, mode="recent", partition_by="item", within="1 hour").select("x.price"),
    ),
    "a name for what was joined": (
        "SELECT j.price FROM (SELECT * FROM bids [NOW], items [NOW] WHERE item = id) AS j WHERE j.name = 'a'",
        lambda: (
            _now(bids).join(_now(items), on="item = id").alias("j").where("j.name = 'a'").select("j.price")
        ),
    ),
    "where after a sequence": (
        "SELECT * FROM (SELECT x.price AS p FROM SEQ(bids AS x, bids AS y) RECENT) WHERE p > 3",
        lambda: x.sequence(y, mode="recent").select(p="x.price").where("p > 3"),
    ),
    # --- the first rows --------------------------------------------------------------------------------
    "top of all": (
        "SELECT * FROM bids [RANGE 1 HOUR] ORDER BY price DESC, item LIMIT 5",
        lambda: bids.window("1 hour").top(5, by=[desc("price"), col("item")]),
    ),
    "top of each": (
        "SELECT * FROM bids [RANGE 1 HOUR]"
        " QUALIFY ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC NULLS FIRST) <= 3",
        lambda: bids.window("1 hour").top(3, by="price DESC NULLS FIRST", partition_by="item"),
    ),
    "top with numbers": (
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price) AS place"
        " FROM bids [RANGE 1 HOUR] WHERE price > 1) WHERE place <= 3",
        lambda: (
            bids.window("1 hour").where("price > 1").top(3, by="price", partition_by=["item"], number="place")
        ),
    ),
    "top of groups": (
        "SELECT item, count(*) AS n FROM bids [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY item"
        " ORDER BY n DESC LIMIT 5",
        lambda: (
            bids.window("10 minutes", slide="1 minute")
            .group_by("item")
            .agg(n=count())
            .top(5, by=desc(col("n")))
        ),
    ),
    "select after top": (
        "SELECT item FROM (SELECT * FROM bids [RANGE 1 HOUR] ORDER BY price LIMIT 5)",
        lambda: bids.window("1 hour").top(5, by="price").select("item"),
    ),
    "aggregates after top": (
        "SELECT count(*) AS n FROM (SELECT * FROM bids [RANGE 1 HOUR] ORDER BY price LIMIT 5)",
        lambda: bids.window("1 hour").top(5, by="price").agg(n=count()),
    ),
    "distinct after top": (
        "SELECT DISTINCT * FROM (SELECT * FROM bids [RANGE 1 HOUR] ORDER BY price LIMIT 5)",
        lambda: bids.window("1 hour").top(5, by="price").distinct(),
    ),
    "top twice": (
        "SELECT * FROM (SELECT * FROM bids [RANGE 1 HOUR] ORDER BY price LIMIT 5) ORDER BY item LIMIT 2",
        lambda: bids.window("1 hour").top(5, by="price").top(2, by="item"),
    ),
    # --- outputs ---------------------------------------------------------------------------------------
    "istream": ("ISTREAM(SELECT * FROM bids [NOW])", lambda: _now(bids).istream()),
    "dstream": ("DSTREAM(SELECT item FROM bids [ROWS 3])", lambda: _rows(3).select("item").dstream()),
    "changelog": ("CHANGELOG(SELECT item FROM bids [ROWS 3])", lambda: _rows(3).select("item").changelog()),
    "changelog by key": (
        "CHANGELOG(SELECT DISTINCT item FROM bids [ROWS 3]) PRIMARY KEY (item)",
        lambda: _rows(3).select("item").distinct().changelog("item"),
    ),
    "rstream": ("SELECT RSTREAM(*) FROM bids [NOW]", lambda: _now(bids).rstream()),
    "istream of a sliding window": (
        "SELECT ISTREAM(count(*) AS n) FROM bids [RANGE 2 HOURS SLIDE 1 HOUR]",
        lambda: bids.window("2 hours", slide="1 hour").agg(n=count()).istream(),
    ),
    "slides that differ": (
        "ISTREAM(SELECT * FROM bids [RANGE 2 HOURS SLIDE 1 HOUR], items [RANGE 2 HOURS SLIDE 2 HOURS])",
        lambda: (
            bids.window("2 hours", slide="1 hour").join(items.window("2 hours", slide="2 hours")).istream()
        ),
    ),
    "a window on a stream again": (
        "SELECT count(*) AS n FROM (ISTREAM(SELECT DISTINCT item FROM bids [ROWS 3])) [RANGE 1 HOUR]",
        lambda: _rows(3).select("item").distinct().istream().window("1 hour").agg(n=count()),
    ),
}


def _now(of: Builder) -> Builder:
    return of.window(now=True)


def _rows(count: int) -> Builder:
    return bids.window(rows=count)


@pytest.mark.parametrize("name", CASES)
def test_text_and_builder_give_the_same_plan(name: str) -> None:
    text, compose = CASES[name]
    composed = compose().named("q")
    found = query(text, CATALOG)
    assert (composed.logical, composed.plan) == (found.logical, found.plan)
    assert composed.name == "q"


@pytest.mark.parametrize("name", CASES)
def test_what_was_composed_is_a_text_with_the_same_plan(name: str) -> None:
    composed = CASES[name][1]().named("q")
    assert query(composed.text, CATALOG).plan == composed.plan


def test_every_method_is_in_the_table() -> None:
    import inspect

    source = inspect.getsource(inspect.getmodule(CASES["join"][1]))  # type: ignore[arg-type]
    methods = [
        each for each in vars(Builder) if not each.startswith("_") and callable(getattr(Builder, each))
    ]
    assert [each for each in methods if f".{each}(" not in source] == ["explain"]


def test_composing_leaves_what_was_there_as_it_was() -> None:
    before = bids.text
    bids.where("price > 3").select("item").distinct()
    assert bids.text == before


def test_streams_are_given_in_many_ways() -> None:
    expected = query("SELECT item FROM bids", {"bids": BIDS}).plan
    definition = StreamDef("bids", BIDS)
    for found in (
        stream("bids", BIDS),
        stream("bids", {"bids": BIDS}),
        stream("bids", [definition]),
        stream("bids", Catalog([definition])),
        stream(definition),
        stream(definition.source),
    ):
        assert found.select("item").plan == expected


def test_the_time_of_a_stream_is_as_it_says() -> None:
    latent = stream("bids", BIDS, time=TimeKind.LATENT, ticks_per_second=None).window(100)
    assert latent.named("q").sources[0].time is TimeKind.LATENT
    assert latent.named("q").ticks_per_second is None
    assert stream("bids", {"bids": BIDS}, ticks_per_second=None).named("q").ticks_per_second is None


def test_a_query_is_read_further_whether_text_or_composed() -> None:
    counts = query("SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item", CATALOG, name="counts")
    inside = "ISTREAM(SELECT item, count(*) AS n FROM bids [ROWS 9] GROUP BY item)"
    expected = query(f"SELECT item FROM ({inside}) [NOW] WHERE n > 3", CATALOG).plan
    assert stream(counts).window(now=True).where("n > 3").select("item").named("q").plan == expected


def test_names_that_are_words_of_sql_or_no_words_are_quoted() -> None:
    odd = pa.schema(
        [("select", pa.int64()), ("a b", pa.int64()), ("tick`s", pa.int64()), ("date", pa.int64())]
    )
    found = stream("from", odd).alias("group").where(col("select") > 1, col("group.a b") < 3)
    found = found.select(col("select"), col("date"), **{"x y": col("a b"), "order": col("`tick``s`")})
    assert found.schema.names == ["select", "date", "x y", "order"]


def test_comments_and_line_breaks_in_a_piece_stay_inside_it() -> None:
    found = bids.where("price > 10 -- dear").where("item /* which */\n = 1")
    assert found.plan == query("SELECT * FROM bids WHERE price > 10 AND item = 1", CATALOG).plan
    text = (
        items.where(col("name").eq("a\n  b")).window(now=True).select("name").distinct().istream().window(3)
    )
    assert "'a\n  b'" in text.text


def test_a_composed_query_runs() -> None:
    found = stream("bids", BIDS, ticks_per_second=None).window(10).group_by("item").agg(n=count())
    rows = [(1, 7, 1.0), (3, 7, 2.0)]
    assert answer(found.text, Catalog({"bids": BIDS}, ticks_per_second=None), bids=rows) == [
        (1, 7, 1),
        (3, 7, 2),
        (11, 7, 1),
    ]


def test_both_sides_may_bring_their_own_streams() -> None:
    found = stream("bids", BIDS).join(stream("items", ITEMS), on="item = id")
    assert found.plan == query("SELECT * FROM bids, items WHERE item = id", STREAMS).plan


def test_an_engine_takes_what_was_composed_as_it_is() -> None:
    engine = Engine()
    found = _now(bids).join(labels, on="item = labels.id").select("price", "label")
    engine.add("q", found)
    rows = pa.RecordBatch.from_pylist([{"item": 1, "price": 2.0}, {"item": 2, "price": 3.0}], BIDS)
    engine.push("bids", rows, times=[1, 2])
    engine.streams.end("bids")
    answers = [row for batch in engine.drain("q") for row in batch.data.to_pylist()]
    assert answers == [{"price": 2.0, "label": "lamp"}]


def test_a_composed_query_brings_the_rows_of_its_tables() -> None:
    found = _now(bids).join(labels, on="item = labels.id").named("q")
    assert [each.data for each in found.tables] == [LABELS]
    assert [each.data for each in stream(found).named("r").tables] == [LABELS]
