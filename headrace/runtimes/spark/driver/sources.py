"""The streams of a pipeline file as streaming DataFrames, with times and arrivals in ticks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace import tuning
from headrace.connectors.contract import Code
from headrace.connectors.formats import Format
from headrace.connectors.history import LIVE, PAST
from headrace.connectors.pieces import PieceReader, Storage
from headrace.connectors.remote import is_remote, storage_of
from headrace.errors import ConnectorError, PipelineError
from headrace.pipeline import Pipeline, PipelineStream
from headrace.pipeline import spec as file
from headrace.pipeline.secrets import revealed_options
from headrace.runtimes.embedded.factory import (
    PipelineFactory,
    any_file,
    cut_of,
    format_of,
    goes_live,
    how_of,
    is_bounded,
    kafka_format,
    kafka_settings,
    kafka_start,
    lake_of,
    located,
    part_of,
)
from headrace.runtimes.embedded.timing import TOO_EARLY, Timing
from headrace.runtimes.spark.driver.files import FileStream, listing, parts_in
from headrace.runtimes.spark.driver.kafka import java_options, load, messages
from headrace.runtimes.spark.driver.lakes import lake
from headrace.runtimes.spark.driver.objects import ObjectStream, check_options, object_listing
from headrace.runtimes.spark.driver.pasts import Pasts
from headrace.runtimes.spark.driver.reading import limits
from headrace.runtimes.spark.driver.source_names import OWN, can_have_names, reader
from headrace.runtimes.spark.driver.stream_rows import TICKS_IN
from headrace.runtimes.spark.driver.task_streams import TaskStream
from headrace.runtimes.spark.types import spark_schema, ticks
from headrace.runtimes.spark.versions import first_with
from headrace.runtimes.spark.worker.file_rows import FileRows
from headrace.runtimes.spark.worker.object_rows import Place
from headrace.runtimes.spark.worker.partitioner import BAD, REACHED
from headrace.runtimes.spark.worker.task_rows import Arrivals, CutRows, described, filled
from headrace.schema import Schema
from headrace.time.clock import SystemClock
from headrace.time.timestamp import FARTHEST, MAX_TIME

ARRIVAL: Final = "__headrace_arrival"
WITH_SCHEMA: Final = ("json", "csv", "parquet", "orc", "avro", "xml")
"""Spark formats that need a schema; the others have their own."""

MICROSECONDS: Final = 1_000_000


def replays(pipeline: Pipeline) -> bool:
    """Whether recorded or generated instants replace the clock."""
    return PipelineFactory(pipeline, SystemClock(), 0).kind == "arrival"


def bounded(pipeline: Pipeline) -> bool:
    """Whether all streams of a pipeline end."""
    return all(_ends(stream) for stream in pipeline.read.values())


def _ends(stream: PipelineStream) -> bool:
    """Whether a stream ends."""
    source = stream.spec.source
    if isinstance(source, file.HistoryFrom):
        return not source.keep_open and _ends(part_of(stream, LIVE))
    if isinstance(source, file.KafkaFrom):
        return not (source.follow or source.keep_open)
    return is_bounded(stream) or _generated(stream)


def check_stream(pipeline: Pipeline, stream: PipelineStream) -> None:
    """Raise HR-F017 for a stream whose source, clock or arrivals cannot work on Spark."""
    place, replayed = f"streams.{stream.name}", replays(pipeline)
    if replayed and stream.spec.arrival is None and not _generated(stream):
        raise PipelineError(
            "HR-F017",
            "on Spark either all streams have recorded arrivals, or none",
            place=place,
            hint="set arrival to a column, or leave arrival out for all streams",
        )
    if stream.of is not None:
        raise PipelineError(
            "HR-F017",
            "other orders of the rows of a stream are not available on Spark",
            place=f"{place}.of",
            hint='give both streams the source, which is then read twice, or set runtime = "embedded"',
        )
    said = stream.lateness
    by_clock = said.follows_clock or said.transit > 0 or stream.rules.guard != MAX_TIME
    by_clock = by_clock or (said.sources is not None and said.sources.idle is not None)
    if pipeline.ticks_per_second is None and by_clock and not replayed:
        raise PipelineError(
            "HR-F017",
            "on Spark the clock runs in real time, but this stream counts ticks",
            place=place,
            hint="leave latency, skew, transit, idle and guard out, or set arrival to a column",
        )
    if type(stream.spec.source) not in SOURCES:
        raise _refused(stream)


def _refused(stream: PipelineStream) -> PipelineError:
    """The error for a source that Spark cannot read."""
    return PipelineError(
        "HR-F017",
        f"the source type {stream.spec.source.type!r} is not available on Spark",
        place=f"streams.{stream.name}.source",
        hint='use files, kafka, spark or a generator that ends, or set runtime = "embedded"',
    )


@dataclass(frozen=True)
class Frames:
    """Creates the DataFrames of a pipeline; generated rows are written to `home` beforehand."""

    spark: SparkSession
    pipeline: Pipeline
    home: Path

    @property
    def pasts(self) -> Pasts:
        """Which streams still read their history."""
        return Pasts(self.pipeline, self.home / "history")

    @property
    def replays(self) -> bool:
        """Whether recorded or generated instants replace the clock."""
        return replays(self.pipeline)

    @property
    def bounded(self) -> bool:
        """Whether all streams end."""
        return bounded(self.pipeline)

    def of(self, name: str) -> DataFrame:
        """The DataFrame of a stream."""
        stream = self.pipeline.streams[name]
        check_stream(self.pipeline, stream)
        made = SOURCES[type(stream.spec.source)](self, stream)
        return made.frame() if isinstance(made, TaskStream) else made

    def timing(self, stream: PipelineStream) -> dict[str, Any]:
        """How tasks compute the times of rows, and their arrivals if these are recorded."""
        column, arrival = stream.definition.time_column, stream.spec.arrival
        names = tuple(stream.schema.names)
        return {
            "timing": None if column is None else Timing(column, stream.unit, names, stream.earliest),
            "ticks": TICKS_IN,
            "arrivals": Arrivals(str(arrival), stream.unit, ARRIVAL) if self.replays else None,
        }

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

    def options(self, stream: PipelineStream) -> dict[str, Any]:
        """The options of Spark's source, from `[spark.sources.NAME]`."""
        place = f"spark.sources.{stream.name}"
        found = revealed_options(self.pipeline.spec.spark.sources.get(stream.name, {}), place)
        if found and not isinstance(stream.spec.source, TAKES_OPTIONS):
            raise PipelineError(
                "HR-F017",
                f"a source of type {stream.spec.source.type!r} takes no options of Spark",
                place=place,
                hint="only files, kafka and spark are read by a source of Spark",
            )
        if self.bounded and any(limits(name) for name in found):
            raise PipelineError(
                "HR-F017",
                "a run that ends reads everything in one micro-batch, without a rate limit",
                place=place,
                hint="leave the limit out, or set follow = true",
            )
        return found

    def columns(self, stream: PipelineStream) -> Schema:
        """The columns that the source of a stream must have: those of its rows and the arrival."""
        schema, arrival = stream.schema, stream.spec.arrival
        if not (self.replays or goes_live(stream)) or arrival is None or arrival in schema.names:
            return schema
        time = stream.definition.time_column
        return schema.append(pa.field(arrival, schema.field(time).type if time else pa.int64()))


