"""Queries over the same files, by Headrace and by Spark's own operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from benchmarks.spark_runs import DISORDER, Contender, Start, bounds, by_arrow, dataframe, started

WINDOW: Final = {"sliding": (60, 10), "tumbling": (10, 10)}
RANGE: Final = 10
FILES: Final = 2
"""The files whose micro-batches are counted."""

Source = Callable[[SparkSession, Path], DataFrame]
"""How files become a stream."""


def asked(text: str, frames: Mapping[str, DataFrame]) -> headrace.Query:
    """A query over streams whose times are in `ts`."""
    return headrace.query(text, [headrace.spark.stream(name, df, time="ts") for name, df in frames.items()])


def applied(text: str, frames: Mapping[str, DataFrame], ordered: bool = False, **more: Any) -> DataFrame:
    """The results of a query: in no order within a micro-batch, as those of Spark's operators are."""
    options = headrace.spark.SparkOptions(bounds=bounds(*frames), timer=None, ordered=ordered, **more)
    return headrace.spark.apply(asked(text, frames), frames, options)


def windows_text(size: int, slide: int) -> str:
    return f"""
        SELECT k, count(*) AS n, sum(v) AS s, window_start AS w
        FROM s [RANGE {size} SECONDS SLIDE {slide} SECONDS] GROUP BY k
    """


def our_windows(
    spark: SparkSession, folder: Path, size: int, slide: int, source: Source, ordered: bool = False
) -> Start:
    """`admit` judges lateness by the window, as Spark does."""
    text = windows_text(size, slide)
    return started(lambda: applied(text, {"s": source(spark, folder)}, ordered, enforce="admit"))


def our_outputs(
    spark: SparkSession, folder: Path, size: int, slide: int, source: Source, ordered: bool = False
) -> Start:
    """The same as a job, which sets the number of its partitions and writes its results by Arrow."""

    def start(home: Path) -> StreamingQuery:
        frames = {"s": source(spark, folder)}
        options = headrace.spark.SparkOptions(
            bounds=bounds("s"), timer=None, enforce="admit", ordered=ordered
        )
        made = headrace.spark.outputs(asked(windows_text(size, slide), frames), frames, options)
        to = {"checkpoint": str(home / "checkpoint"), "result": str(home / "out")}
        return made.start(**to, trigger={"availableNow": True})

    return start


def native_windows(spark: SparkSession, folder: Path, size: int, slide: int) -> Start:
    def make() -> DataFrame:
        rows = dataframe(spark, folder).withWatermark("ts", f"{DISORDER} seconds")
        window = F.window("ts", f"{size} seconds", f"{slide} seconds")
        found = rows.groupBy(window, "k").agg(F.count("*").alias("n"), F.sum("v").alias("s"))
        return found.select("k", "n", "s", F.unix_micros("window.start").alias("w"))

    return started(make)


def our_join(spark: SparkSession, left: Path, right: Path, source: Source) -> Start:
    text = f"""
        SELECT a.k AS k, a.v AS n, b.v AS s
        FROM a [RANGE {RANGE} SECONDS], b [RANGE {RANGE} SECONDS] WHERE a.k = b.k
    """
    return started(lambda: applied(text, {"a": source(spark, left), "b": source(spark, right)}))


def native_join(spark: SparkSession, left: Path, right: Path) -> Start:
    near = F.expr(
        f"a.k = b.k AND a.ts > b.ts - INTERVAL {RANGE} SECONDS AND b.ts > a.ts - INTERVAL {RANGE} SECONDS"
    )

    def make() -> DataFrame:
        a = dataframe(spark, left).withWatermark("ts", f"{DISORDER} seconds").alias("a")
        b = dataframe(spark, right).withWatermark("ts", f"{DISORDER} seconds").alias("b")
        chosen = (F.col(c).alias(n) for c, n in (("a.k", "k"), ("a.v", "n"), ("b.v", "s")))
        return a.join(b, near).select(*chosen)

    return started(make)


def our_dedup(spark: SparkSession, folder: Path, source: Source) -> Start:
    """Rows that come twice have the same time: one of them is an answer, the last row of all is not."""
    return started(
        lambda: applied(
            "SELECT DISTINCT k, v AS n, v AS s FROM s [NOW] WHERE k >= 0", {"s": source(spark, folder)}
        )
    )


def native_dedup(spark: SparkSession, folder: Path) -> Start:
    def make() -> DataFrame:
        rows = dataframe(spark, folder).withWatermark("ts", f"{DISORDER} seconds")
        return rows.dropDuplicates(["ts", "k", "v"]).where("k >= 0").selectExpr("k", "v AS n", "v AS s")

    return started(make)


def contenders(ours: Callable[[Source], Start], native: Contender) -> dict[str, Contender]:
    """Spark's own operators, Headrace over files read by Arrow, and Headrace over an ordinary DataFrame."""
    return {"native": native, "ours": Contender(ours(by_arrow)), "dataframe": Contender(ours(dataframe))}
