"""The streams of a pipeline file as streaming DataFrames: rows, their time in ticks, their arrival."""

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
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.connectors.codes import Code
from headrace.connectors.formats import GROWING, Format
from headrace.errors import ConnectorError, PipelineError
from headrace.pipeline import Pipeline, PipelineStream
from headrace.pipeline import spec as file
from headrace.runtimes.embedded.opening import Opening, any_file, format_of, how_of, is_bounded
from headrace.runtimes.embedded.timing import IMPLAUSIBLE, Timing
from headrace.runtimes.spark.apply import TICKS_IN
from headrace.runtimes.spark.fan import BAD
from headrace.runtimes.spark.textlines import Arrivals, TextLines, has_header
from headrace.runtimes.spark.types import spark_schema, ticks
from headrace.schema import Schema
from headrace.time.clock import SystemClock
from headrace.time.timestamp import FARTHEST, MAX_TIME

ARRIVAL: Final = "__headrace_arrival"
WITH_SCHEMA: Final = ("json", "csv", "parquet", "orc", "avro", "xml")
"""Formats of Spark whose readers take the columns from us; others bring their own."""

MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True)
class Frames:
    """Makes the DataFrames of a pipeline; `home` is a directory for rows that are made beforehand."""

    spark: SparkSession
    pipeline: Pipeline
    home: Path

    @property
    def replays(self) -> bool:
        """Whether recorded or generated instants are the clock."""
        return self._opening.kind == "arrival"

    @property
    def bounded(self) -> bool:
        """Whether all streams end."""
        return all(is_bounded(s) or _generated(s) for s in self.pipeline.read.values())

    @property
    def _opening(self) -> Opening:
        return Opening(self.pipeline, SystemClock(), 0)

    def of(self, name: str) -> DataFrame:
        """The DataFrame of a stream."""
        stream = self.pipeline.streams[name]
        self._check(stream)
        return SOURCES.get(type(stream.spec.source), _refused)(self, stream)

    def _check(self, stream: PipelineStream) -> None:
        place = f"streams.{stream.name}"
        if self.replays and stream.spec.arrival is None and not _generated(stream):
            raise PipelineError(
                "HR-F017",
                "on Spark all streams have recorded instants, or none",
                place=place,
                hint="arrival = a column, or leave arrival out everywhere",
            )
        by_clock = stream.lateness.latency is not None or stream.rules.guard != MAX_TIME
        if self.pipeline.ticks_per_second is None and by_clock and not self.replays:
            raise PipelineError(
                "HR-F017",
                "on Spark the clock tells time, and this stream counts ticks",
                place=place,
                hint="leave latency and guard out, or give arrival = a column",
            )

    def timed(self, stream: PipelineStream, df: DataFrame) -> DataFrame:
        """The rows with their time in ticks and, where instants are recorded, their arrival."""
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
        """What a stream's source has to give: the columns of its rows, and that of their arrival."""
        schema, arrival = stream.schema, stream.spec.arrival
        if not self.replays or arrival is None or arrival in schema.names:
            return schema
        time = stream.definition.time_column
        return schema.append(pa.field(arrival, schema.field(time).type if time else pa.int64()))


def _generated(stream: PipelineStream) -> bool:
    """Whether its rows are made from a seed, and end."""
    source = stream.spec.source
    if not isinstance(source, file.PoissonFrom | file.NexmarkFrom) or source.keep_open:
        return False
    ends = source.rows if isinstance(source, file.PoissonFrom) else source.events
    return source.pace == "fast" and ends is not None


def _implausible(column: str, earliest: int) -> Column:
    """What is wrong with a row whose time is too early, as `embedded.timing` says it; null if nothing is."""
    known, limit = F.col(TICKS_IN), f"before {earliest}"
    before, _, after = IMPLAUSIBLE.format(column=column, tick="\0", limit=limit).partition("\0")
    reason = F.concat(F.lit(before), known.cast("string"), F.lit(after))
    return F.when(known < F.lit(earliest), F.to_json(F.array(F.lit(str(Code.IMPLAUSIBLE)), reason)))


