"""A driver that others kill: one query over files to the end of them, with files for all that it gives.

python -m tests.spark.killed FOLDER MASTER SINK
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace
from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.sql import StreamDef, query
from headrace.time.ets import DisorderPromise
from tests.spark.conftest import QUICK

COLUMNS = pa.schema([("t", pa.int64()), ("k", pa.int32()), ("v", pa.int64())])
QUERY = query(
    "SELECT k, count(*) AS n, sum(v) AS x, window_end FROM s [RANGE 10 SLIDE 5] GROUP BY k",
    [StreamDef("s", COLUMNS, time_column="t", ticks_per_second=None)],
    name="killed",
    ticks_per_second=None,
)
INPUTS = Inputs(promises={"s": DisorderPromise(6)}, rules={"s": Rules(disordered=True, enforce="strict")})
"""Nothing here depends on the clock, which is another one in each run."""

ROWS = 400


def arrivals(batches: int) -> list[list[dict[str, Any]]]:
    """Rows that are out of order, late now and then, once in a while without a time."""
    rng = random.Random(batches)
    made = []
    for number in range(batches):
        times = [number * 10 + rng.randint(-12, 10) for _ in range(ROWS)]
        made.append([{"t": t, "k": rng.randint(0, 9), "v": rng.randint(0, 99)} for t in times])
        made[-1][7]["t"] = None
    return [*made, [{"t": batches * 10 + 1000, "k": 0, "v": 0}]]


def write(folder: Path, batches: int) -> None:
    """The files, one a micro-batch."""
    folder.mkdir(parents=True)
    for number, rows in enumerate(arrivals(batches)):
        path = folder / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (number + 1, number + 1))


def main(folder: str, master: str, sink: str) -> None:
    # Executors of a local cluster import what the driver does.
    more = {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""), "spark.log.level": "WARN"}
    spark = headrace.spark.session("killed", master, **{**QUICK, **more})
    print(spark.sparkContext.applicationId, flush=True)
    source = spark.readStream.schema("t bigint, k int, v bigint").option("maxFilesPerTrigger", 1)
    s = source.json(f"{folder}/in")
    SINKS[sink](s, folder)


def options() -> headrace.spark.SparkOptions:
    return headrace.spark.SparkOptions(inputs=INPUTS, timer=None, time_column="at")


def to_three_folders(s: Any, folder: str) -> None:
    out = headrace.spark.outputs(QUERY, {"s": s}, options())
    paths = {kind: f"{folder}/out/{kind}" for kind in ("result", "late", "rejected")}
    out.start(checkpoint=f"{folder}/checkpoint", trigger={"availableNow": True}, **paths).awaitTermination()


def to_sparks_own_sink(s: Any, folder: str) -> None:
    out = headrace.spark.apply(QUERY, {"s": s}, options())
    writer = out.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start(f"{folder}/out/result").awaitTermination()


SINKS = {"outputs": to_three_folders, "parquet": to_sparks_own_sink}

if __name__ == "__main__":
    main(*sys.argv[1:])
