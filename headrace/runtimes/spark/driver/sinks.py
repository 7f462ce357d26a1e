"""The sinks of a pipeline file on Spark: functions that write the rows of each micro-batch."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.connectors.encode import csv_header
from headrace.connectors.existing_output import clear, is_there, refuse
from headrace.connectors.kafka.encode import MessageFormat
from headrace.connectors.remote import is_remote
from headrace.connectors.sinks import ENCODERS
from headrace.connectors.staged import Target
from headrace.errors import PipelineError
from headrace.expressions.types import INSTANT
from headrace.pipeline import Pipeline
from headrace.pipeline import spec as file
from headrace.pipeline.secrets import revealed_options
from headrace.runtimes.embedded.factory import (
    STAGED,
    format_of,
    kafka_settings,
    located,
    message_format,
    target_of,
)
from headrace.runtimes.spark.driver.kafka import java_options
from headrace.runtimes.spark.driver.writing import Files, Sink
from headrace.runtimes.spark.worker.partitioner import task_number, typed
from headrace.schema import Schema

MESSAGE: Final = ["key", "value"]
ROWS_OF_A_TASK: Final = 33
"""Bits of the number of a row; the bits above are the number of its task."""


@dataclass(frozen=True)
class Encoded:
    """Rows as text, in `mapInArrow`: the same lines that the embedded runtime writes."""

    schema: Schema
    format: str
    header: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        head = csv_header(self.schema) if self.format == "csv" and self.header else b""
        for batch in batches:
            if batch.num_rows:
                lines = head + ENCODERS[self.format](typed(batch, self.schema))
                head = b""
                yield pa.RecordBatch.from_pydict({"value": [lines.decode().removesuffix("\n")]})


@dataclass(frozen=True)
class LineFiles:
    """Text files in a folder `batch=<number>` for each micro-batch, overwritten if that runs again."""

    path: str
    encoded: Encoded

    def __call__(self, rows: DataFrame, batch: int) -> None:
        lines = rows.mapInArrow(self.encoded, "value string")
        lines.write.mode("overwrite").text(f"{self.path}/batch={batch}")


@dataclass(frozen=True)
class StandardOut:
    """Lines on standard output; a micro-batch that runs again prints again."""

    encoded: Encoded

    def __call__(self, rows: DataFrame, batch: int) -> None:
        for row in rows.mapInArrow(self.encoded, "value string").toLocalIterator():
            print(row.value, file=sys.stdout, flush=True)


@dataclass(frozen=True)
class OfSpark:
    """Any Spark sink that takes batches; only Delta's leaves out a micro-batch that runs again (`ONCE`)."""

    format: str
    options: dict[str, Any] = field(repr=False)
    path: str | None
    run: Run

    def __call__(self, rows: DataFrame, batch: int) -> None:
        once = ONCE.get(self.format.lower(), _each_time)(self.run, batch)
        rows.write.format(self.format).options(**{**once, **self.options}).mode("append").save(self.path)


@dataclass(frozen=True)
class Stamped:
    """A sink whose rows get their time as a timestamp, for streams with real time."""

    sink: Sink
    column: str

    def __call__(self, rows: DataFrame, batch: int) -> None:
        self.sink(rows.withColumn(self.column, F.timestamp_micros(self.column)), batch)


@dataclass(frozen=True)
class Sinks:
    """Creates the sinks of a pipeline; `fresh`: the output has not been written before.

    `when_accepted` gets what must happen before the first write, if the start is not refused.
    """

    pipeline: Pipeline
    home: Path
    fresh: bool
    when_accepted: list[Callable[[], object]]

    def of(self, spec: Any, schema: Schema, place: str) -> Sink:
        """The sink that `spec` describes, for rows of `schema`."""
        made: Sink = SINKS[type(spec)](self, spec, schema, place)
        return made

    def answers(self, spec: Any, schema: Schema, place: str) -> Sink:
        """The sink of the results, with a time column if the file asks for one."""
        if spec.time is None or self.pipeline.ticks_per_second is None:
            extra = [] if spec.time is None else [pa.field(spec.time, pa.int64())]
            return self.of(spec, pa.schema([*schema, *extra]), place)
        stamped = schema.append(pa.field(spec.time, INSTANT))
        return Stamped(self.of(spec, stamped, place), spec.time)

    def prepare(self, spec: file.FilesTo, path: Path, place: str) -> None:
        """Check for existing output at the first start."""
        if spec.existing == "append":
            raise PipelineError(
                "HR-F017",
                "on Spark a run cannot append to the output of another run",
                place=place,
                hint='set existing = "replace", or choose another path',
            )
        if not self.fresh:
            return
        if spec.existing == "error" and is_there(path):
            raise refuse(path, append=False)
        if spec.existing == "replace" or path.is_file():
            self.when_accepted.append(lambda: clear(path))


