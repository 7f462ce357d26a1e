"""NEXMark by Spark's own operators: the queries that Spark can answer with the same rows.

Spark has no operator for the others in append mode: it answers once for each group and window, and these
queries answer each time that a result changes (`WHY_NOT` says why for each).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

Frames = Mapping[str, DataFrame]
"""The streams by name, each with a watermark on `date_time`."""

CHANNEL: Final = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"


def q0(streams: Frames) -> DataFrame:
    return streams["bid"].select("auction", "bidder", "price", "date_time", "extra")


def q1(streams: Frames) -> DataFrame:
    return streams["bid"].selectExpr("auction", "bidder", "0.908 * price AS price", "date_time", "extra")


def q2(streams: Frames) -> DataFrame:
    return streams["bid"].where("auction IN (1007, 1020, 2001, 2019, 2087)").select("auction", "price")


def q3(streams: Frames) -> DataFrame:
    a = streams["auction"].where("category = 10").alias("a")
    p = streams["person"].where("state IN ('or', 'id', 'ca')").alias("p")
    return a.join(p, F.expr("a.seller = p.id")).select("p.name", "p.city", "p.state", "a.id")


def q5(streams: Frames) -> DataFrame:
    """The most frequent auctions of each window: counts, then the largest of them with those that have it."""
    window = F.window("date_time", "10 seconds", "2 seconds").alias("window")
    counts = streams["bid"].groupBy(window, "auction").agg(F.count("*").alias("num"))
    most = counts.groupBy("window").agg(
        F.max("num").alias("maxn"), F.collect_list(F.struct("auction", "num")).alias("all")
    )
    each = most.select("window", "maxn", F.explode("all").alias("c")).where("c.num >= maxn")
    return each.select("c.auction", "c.num", F.col("window.end").alias("endtime"))


def q7(streams: Frames) -> DataFrame:
    """The highest bids of each window: their price, joined with the bids."""
    highest = streams["bid"].groupBy(F.window("date_time", "10 seconds").alias("window"))
    inside = "price = maxprice AND date_time >= window.start AND date_time < window.end"
    found = streams["bid"].join(highest.agg(F.max("price").alias("maxprice")), F.expr(inside))
    return found.select("auction", "price", "bidder", "date_time", "extra")


def q8(streams: Frames) -> DataFrame:
    """Who came and opened an auction in one window."""
    window = F.window("date_time", "10 seconds")
    p = streams["person"].groupBy(window.alias("pw"), "id", "name").agg(F.count("*").alias("n"))
    a = streams["auction"].groupBy(window.alias("aw"), "seller").agg(F.count("*").alias("m"))
    found = p.join(a, F.expr("id = seller AND pw = aw"))
    return found.select("id", "name", F.col("pw.start").alias("starttime"))


def q11(streams: Frames) -> DataFrame:
    session = F.session_window("date_time", "10 seconds").alias("session")
    found = streams["bid"].groupBy(session, "bidder").agg(F.count("*").alias("bid_count"))
    return found.select(
        "bidder",
        "bid_count",
        F.col("session.start").alias("starttime"),
        F.col("session.end").alias("endtime"),
    )


def q14(streams: Frames) -> DataFrame:
    when = """CASE WHEN hour(date_time) >= 8 AND hour(date_time) <= 18 THEN 'dayTime'
              WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
              ELSE 'otherTime' END AS bid_time_type"""
    found = streams["bid"].where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    return found.selectExpr(
        "auction",
        "bidder",
        "0.908 * price AS price",
        when,
        "date_time",
        "extra",
        "regexp_count(extra, 'c') AS c_counts",
    )


def q20(streams: Frames) -> DataFrame:
    names = ("item_name", "description", "initial_bid", "reserve", "expires", "seller", "category")
    a = streams["auction"].where("category = 10").alias("a")
    b = streams["bid"].alias("b")
    return b.join(a, F.expr("b.auction = a.id")).select(
        *(f"b.{each}" for each in ("auction", "bidder", "price", "channel", "url", "date_time", "extra")),
        *(f"a.{each}" for each in names),
        F.col("a.date_time").alias("opened"),
        F.col("a.extra").alias("auction_extra"),
    )


def q21(streams: Frames) -> DataFrame:
    number = f"""CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                 WHEN 'baidu' THEN '3' ELSE {CHANNEL} END AS channel_id"""
    known = "lower(channel) IN ('apple', 'google', 'facebook', 'baidu')"
    found = streams["bid"].where(f"{CHANNEL} <> '' OR {known}")
    return found.selectExpr("auction", "bidder", "price", "channel", number)


def q22(streams: Frames) -> DataFrame:
    parts = (f"split_part(url, '/', {i + 3}) AS dir{i}" for i in (1, 2, 3))
    return streams["bid"].selectExpr("auction", "bidder", "price", "channel", *parts)


NATIVE: Final[dict[str, Callable[[Frames], DataFrame]]] = {
    each.__name__: each for each in (q0, q1, q2, q3, q5, q7, q8, q11, q14, q20, q21, q22)
}
WITHOUT_WATERMARK: Final = frozenset(("q0", "q1", "q2", "q3", "q14", "q20", "q21", "q22"))
"""Queries without windows: rows are never too old for them."""
WHY_NOT: Final = {
    "q4": "an aggregate over an aggregate without windows answers with each change: no append mode",
    "q6": "the newest ten winning bids of a seller change: no such window, and no append mode",
    "q9": "the winning bid of an auction changes with each higher bid: no append mode",
    "q15": "counts of distinct values are not supported on streams",
    "q16": "counts of distinct values are not supported on streams",
    "q17": "counts without windows answer with each change: no append mode",
    "q18": "the newest row of each key changes: no such window",
    "q19": "ranks over a stream are not supported",
}
