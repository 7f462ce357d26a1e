"""NEXMark queries on both runtimes over the same events, so that their answers can be compared.

The events arrive scattered in groups, and for some seconds no auction is opened. On Spark they are Parquet
files, one for each stream and micro-batch, read until there are no more; the last brings the end of the
streams.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from examples.nexmark import DEFINITIONS, arrive, engine_for, load
from headrace.connectors.nexmark import STREAMS, NexmarkGenerator, Silence
from headrace.engine.inputs import Inputs
from headrace.graph.admission import Rules
from headrace.time.bounds import NEVER, Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECOND = 1_000_000
BATCHES = 4
"""Micro-batches of a run on Spark; of a run embedded, steps."""


@dataclass(frozen=True)
class Run:
    """The answers of a query, and the seconds they took after what happens once; or why there are none."""

    answers: pa.Table
    seconds: float
    failed: str = ""


def house(events: int, seconds: int = 30) -> NexmarkGenerator:
    """Events of so many seconds, out of order by up to a hundred, with no auction in a tenth of the time."""
    quiet = Silence("auction", 4 * seconds * SECOND // 10, 5 * seconds * SECOND // 10)
    return NexmarkGenerator(seed=1, rate=events / seconds, disorder=100, silences=(quiet,))


def steps(events: int) -> list[tuple[int, int]]:
    """The events of each micro-batch: where they begin, how many."""
    size = -(-events // BATCHES)
    return [(begin, min(size, events - begin)) for begin in range(0, events, size)]


def embedded(name: str, generator: NexmarkGenerator, events: int) -> Run:
    """The engine in this process; making events is not counted."""
    query = load(name)
    engine = engine_for(generator, {name: query})
    found, spent = [], 0.0
    for begin, count in steps(events):
        rows = generator.batches(begin, count)
        began = time.perf_counter()
        arrive(engine, rows)
        found += engine.drain()
        spent += time.perf_counter() - began
    began = time.perf_counter()
    for stream in engine.streams:
        engine.streams.end(stream)
    found += engine.drain()
    spent += time.perf_counter() - began
    return Run(pa.Table.from_batches([batch.data for batch in found], query.schema), spent)


# --- Spark ------------------------------------------------------------------------------------------------


def write_files(folder: Path, generator: NexmarkGenerator, events: int) -> None:
    """A file for each stream and micro-batch, and one row at the end."""
    for stream in (*STREAMS, "ending"):
        (folder / stream).mkdir(parents=True)
    for number, (begin, count) in enumerate(steps(events)):
        for stream, rows in generator.batches(begin, count).items():
            data = pa.table([_in_utc(c) for c in rows.data.columns], names=rows.data.schema.names)
            _put(folder / stream, number, lambda path, data=data: pq.write_table(data, path))
        last = "end\n" if number == BATCHES - 1 else ""
        _put(folder / "ending", number, lambda path, last=last: path.write_text(last))


def _in_utc(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("us", tz="UTC")) if pt.is_timestamp(column.type) else column


def _put(folder: Path, number: int, write: object) -> None:
    path = folder / f"{number}.file"
    write(path)  # type: ignore[operator]
    os.utime(path, (number + 1, number + 1))


def inputs(generator: NexmarkGenerator) -> Inputs:
    """What is known of the generator: by how much any event may come after any other."""
    names = list(STREAMS)
    skew = SkewMatrix.of(names, {(a, b): [(0, generator.skew)] for a in names for b in names})
    rules = {name: Rules(disordered=True) for name in names}
    return Inputs(HeartbeatGenerator(Bounds.of(skew, timeout=NEVER)), rules=rules)


def to_the_end(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query that has read all files."""
    running = start()
    running.awaitTermination()
    return running


def on_spark(
    spark: SparkSession,
    name: str,
    folder: Path,
    generator: NexmarkGenerator,
    play: Callable[[Callable[[], StreamingQuery]], StreamingQuery] = to_the_end,
) -> Run:
    """`headrace.spark.apply` over the files; what the first micro-batch takes, which starts workers, is
    left out. `play` starts the query and gives it back when it has ended."""
    import headrace

    query = load(name)
    wanted = [source.name for source in query.sources]
    said = inputs(generator)
    frames = {each: _read(spark, folder, each) for each in wanted}
    ending = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "ending"))
    options = headrace.spark.SparkOptions(inputs=said, timer=None, ending=ending)
    answers = headrace.spark.apply(query, frames, options)
    home = Path(tempfile.mkdtemp(prefix="nexmark"))
    try:
        writer = answers.writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
        running = play(writer.option("path", str(home / "out")).trigger(availableNow=True).start)
        taken = [p.durationMs["triggerExecution"] for p in running.recentProgress if p.numInputRows]
        rows = pq.read_table(home / "out").select(query.schema.names) if _any(home / "out") else None
    finally:
        shutil.rmtree(home, ignore_errors=True)
    seconds = sum(taken[1:]) / 1000 * len(taken) / max(1, len(taken) - 1)
    return Run(query.schema.empty_table() if rows is None else rows, seconds)


def _read(spark: SparkSession, folder: Path, stream: str) -> DataFrame:
    from headrace.runtimes.spark.types import spark_schema

    schema = spark_schema(pa.schema([(f.name, _type(f.type)) for f in STREAMS[stream].schema]))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / stream))


def _type(of: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz="UTC") if pt.is_timestamp(of) else of


def _any(folder: Path) -> bool:
    return any(folder.glob("*.parquet"))


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows in an order of their own, times as numbers: equal on both runtimes."""
    plain = [_ticks(c) if pt.is_timestamp(c.type) else c for c in table.combine_chunks().columns]
    return sorted(zip(*(c.to_pylist() for c in plain), strict=True), key=repr)


def _ticks(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Microseconds: Spark's files have nanoseconds."""
    return times.cast(pa.timestamp("us", tz=times.type.tz)).cast("int64")


__all__ = ["DEFINITIONS", "Run", "embedded", "house", "on_spark", "rows_of", "write_files"]