def source_name(stream: PipelineStream) -> str:
    """The name of the source of a stream in a checkpoint; the past of a stream has one of its own."""
    name, dot, part = stream.name.partition(".")
    return f"{OWN}{part}_{name}" if dot else name


def _generated(stream: PipelineStream) -> bool:
    """Whether a generator makes its rows, and ends."""
    source = stream.spec.source
    if isinstance(source, file.PythonFrom):
        return source.bounded and not source.keep_open
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


def _files(frames: Frames, stream: PipelineStream) -> TaskStream:
    """Spark lists the files, and the readers of the embedded runtime read them."""
    spec: Any = stream.spec.source
    if is_remote(spec.path):
        return _objects(frames, stream)
    path = frames.pipeline.path(spec.path).absolute()
    name = format_of(spec.format, any_file(path), f"streams.{stream.name}.source")
    how = _in_tasks(how_of(spec, name), spec)
    listed = listing(frames.spark, _pattern(path), source_name(stream), frames.options(stream))
    reader = PieceReader(frames.columns(stream), how, Storage(), base=str(path))
    return FileStream(listed, FileRows(reader), parts=parts_in(frames.spark), **frames.timing(stream))


def _objects(frames: Frames, stream: PipelineStream) -> TaskStream:
    """Objects of a store, which a data source of ours lists."""
    spec: Any = stream.spec.source
    place, name = f"streams.{stream.name}.source", source_name(stream)
    how = _in_tasks(how_of(spec, format_of(spec.format, spec.path, place)), spec)
    storage = storage_of(spec.path, revealed_options(spec.storage, f"{place}.storage"))
    parts, follow, options = parts_in(frames.spark), spec.follow or spec.keep_open, frames.options(stream)
    check_options(options, f"spark.sources.{stream.name}")
    log = (frames.home / "objects" / f"{name}.jsonl").absolute()
    listed = object_listing(
        frames.spark, name, Place(spec.path, storage, log, follow, spec.poll, parts), options
    )
    rows = FileRows(PieceReader(frames.columns(stream), how, storage, base=spec.path))
    polled = spec.poll if follow else 0.0
    return ObjectStream(listed, rows, parts=parts, polled=polled, **frames.timing(stream))


