"""The connectors of Spark for Delta and Iceberg, as source and as sink of a pipeline file, where they exist.

`make test-spark-versions` runs it with PySpark 4.0 to 4.2; Spark downloads the packages from Maven Central.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import pyspark
from deltalake import DeltaTable

from headrace.runtimes.spark.versions import Number, number

pytestmark = [pytest.mark.spark, pytest.mark.versions, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES: dict[tuple[str, Number], str] = {
    ("delta", (4, 0)): "io.delta:delta-spark_4.0_2.13:4.4.0",
    ("delta", (4, 1)): "io.delta:delta-spark_4.1_2.13:4.4.0",
    ("delta", (4, 2)): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("iceberg", (4, 0)): "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    ("iceberg", (4, 1)): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": "{root}/lake",
    },
}
FILE = """
[pipeline]
name = "own"
checkpoint = "state"
[streams.s]
source = {{ type = "spark", format = "{lake}", {source} }}
schema = "k BIGINT, at TIMESTAMP"
time = "at"
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
sink = {{ type = "spark", format = "{lake}", {sink} }}
[spark]
packages = "{package}"
settings = {settings}
"""
PLACES = {
    "delta": ('path = "bids"', 'path = "counts"'),
    "iceberg": ('options = { path = "lake.n.bids" }', 'options = { path = "lake.n.counts" }'),
}
CODE = """
import json, sys
import headrace
from headrace.pipeline import load
from headrace.runtimes.spark.driver.pipeline import Runner, session_settings

lake, table = sys.argv[1:]
pipeline = load("p.toml")
quick = {"spark.ui.enabled": False, "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": 2}
spark = headrace.spark.session("own", "local[2]", **quick, **session_settings(pipeline))
if lake == "iceberg":
    spark.sql("CREATE TABLE lake.n.bids (k BIGINT, at TIMESTAMP) USING iceberg")
    spark.sql("CREATE TABLE lake.n.counts (k BIGINT, n BIGINT) USING iceberg")

def add(seconds):
    rows = spark.range(*seconds).selectExpr("id % 2 AS k", "timestamp_seconds(id) AS at")
    writer = rows.write.format(lake).mode("append")
    writer.save("bids") if lake == "delta" else writer.save("lake.n.bids")

def found():
    try:
        return [row.asDict() for row in spark.read.format(lake).load(table).collect()]
    except Exception:
        return []

add((0, 25))
wanted = [4]
def look(progress):
    if len(found()) >= wanted[0]:
        runner.stop()

for more, count in ((None, 4), ((25, 45), 8)):
    if more:
        add(more)
    wanted[0] = count
    runner = Runner(load("p.toml"), spark)
    runner.run(on_progress=look)
print("FOUND " + json.dumps(found()))
"""


@pytest.mark.parametrize("lake", ["delta", "iceberg"])
def test_a_table_is_read_and_written_by_the_connector_of_spark(lake: str, tmp_path: Path) -> None:
    """Stopped and started again: it continues, and nothing is there twice."""
    package = PACKAGES.get((lake, number(pyspark.__version__)))
    if package is None:
        pytest.skip(f"there is no connector of {lake} for Spark {pyspark.__version__}")
    source, sink = PLACES[lake]
    pairs = (f'"{key}" = "{value.format(root=tmp_path)}"' for key, value in SETTINGS[lake].items())
    settings = f"{{ {', '.join(pairs)} }}"
    text = FILE.format(lake=lake, source=source, sink=sink, package=package, settings=settings)
    (tmp_path / "p.toml").write_text(text)
    table = "counts" if lake == "delta" else "lake.n.counts"
    done = subprocess.run(
        [sys.executable, "-c", CODE, lake, table],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    (line,) = (each for each in done.stdout.splitlines() if each.startswith("FOUND "))
    rows: list[dict[str, Any]] = json.loads(line.removeprefix("FOUND "))
    assert sorted((row["k"], row["n"]) for row in rows) == [(k, 5) for k in (0, 1) for _ in range(4)]
    if lake == "delta":
        run = (tmp_path / "state/spark/outputs/counts.sink").read_text()
        assert DeltaTable(tmp_path / "counts").transaction_version(run) is not None