def _ticks(df: DataFrame, column: str, unit: int | None, name: str) -> Column:
    """A column of timestamps or of numbers in a unit as ticks, as `embedded.timing.ticks_of` has them."""
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
    spec: Any = stream.spec.source
    path = frames.pipeline.path(spec.path).absolute()
    name = format_of(spec.format, any_file(path), f"streams.{stream.name}.source")
    if name == "arrow":
        raise PipelineError(
            "HR-F017",
            "Spark does not read Arrow files",
            place=f"streams.{stream.name}.source",
            hint='use Parquet, JSON lines or CSV, or runtime = "embedded"',
        )
    if name in GROWING:
        return _lines(frames, stream, how_of(spec, name), _pattern(path))
    reader = frames.spark.readStream.format(name).schema(spark_schema(frames.columns(stream)))
    return frames.timed(stream, reader.load(_pattern(path)))


def _lines(frames: Frames, stream: PipelineStream, how: Format, path: str) -> DataFrame:
    """Spark finds and splits files; their lines are read as the embedded runtime reads them."""
    schema, names = frames.columns(stream), tuple(stream.schema.names)
    column, arrival = stream.definition.time_column, stream.spec.arrival
    timing = None if column is None else Timing(column, stream.unit, names, stream.earliest)
    arrivals = Arrivals(str(arrival), stream.unit, ARRIVAL) if frames.replays else None
    beside = [*([TICKS_IN] if timing else ()), *([ARRIVAL] if arrivals else ())]
    whole = [*schema, *(pa.field(name, pa.int64()) for name in beside), pa.field(BAD, pa.string())]
    leaving = spark_schema(pa.schema(whole))
    read = TextLines(schema, how, to_arrow_schema(leaving, timezone="UTC"), timing, TICKS_IN, arrivals)
    text = frames.spark.readStream.format("text").option("lineSep", "\n").load(path)
    run = ["_metadata.file_path", "_metadata.file_block_start"] if has_header(how) else []
    return text.select(text["value"].cast("binary"), *run).mapInArrow(read, leaving)


def _pattern(path: Path) -> str:
    """A path that Spark can stream from: a directory, or a pattern, which also a single file must become."""
    text = str(path)
    if any(sign in text for sign in "*?[{"):
        return text
    if not path.exists():
        raise ConnectorError(
            "HR-C001", f"no file {text!r}", hint="give a file, a directory or a pattern that is there"
        )
    return text if path.is_dir() else f"{text[:-1]}[{text[-1]}]"


def _of_spark(frames: Frames, stream: PipelineStream) -> DataFrame:
    spec: Any = stream.spec.source
    reader = frames.spark.readStream.format(spec.format).options(**spec.options)
    if spec.format in WITH_SCHEMA:
        reader = reader.schema(spark_schema(frames.columns(stream)))
    loaded = reader.load(str(frames.pipeline.path(spec.path).absolute())) if spec.path else reader.load()
    return frames.timed(stream, loaded)


def _made(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Generated rows are made once, here, with the instants they come at, and then read as files."""
    if not _generated(stream):
        raise PipelineError(
            "HR-F017",
            "on Spark a generator must have an end, and make its rows at once",
            place=f"streams.{stream.name}.source",
            hint='give rows or events, pace = "fast", no keep_open; or runtime = "embedded"',
        )
    inflow = Opening(frames.pipeline, SystemClock(), 0).inflow(stream)
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
    return frames.spark.readStream.schema(spark_schema(schema)).parquet(str(folder.absolute()))


def _refused(frames: Frames, stream: PipelineStream) -> DataFrame:
    raise PipelineError(
        "HR-F017",
        f"Spark has no source of type {stream.spec.source.type!r}",
        place=f"streams.{stream.name}.source",
        hint='use files or spark, a generator that ends, or runtime = "embedded"',
    )


SOURCES: Final[dict[type[Any], Callable[[Frames, PipelineStream], DataFrame]]] = {
    file.FilesFrom: _files,
    file.SparkFrom: _of_spark,
    file.PoissonFrom: _made,
    file.NexmarkFrom: _made,
}