def _in_tasks(how: Format, spec: Any) -> Format:
    """How tasks read files: in larger blocks, because each block has a fixed cost there."""
    return replace(how, rows=tuning.current.task_block_rows, most=spec.max_block)


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
    source = reader(frames.spark, stream.name).format(spec.format)
    own = revealed_options(spec.options, f"streams.{stream.name}.source.options")
    source = source.options(**{**own, **frames.options(stream)})
    if spec.format in WITH_SCHEMA:
        source = source.schema(spark_schema(frames.columns(stream)))
    loaded = source.load(located(frames.pipeline, spec.path)) if spec.path else source.load()
    return frames.timed(stream, loaded)


def _kafka(frames: Frames, stream: PipelineStream) -> TaskStream:
    """Spark's connector reads the topics, and the decoders of the embedded runtime read the values."""
    spec: Any = stream.spec.source
    place = f"streams.{stream.name}.source"
    settings = kafka_settings(spec, place)
    options = {**java_options(settings.options, place), **frames.options(stream)}
    loaded = load(
        frames.spark,
        settings.servers,
        spec.topics,
        stream.name,
        frames.pasts.offsets(stream.name) or kafka_start(spec),
        spec.isolation,
        options,
    )
    schema, how = frames.columns(stream), kafka_format(frames.pipeline, spec)
    return messages(loaded, schema, how, spec.metadata, place, **frames.timing(stream))


def _lake(frames: Frames, stream: PipelineStream) -> TaskStream:
    """A table that a data source of ours lists, and that the readers of the embedded runtime read."""
    spec: Any = stream.spec.source
    return lake(
        frames.spark,
        source_name(stream),
        lake_of(frames.pipeline, stream),
        frames.columns(stream),
        follow=spec.follow or spec.keep_open,
        new=spec.start == "new",
        poll=spec.poll,
        options=frames.options(stream),
        **frames.timing(stream),
    )


