"""Headrace as a pipeline from CSV files to a CSV file: what Pathway and PyFlink are asked.

`headrace run` does the same; a thread of its own reads ahead. The windows' ends would be texts in a file, so
the tasks are those without windows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.peers.headrace_peer import QUERIES
from benchmarks.peers.peer import Asked, asked, timed, write
from benchmarks.peers.tasks import BASE, SECOND
from headrace.memory.budget import keep_freed_memory
from headrace.pipeline import parse
from headrace.runtimes.embedded import Runner

STREAM = """
[streams.{name}]
source = "{path}"
schema = "t BIGINT, k BIGINT, v BIGINT"
time = {{ column = "t", unit = "us" }}
"""
PIPELINE = """
[pipeline]
name = "peer"
runtime = "embedded"
{streams}
[[queries]]
name = "q"
sql = '''{sql}'''
sink = {{ path = "{out}", existing = "replace" }}
"""


def source(asked: Asked, stream: str) -> Path:
    """The stream as CSV; writing that is not counted."""
    path = asked.paths[stream].with_suffix(".csv")
    if not path.exists():
        pc.write_csv(asked.read(stream), path)
    return path


def pipeline(asked: Asked, out: Path) -> str:
    """The same query, its windows in seconds."""
    streams = "".join(STREAM.format(name=name, path=source(asked, name)) for name in asked.task.streams)
    text = QUERIES[asked.task.name]
    text = text.replace("[RANGE {w}]", f"[RANGE {asked.task.window} SECONDS]")
    return PIPELINE.format(streams=streams, sql=text.format(w=asked.task.window * SECOND), out=out)


def main() -> None:
    run = asked()
    keep_freed_memory()
    out = run.out.with_suffix(".answers.csv")
    runner = Runner(parse(pipeline(run, out), root=run.out.parent))
    seconds = timed(runner.run)
    write(run, pa.table(pc.read_csv(out)), seconds, begin=BASE)


if __name__ == "__main__":
    main()
