"""The streams of a pipeline file as streaming DataFrames, with times and arrivals in ticks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.connectors.contract import Code
from headrace.connectors.formats import GROWING, Format
from headrace.errors import ConnectorError, PipelineError
from headrace.pipeline import Pipeline, PipelineStream
from headrace.pipeline import spec as file
from headrace.runtimes.embedded.factory import PipelineFactory, any_file, format_of, how_of, is_bounded
from headrace.runtimes.embedded.timing import TOO_EARLY, Timing
from headrace.runtimes.spark.driver.source_names import reader
from headrace.runtimes.spark.driver.stream_rows import TICKS_IN
from headrace.runtimes.spark.types import spark_schema, ticks
from headrace.runtimes.spark.versions import arrow_schema
from headrace.runtimes.spark.worker.partitioner import BAD
from headrace.runtimes.spark.worker.text_lines import Arrivals, TextLines, has_header
from headrace.schema import Schema
from headrace.time.clock import SystemClock
from headrace.time.timestamp import FARTHEST, MAX_TIME

ARRIVAL: Final = "__headrace_arrival"
WITH_SCHEMA: Final = ("json", "csv", "parquet", "orc", "avro", "xml")
"""Spark formats that need a schema; the others have their own."""

MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True)
class Frames:
    """Creates the DataFrames of a pipeline; generated rows are written to `home` beforehand."""

    spark: SparkSession
    pipeline: Pipeline
    home: Path

    @property
    def replays(self) -> bool:
        """Whether recorded or generated instants replace the clock."""
        return self._opening.kind == "arrival"

    @property
    def bounded(self) -> bool:
        """Whether all streams end."""
        return all(is_bounded(s) or _generated(s) for s in self.pipeline.read.values())

    @property
    def _opening(self) -> PipelineFactory:
        return PipelineFactory(self.pipeline, SystemClock(), 0)

    def of(self, name: str) -> DataFrame:
        """The DataFrame of a stream."""
        stream = self.pipeline.streams[name]
        self._check(stream)
        return SOURCES.get(type(stream.spec.source), _refused)(self, stream)

    def _check(self, stream: PipelineStream) -> None:
        """Raise HR-F017 for a stream whose clock or arrivals cannot work on Spark."""
        place = f"streams.{stream.name}"
        if self.replays and stream.spec.arrival is None and not _generated(stream):
            raise PipelineError(
                "HR-F017",
                "on Spark either all streams have recorded arrivals, or none",
                place=place,
                hint="set arrival to a column, or leave arrival out for all streams",
            )
        said = stream.lateness
        by_clock = said.follows_clock or said.transit > 0 or stream.rules.guard != MAX_TIME
        by_clock = by_clock or (said.sources is not None and said.sources.idle is not None)
        if self.pipeline.ticks_per_second is None and by_clock and not self.replays:
            raise PipelineError(
                "HR-F017",
                "on Spark the clock runs in real time, but this stream counts ticks",
                place=place,
                hint="leave latency, skew, transit, idle and guard out, or set arrival to a column",
            )

    def timed(self, stream: PipelineStream, df: DataFrame) -> DataFrame:
        """The rows with their time in ticks and, if arrivals are recorded, their arrival."""
        column = stream.definition.time_column
        if column is not None:
            df = df.withColumn(TICKS_IN, _ticks(df, column, stream.unit, stream.name))
            if stream.earliest is not None:
                df = df.withColumn(BAD, _implausible(column, stream.earliest))
        if self.replays:
            arrival = str(stream.spec.arrival)
            instant = _ticks(df, arrival, stream.unit, stream.name)
            df = df.withColumn(ARRIVAL, F.coalesce(instant, F.lit(0)))
        return df

    def columns(self, stream: PipelineStream) -> Schema:
        """The columns that the source of a stream must have: those of its rows and the arrival."""
        schema, arrival = stream.schema, stream.spec.arrival
        if not self.replays or arrival is None or arrival in schema.names:
            return schema
        time = stream.definition.time_column
        return schema.append(pa.field(arrival, schema.field(time).type if time else pa.int64()))


def _generated(stream: PipelineStream) -> bool:
    """Whether a generator makes its rows, and ends."""
    source = stream.spec.source
    if not isinstance(source, file.PoissonFrom | file.NexmarkFrom) or source.keep_open:
        return False
    ends = source.rows if isinstance(source, file.PoissonFrom) else source.events
    return source.pace == "fast" and ends is not None


def _implausible(column: str, earliest: int) -> Column:
    """The error of a row whose time is too early, as in `embedded.timing`; NULL if there is none."""
    known = F.col(TICKS_IN)
    before, _, after = TOO_EARLY.format(column=column, tick="\0", limit=earliest).partition("\0")
    reason = F.concat(F.lit(before), known.cast("string"), F.lit(after))
    return F.when(known < F.lit(earliest), F.to_json(F.array(F.lit(str(Code.IMPLAUSIBLE)), reason)))


def _ticks(df: DataFrame, column: str, unit: int | None, name: str) -> Column:
    """A column of timestamps or numbers in ticks, the same as `embedded.timing.ticks_of`."""
    known = ticks(df, column, name)
    if isinstance(df.schema[column].dataType, (T.TimestampType, T.TimestampNTZType)):
        return known
    if unit is None or unit == MICROSECONDS:
        return known
    if unit > MICROSECONDS:
        parts = unit // MICROSECONDS
        return F.expr(f"(`{column}` - pmod(`{column}`, {parts})) div {parts}")
    factor = MICROSECONDS // unit
    reach = FARTHEST // factor
    return (
        F.when(known > reach, F.lit(FARTHEST))
        .when(known < -reach, F.lit(-FARTHEST))
        .otherwise(known * factor)
    )


# --- sources ----------------------------------------------------------------------------------------------


def _files(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Lines are parsed by Headrace, Parquet files are read by Spark."""
    spec: Any = stream.spec.source
    path = frames.pipeline.path(spec.path).absolute()
    name = format_of(spec.format, any_file(path), f"streams.{stream.name}.source")
    if name == "arrow":
        raise PipelineError(
            "HR-F017",
            "Spark cannot read Arrow files",
            place=f"streams.{stream.name}.source",
            hint='use Parquet, JSON lines or CSV, or set runtime = "embedded"',
        )
    if name in GROWING:
        return _lines(frames, stream, how_of(spec, name), _pattern(path))
    source = reader(frames.spark, stream.name).format(name).schema(spark_schema(frames.columns(stream)))
    return frames.timed(stream, source.load(_pattern(path)))


