"""A driver with two executors, which others kill: it says again and again why its query waits.

python -m tests.spark.losing FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa

import headrace
from tests.spark.conftest import QUICK

COLUMNS = pa.schema([("item", pa.int64()), ("at", pa.int64())])
MASTER = "local-cluster[2,1,1024]"


def main(folder: str) -> None:
    # Executors of a local cluster import what the driver does.
    more = {"spark.executorEnv.PYTHONPATH": os.environ.get("PYTHONPATH", ""), "spark.log.level": "WARN"}
    spark = headrace.spark.session("losing", MASTER, **{**QUICK, **more})
    print(spark.sparkContext.applicationId, flush=True)
    rows = spark.readStream.schema("item bigint, at bigint").json(f"{folder}/in")
    streams = [headrace.StreamDef("s", COLUMNS, time_column="at")]
    asked = headrace.query(
        "SELECT item, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY item", streams
    )
    options = headrace.spark.SparkOptions(bounds={"s": {"latency": "1 second"}})
    job = headrace.spark.job({"s": rows}, options, checkpoint=Path(folder) / "checkpoint")
    job.add("counts", asked, sink=Path(folder) / "counts")
    running = job.start()
    while running.isActive:
        time.sleep(0.5)
        print(json.dumps(job.why().plain()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