def _files(sinks: Sinks, spec: Any, schema: Schema, place: str) -> Sink:
    if is_remote(spec.path):
        return _to_target(sinks, spec, schema, place)
    name = format_of(spec.format, spec.path, place)
    path = sinks.pipeline.path(spec.path).absolute()
    if name == "arrow":
        raise PipelineError(
            "HR-F017", "Spark cannot write Arrow files", place=place, hint="use parquet, json or csv"
        )
    sinks.prepare(spec, path, place)
    return LineFiles(str(path), Encoded(schema, name)) if name in ENCODERS else Files(str(path), name)


@dataclass(frozen=True)
class Targets:
    """A target that gets the rows of each micro-batch in one transaction, through the driver.

    A target that has the number of a micro-batch already has its rows, and does not get them again.
    """

    target: Target
    schema: Schema
    run: Run

    def __call__(self, rows: DataFrame, batch: int) -> None:
        run = self.run.name()
        self.target.open(self.schema, run)
        try:
            had = self.target.last(run)
            if had is None or had < batch + 1:
                found = rows.toArrow()
                if found.num_rows:
                    self.target.apply(run, batch + 1, typed_table(found, self.schema))
        finally:
            self.target.close()


@dataclass(frozen=True)
class Run:
    """The name of the sequence of micro-batches of an output: a file beside the checkpoint of the job."""

    path: Path

    def begin(self) -> None:
        """Begin a new sequence: the output was not written before."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(uuid.uuid4().hex)

    def name(self) -> str:
        """The name of the sequence."""
        if not self.path.exists():
            self.begin()
        return self.path.read_text()


def typed_table(rows: pa.Table, schema: Schema) -> pa.Table:
    """The rows of a micro-batch in the types of the output."""
    return pa.Table.from_batches([typed(each, schema) for each in rows.to_batches()], schema)


def _to_target(sinks: Sinks, spec: Any, schema: Schema, place: str) -> Sink:
    target = target_of(sinks.pipeline, spec, place)
    if sinks.fresh:
        target.begin()
    return Targets(target, schema, _run(sinks, place))


def _run(sinks: Sinks, place: str) -> Run:
    """The sequence of micro-batches of an output; a new one if it was not written before."""
    run = Run(sinks.home / "outputs" / place.removeprefix("queries."))
    if sinks.fresh:
        sinks.when_accepted.append(run.begin)
    return run


@dataclass(frozen=True)
class Encoding:
    """Rows as messages, in `mapInArrow`. `sent` names the micro-batch; with the row it makes the id."""

    schema: Schema
    how: MessageFormat
    sent: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = task_number() << ROWS_OF_A_TASK
        for batch in batches:
            keys, values = self.how.messages(typed(batch, self.schema), self.sent, first)
            first += batch.num_rows
            columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, MESSAGE)


@dataclass(frozen=True)
class Topic:
    """Messages that Spark's tasks send; a micro-batch that runs again sends them again, with the same ids."""

    options: dict[str, Any] = field(repr=False)
    schema: Schema
    how: MessageFormat
    run: Run

    def __call__(self, rows: DataFrame, batch: int) -> None:
        encoding = Encoding(self.schema, self.how, f"{self.run.name()}-{batch + 1}")
        messages = rows.mapInArrow(encoding, "key binary, value binary")
        messages.write.format("kafka").options(**self.options).save()


def _to_topic(sinks: Sinks, spec: Any, schema: Schema, place: str) -> Sink:
    """A topic: through the driver in transactions, or from the tasks."""
    if spec.delivery == "exactly once":
        return _to_target(sinks, spec, schema, place)
    settings, how = kafka_settings(spec, place), message_format(spec)
    how.check(schema, place)
    options = {"kafka.bootstrap.servers": settings.servers, "topic": spec.topic}
    return Topic(options | java_options(settings.options, place), schema, how, _run(sinks, place))


def _of_spark(sinks: Sinks, spec: Any, schema: Schema, place: str) -> Sink:
    path = None if spec.path is None else located(sinks.pipeline, spec.path)
    return OfSpark(spec.format, revealed_options(spec.options, f"{place}.options"), path, _run(sinks, place))


def _each_time(run: Run, batch: int) -> dict[str, Any]:
    return {}


ONCE: Final[dict[str, Callable[[Run, int], dict[str, Any]]]] = {
    "delta": lambda run, batch: {"txnAppId": run.name(), "txnVersion": batch},
}
"""By format, the options with which a connector of Spark leaves out a micro-batch that it has already."""


SINKS: Final[dict[type[Any], Callable[[Sinks, Any, Schema, str], Sink]]] = {
    file.FilesTo: _files,
    file.StdoutTo: lambda sinks, spec, schema, place: StandardOut(Encoded(schema, spec.format, header=False)),
    file.SparkTo: _of_spark,
    **dict.fromkeys(STAGED, _to_target),
    file.KafkaTo: _to_topic,
}