def _lines(frames: Frames, stream: PipelineStream, how: Format, path: str) -> DataFrame:
    """Spark finds and splits the files; the readers of the embedded runtime parse the lines."""
    schema, names = frames.columns(stream), tuple(stream.schema.names)
    column, arrival = stream.definition.time_column, stream.spec.arrival
    timing = None if column is None else Timing(column, stream.unit, names, stream.earliest)
    arrivals = Arrivals(str(arrival), stream.unit, ARRIVAL) if frames.replays else None
    extra = [*([TICKS_IN] if timing else ()), *([ARRIVAL] if arrivals else ())]
    whole = [*schema, *(pa.field(name, pa.int64()) for name in extra), pa.field(BAD, pa.string())]
    leaving = spark_schema(pa.schema(whole))
    read = TextLines(schema, how, arrow_schema(leaving), timing, TICKS_IN, arrivals)
    text = reader(frames.spark, stream.name).format("text").option("lineSep", "\n").load(path)
    run = ["_metadata.file_path", "_metadata.file_block_start"] if has_header(how) else []
    return text.select(text["value"].cast("binary"), *run).mapInArrow(read, leaving)


def _pattern(path: Path) -> str:
    """A path that Spark can stream from: a directory or a pattern; a single file becomes a pattern."""
    text = str(path)
    if any(sign in text for sign in "*?[{"):
        return text
    if not path.exists():
        raise ConnectorError(
            "HR-C001", f"there is no file {text!r}", hint="give an existing file or directory, or a pattern"
        )
    return text if path.is_dir() else f"{text[:-1]}[{text[-1]}]"


def _of_spark(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Any streaming source of Spark."""
    spec: Any = stream.spec.source
    source = reader(frames.spark, stream.name).format(spec.format).options(**spec.options)
    if spec.format in WITH_SCHEMA:
        source = source.schema(spark_schema(frames.columns(stream)))
    loaded = source.load(str(frames.pipeline.path(spec.path).absolute())) if spec.path else source.load()
    return frames.timed(stream, loaded)


def _made(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Generated rows are made once, here, with the instants they come at, and then read as files."""
    if not _generated(stream):
        raise PipelineError(
            "HR-F017",
            "on Spark a generator must end, and make its rows without delay",
            place=f"streams.{stream.name}.source",
            hint='set rows or events and pace = "fast", without keep_open; or set runtime = "embedded"',
        )
    inflow = PipelineFactory(frames.pipeline, SystemClock(), 0).inflow(stream)
    schema = stream.schema.append(pa.field(TICKS_IN, pa.int64())).append(pa.field(ARRIVAL, pa.int64()))
    folder = frames.home / "generated" / stream.name
    if not folder.exists():
        draft = folder.with_name(f".{stream.name}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        with pq.ParquetWriter(draft / "rows.parquet", schema) as writer:
            while inflow.load():
                block = inflow.loaded.pop()
                columns = [*block.timed.data.columns, block.timed.times, pa.array(block.arrival)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        draft.rename(folder)
    return reader(frames.spark, stream.name).schema(spark_schema(schema)).parquet(str(folder.absolute()))


def _refused(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Raise HR-F017 for a source that Spark cannot read."""
    raise PipelineError(
        "HR-F017",
        f"the source type {stream.spec.source.type!r} is not available on Spark",
        place=f"streams.{stream.name}.source",
        hint='use files, spark or a generator that ends, or set runtime = "embedded"',
    )


SOURCES: Final[dict[type[Any], Callable[[Frames, PipelineStream], DataFrame]]] = {
    file.FilesFrom: _files,
    file.SparkFrom: _of_spark,
    file.PoissonFrom: _made,
    file.NexmarkFrom: _made,
}