def _history(frames: Frames, stream: PipelineStream) -> TaskStream:
    """The past of a stream until it has been read (`Pasts`); from the next start on what comes after it."""
    cut = cut_of(frames.pipeline, stream)
    in_past = frames.pasts.has(stream.name)
    part = PAST if in_past else LIVE
    for each in (PAST, LIVE):
        if type(getattr(stream.spec.source, each)) not in PARTS:
            raise _refused(part_of(stream, each))
    if not can_have_names(frames.spark):
        raise PipelineError(
            "HR-F017",
            "a history and a live source in one stream need names for sources, which Spark "
            f"{first_with('named_sources')} has",
            place=f"streams.{stream.name}.source",
            hint='install a later PySpark, or set runtime = "embedded"',
        )
    if in_past:
        frames.pasts.begin(stream.name)
    read = part_of(stream, part)
    named = read if in_past else replace(read, definition=stream.definition)
    made = PARTS[type(read.spec.source)](frames, named)
    arrivals = None
    if in_past and stream.spec.arrival is not None and goes_live(stream):
        arrivals = Arrivals(stream.spec.arrival, stream.unit, REACHED)
    reader = made.reader if cut is None else CutRows(made.reader, cut, part)
    return replace(made, reader=reader, past=in_past, recorded=arrivals)


def _made(frames: Frames, stream: PipelineStream) -> DataFrame:
    """Generated rows are made once, here, with the instants they come at, and then read as files."""
    if not _generated(stream):
        raise PipelineError(
            "HR-F017",
            "on Spark a generator or function must end, and make its rows without delay",
            place=f"streams.{stream.name}.source",
            hint='set rows or events and pace = "fast" (for a function, bounded = true), without keep_open; '
            'or set runtime = "embedded"',
        )
    inflow = PipelineFactory(frames.pipeline, SystemClock(), 0).inflow(stream)
    schema = pa.schema(
        [
            *stream.schema,
            pa.field(TICKS_IN, pa.int64()),
            pa.field(ARRIVAL, pa.int64()),
            *([pa.field(BAD, pa.string())] if isinstance(stream.spec.source, file.PythonFrom) else ()),
        ]
    )
    folder = frames.home / "generated" / stream.name
    if not folder.exists():
        draft = folder.with_name(f".{stream.name}")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        with pq.ParquetWriter(draft / "rows.parquet", schema) as writer:
            while inflow.load():
                block = inflow.loaded.pop()
                columns = dict(zip(block.timed.data.schema.names, block.timed.data.columns, strict=True))
                columns[ARRIVAL] = pa.array(block.arrival)
                if inflow.timing is not None:
                    columns[TICKS_IN] = block.timed.times
                writer.write_batch(filled(schema, columns, block.timed.data.num_rows))
                if block.bad:
                    reasons = described(block.bad)
                    instants = pa.array([0] * len(block.bad))
                    columns = {BAD: reasons, ARRIVAL: instants}
                    writer.write_batch(filled(schema, columns, len(block.bad)))
        draft.rename(folder)
    found = reader(frames.spark, stream.name).schema(spark_schema(schema)).parquet(str(folder.absolute()))
    without = [ARRIVAL] if not frames.replays else []
    without += [TICKS_IN] if inflow.timing is None else []
    return found.drop(*without)


TAKES_OPTIONS: Final = (file.FilesFrom, file.KafkaFrom, file.SparkFrom, file.LakeFrom)
PARTS: Final[dict[type[Any], Callable[[Frames, PipelineStream], TaskStream]]] = {
    file.FilesFrom: _files,
    file.KafkaFrom: _kafka,
    file.DeltaFrom: _lake,
    file.IcebergFrom: _lake,
}
"""Sources whose rows tasks decode: they can be the past of a stream, and what comes after it."""
SOURCES: Final[dict[type[Any], Callable[[Frames, PipelineStream], DataFrame | TaskStream]]] = {
    **PARTS,
    file.HistoryFrom: _history,
    file.SparkFrom: _of_spark,
    file.PoissonFrom: _made,
    file.NexmarkFrom: _made,
    file.PythonFrom: _made,
}
