"""A job for a cluster: a Headrace query runs in the executors' Python, over rows that Spark hands them.

Submitted by `examples/cluster/run.py`; prints one line of JSON: who ran what, and the answers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pyarrow as pa

TEXT = "SELECT item, max(price) AS price FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
OUT = "item string, price double, imported string, process int, seconds double"


SCHEMA = pa.schema(
    [
        ("item", pa.string()),
        ("price", pa.float64()),
        ("imported", pa.string()),
        ("process", pa.int32()),
        ("seconds", pa.float64()),
    ]
)


def best(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In an executor: the highest price per item and minute of one partition."""
    begun = time.monotonic()
    import headrace
    from headrace import Engine, Rules, StreamDef, TimerPromise, query

    bids = StreamDef("bids", pa.schema([("item", pa.string()), ("price", pa.float64())]), ticks_per_second=1)
    seconds = time.monotonic() - begun
    engine = Engine()
    engine.declare(bids.source, promise=TimerPromise(0), rules=Rules(disordered=True, enforce="strict"))
    engine.add("best", query(TEXT, [bids]).plan)
    last = 0
    for batch in batches:
        times = batch.column("second").to_pylist()
        engine.push("bids", batch.select(["item", "price"]), times=times)
        last = max([last, *times])
    engine.advance(now=last + 60)
    for answer in engine.drain("best"):
        for row in answer.data.to_pylist():
            about = {"imported": headrace.__file__, "process": os.getpid(), "seconds": seconds}
            yield pa.RecordBatch.from_pylist([{"item": row["item"], "price": row["price"], **about}], SCHEMA)


def main() -> None:
    import headrace

    spark = headrace.spark.session("Headrace on a cluster")
    rows = spark.range(0, 4000, numPartitions=2).selectExpr(
        "concat('item', id % 2) AS item", "CAST(id % 1000 AS double) AS price", "id % 60 AS second"
    )
    by_item = rows.repartitionByRange(2, "item").sortWithinPartitions("second")
    answers = by_item.mapInArrow(best, OUT).collect()
    told = {
        "master": spark.sparkContext.master,
        "application": spark.sparkContext.applicationId,
        "answers": sorted((row.item, row.price) for row in answers),
        "imported": sorted({row.imported for row in answers}),
        "processes": len({row.process for row in answers}),
        "seconds to import": max(round(row.seconds, 1) for row in answers),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main()
