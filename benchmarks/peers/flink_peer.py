"""PyFlink, its Table API with SQL, which runs in the JVM: window table functions, no Python on the way.

Files are CSV, which Flink brings the connector for. Flink does not order a union. Parallelism is two, the
memory its default. The time of a run has the start of the job in it, some seconds, so the data should not
be small.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.peer import COLUMNS, Asked, asked, write
from benchmarks.peers.tasks import BASE, KEPT

TIME = "ts AS TO_TIMESTAMP_LTZ(t / 1000, 3), WATERMARK FOR ts AS ts"
END = "UNIX_TIMESTAMP(DATE_FORMAT(window_end, 'yyyy-MM-dd HH:mm:ss')) * 1000000 AS e"
QUERIES = {
    "union": f"SELECT t, k, v FROM a WHERE v < {KEPT} UNION ALL SELECT t, k, v FROM b WHERE v < {KEPT}",
    "tumbling": f"""
        SELECT k, {END}, COUNT(*) AS n, SUM(v) AS s
        FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '{{w}}' SECOND))
        GROUP BY k, window_start, window_end""",
    "sliding": f"""
        SELECT k, {END}, COUNT(*) AS n, SUM(v) AS s
        FROM TABLE(HOP(TABLE a, DESCRIPTOR(ts), INTERVAL '{{s}}' SECOND, INTERVAL '{{w}}' SECOND))
        GROUP BY k, window_start, window_end""",
    "join": """
        SELECT x.k AS k, x.t AS ta, y.t AS tb
        FROM (SELECT * FROM TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '{w}' SECOND))) x
        JOIN (SELECT * FROM TABLE(TUMBLE(TABLE b, DESCRIPTOR(ts), INTERVAL '{w}' SECOND))) y
        ON x.k = y.k AND x.window_start = y.window_start AND x.window_end = y.window_end""",
}


def source(asked: Asked, stream: str) -> str:
    """A table over the stream as CSV; writing that is not counted."""
    path = asked.paths[stream].with_suffix(".flink.csv")
    if not path.exists():
        pc.write_csv(asked.read(stream), path, pc.WriteOptions(include_header=False))
    return f"""CREATE TABLE {stream} (t BIGINT, k BIGINT, v BIGINT, {TIME})
               WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"""


def main() -> None:
    run = asked()
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {"parallelism.default": "2", "table.local-time-zone": "UTC", "pipeline.object-reuse": "true"}
    for name, value in settings.items():
        environment.get_config().set(name, value)
    for stream in run.task.streams:
        environment.execute_sql(source(run, stream))
    names = COLUMNS[run.task.name]
    out = run.out.with_suffix(".folder")
    environment.execute_sql(
        f"""CREATE TABLE answers ({", ".join(f"{name} BIGINT" for name in names)})
            WITH ('connector' = 'filesystem', 'path' = 'file://{out}', 'format' = 'csv')"""
    )
    columns = ", ".join(f"`{name}`" for name in names)
    query = QUERIES[run.task.name].format(w=run.task.window, s=run.task.slide)
    began = time.perf_counter()
    environment.execute_sql(f"INSERT INTO answers SELECT {columns} FROM ({query})").wait()
    seconds = time.perf_counter() - began
    read = pc.ReadOptions(column_names=list(names))
    parts = [pc.read_csv(path, read) for path in _files(out)]
    write(run, pa.concat_tables(parts), seconds, begin=BASE)


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("part-*")) if path.stat().st_size]


if __name__ == "__main__":
    main()
