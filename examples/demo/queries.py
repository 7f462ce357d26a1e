"""One question to Headrace and to Spark alone: every five seconds, what happened to each item?"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headrace
from examples.auction import STREAMS
from examples.demo.house import REHEARSAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEHIND = 5
"""Seconds that a row may be on its way: the policy of the house, for both queries."""

GUARD = "1 minute"

CQL = """
SELECT item, count(price) AS bids, max(price) AS price, max(closed) AS closed, window_end
FROM  (SELECT item, price,                  0 AS closed FROM bids
       UNION ALL
       SELECT item, CAST(NULL AS DOUBLE) AS price, 0 AS closed FROM auctions
       UNION ALL
       SELECT item, CAST(NULL AS DOUBLE) AS price, 1 AS closed FROM closings)
      [RANGE 5 SECONDS SLIDE 5 SECONDS] AS house
GROUP BY item"""

COLUMNS = {
    "bids": "item BIGINT, bidder STRING, price DOUBLE, at TIMESTAMP",
    "auctions": "item BIGINT, title STRING, at TIMESTAMP",
    "closings": "item BIGINT, at TIMESTAMP",
}

Row = tuple[int, int, float | None, int]
"""Item, bids, highest price, whether it closed."""


@dataclass
class Window:
    """The answer for one window, and the instant at which it came out."""

    out: float
    rows: set[Row] = field(default_factory=set)


TRIES = 20
TOO_BUSY = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start with a query: too few on a busy machine."""


@dataclass
class Side:
    """One of the two queries, and what came out of it."""

    name: str
    start: Callable[[Side], StreamingQuery]
    windows: dict[int, Window] = field(default_factory=dict)
    late: list[Any] = field(default_factory=list)
    rejected: list[Any] = field(default_factory=list)
    tries: int = TRIES

    def __post_init__(self) -> None:
        self.query = self.start(self)

    def take(self, rows: DataFrame, batch: int) -> None:
        """The sink of answers: windows by the microsecond at which they end."""
        found, now = rows.collect(), time.time()
        for row in found:
            window = self.windows.setdefault(int(row.window_end), Window(now))
            window.rows.add((row.item, row.bids, row.price, row.closed))

    def keep(self, kind: list[Any]) -> Callable[[DataFrame, int], None]:
        """A sink of late or rejected rows."""
        return lambda rows, batch: kind.extend(
            row for row in rows.collect() if json.loads(row.row or "{}").get("item") != REHEARSAL
        )

    @property
    def awake(self) -> bool:
        """Whether the query has been through rows. If it could not begin, it begins anew."""
        error = self.query.exception()
        if error is not None and TOO_BUSY in str(error) and self.tries:
            self.tries -= 1
            self.query = self.start(self)
        self.check()
        return any(_read(progress) for progress in self.query.recentProgress)

    def check(self) -> None:
        """Raise what ended the query, if anything did."""
        error = self.query.exception()
        if error is not None:
            raise error

    @property
    def dropped(self) -> int:
        """Rows that Spark's own operators dropped as late; only their number is known."""
        return sum(op.numRowsDroppedByWatermark for p in self.query.recentProgress for op in p.stateOperators)


def _read(progress: Any) -> bool:
    return any(source.numInputRows for source in progress.sources if "FileStream" in source.description)


def read(spark: SparkSession, root: Path) -> dict[str, DataFrame]:
    """The three streams, as any Spark job reads them."""
    return {name: spark.readStream.schema(COLUMNS[name]).parquet(str(root / name)) for name in STREAMS}


def with_headrace(spark: SparkSession, root: Path) -> Side:
    """The question in CQL; a row is at most so far behind the clock, whether its stream speaks or not."""
    frames = read(spark, root)
    streams = [headrace.spark.stream(name, df, time="at") for name, df in frames.items()]
    made = headrace.spark.outputs(
        headrace.query(CQL, streams, name="with_headrace"),
        frames,
        headrace.spark.SparkOptions(
            bounds={name: {"latency": f"{BEHIND} seconds"} for name in frames}, guard=GUARD
        ),
    )

    def start(side: Side) -> StreamingQuery:
        return made.start(
            checkpoint=str(root / "with_headrace"),
            result=side.take,
            late=side.keep(side.late),
            rejected=side.keep(side.rejected),
        )

    return Side("with Headrace", start)


def spark_alone(spark: SparkSession, root: Path) -> Side:
    """The same question in Spark's own operators, with the same bound as its watermark."""
    from pyspark.sql import functions as F

    marked = {name: df.withWatermark("at", f"{BEHIND} seconds") for name, df in read(spark, root).items()}
    nothing, no, yes = F.lit(None).cast("double").alias("price"), F.lit(0), F.lit(1)
    house = (
        marked["bids"]
        .select("item", "price", no.alias("closed"), "at")
        .unionByName(marked["auctions"].select("item", nothing, no.alias("closed"), "at"))
        .unionByName(marked["closings"].select("item", nothing, yes.alias("closed"), "at"))
    )
    counted = house.groupBy(F.window("at", "5 seconds").alias("w"), "item").agg(
        F.count("price").alias("bids"), F.max("price").alias("price"), F.max("closed").alias("closed")
    )
    answers = counted.select("item", "bids", "price", "closed", F.unix_micros("w.end").alias("window_end"))
    writer = answers.writeStream.outputMode("append").queryName("spark_alone")
    writer = writer.option("checkpointLocation", str(root / "spark_alone"))
    return Side("Spark alone", lambda side: writer.foreachBatch(side.take).start())
