"""A pipeline from a Parquet file to a file of answers, against the engine by itself on the same query.

The engine has its rows in memory and gives its answers away; the pipeline reads, decodes, guards, orders,
answers, writes and commits. It decodes in a thread of its own, so it may use two cores where the
engine uses one. Best of `RUNS`, in turn. `HEADRACE_BENCH_ROWS` makes a smaller run for a quick look.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import workloads
from benchmarks.engine_bench import best
from benchmarks.report import OUT, Result, write
from headrace.engine import Engine
from headrace.pipeline import Pipeline, parse
from headrace.runtimes.embedded import Runner
from headrace.sql import StreamDef, query

RUNS = 5
ROWS = int(os.environ.get("HEADRACE_BENCH_ROWS", "10_000_000"))
SQL = "SELECT k, count(*) AS n, sum(v) AS v, window_end FROM a [RANGE 60 SECONDS SLIDE 1 SECOND] GROUP BY k"
TEXT = """
[pipeline]
name = "bench"
runtime = "embedded"
{pipeline}

[streams.a]
source = "a.parquet"
schema = "t BIGINT, k BIGINT, v BIGINT"
time = {{ column = "t", unit = "us" }}
{stream}

[[queries]]
name = "q"
sql = "{sql}"
sink = {{ path = "{sink}", existing = "replace" }}
late = {{ path = "late.jsonl", existing = "replace" }}
"""


def engine_alone(table: pa.RecordBatch) -> int:
    """Push batches and drain, as the engine's own benchmark does; how many answers there were."""
    engine = Engine()
    engine.add("q", query(SQL, [StreamDef("a", table.schema)]))
    rows = 0
    for begin in range(0, table.num_rows, workloads.BATCH):
        piece = table.slice(begin, workloads.BATCH)
        engine.push("a", piece, piece.column(0).to_numpy())
        rows += sum(len(b) for b in engine.drain())
    engine.streams.end("a")
    return rows + sum(len(b) for b in engine.drain())


def pipeline(root: Path, *, sink: str = "q.parquet", stream: str = "", more: str = "") -> Pipeline:
    """The pipeline over the file in `root`."""
    return parse(TEXT.format(pipeline=more, stream=stream, sink=sink, sql=SQL), root=root)


def run(root: Path, **how: str) -> int:
    """Run a pipeline from nothing to its end; how many answers there were."""
    shutil.rmtree(root / "state", ignore_errors=True)
    return Runner(pipeline(root, **how)).run().progress.queries["q"].rows_out


def results(root: Path) -> list[Result]:
    """Rows/s of both, their ratio, and the cost of a checkpoint."""
    table = workloads.sliding(ROWS).tables["a"]
    pq.write_table(pa.Table.from_batches([table]), root / "a.parquet", row_group_size=1_000_000)
    durable = 'checkpoint = "state"'
    ways = {
        "engine": lambda: engine_alone(table),
        "run": lambda: run(root, more=durable),
        "disordered": lambda: run(root, more=durable, stream='bounds = { disorder = "5 s" }'),
        "json": lambda: run(root, more=durable, sink="q.jsonl"),
    }
    counts = {name: way() for name, way in ways.items()}
    if len(set(counts.values())) != 1:
        raise SystemExit(f"answers differ: {counts}")
    seconds = best(ways, RUNS)
    rates: list[Result] = [
        {"name": f"run.{name}.rows_per_s", "value": ROWS / took, "unit": "rows/s"}
        for name, took in seconds.items()
    ]
    ratio: Result = {
        "name": "run.vs_engine",
        "value": seconds["engine"] / seconds["run"],
        "unit": "x",
        "floor": 0.5,
    }
    return [*rates, ratio, _checkpoint(root)]


def _checkpoint(root: Path) -> Result:
    """Milliseconds of one commit in mid-run."""
    shutil.rmtree(root / "state", ignore_errors=True)
    runner = Runner(pipeline(root, more='checkpoint = "state"\ninterval = "1 hour"'))
    took: list[float] = []
    commit = runner._commit

    def timed() -> None:
        began = time.perf_counter()
        commit()
        took.append(time.perf_counter() - began)

    runner._commit = timed  # type: ignore[method-assign]
    runner.run(max_steps=ROWS // 131_072 // 2)
    return {"name": "checkpoint.ms", "value": min(took) * 1000, "unit": "ms"}


def main() -> int:
    """Measure and write `pipeline.json`."""
    with tempfile.TemporaryDirectory() as root:
        return 0 if write(OUT / "pipeline.json", results(Path(root))) else 1


if __name__ == "__main__":
    raise SystemExit(main())
