"""How the rows of a micro-batch reach the sinks of a job.

After a failure a micro-batch runs again with the same rows and the same number. A sink that overwrites what
it wrote under that number has each row exactly once.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Final

from pyspark.errors import PySparkPicklingError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace import tuning
from headrace.connectors.late_and_rejected import LATE_SCHEMA, REJECTED_SCHEMA
from headrace.errors import SparkError
from headrace.runtimes.spark.driver.budget import JobBudget
from headrace.runtimes.spark.driver.executors import lost_since
from headrace.runtimes.spark.driver.parquet_files import ParquetFolder
from headrace.runtimes.spark.driver.status import Seen, StatusKeeper
from headrace.runtimes.spark.driver.unpack import (
    Unpack,
    as_batch,
    local_rows,
    of_kind,
    packed_bodies,
    packed_rows,
)
from headrace.runtimes.spark.worker.answers import (
    KIND,
    LATE,
    METRICS,
    REASONS,
    REJECTED,
    RESULT,
    Outlet,
    named,
)
from headrace.schema import Schema
from headrace.sql import Query
from headrace.time.clock import seconds

Sink = Callable[[DataFrame, int], None]
"""Writes the rows of a micro-batch, given its number; a second write of a number must replace the first."""

KINDS: Final = (RESULT, LATE, REJECTED)


@dataclass(frozen=True)
class Files:
    """Files in a folder `batch=<number>` for each micro-batch, overwritten if the micro-batch runs again.

    A job writes Parquet files on this machine by Arrow (`parquet_files`), and others by Spark.
    """

    path: str
    format: str = "parquet"
    options: tuple[tuple[str, str], ...] = ()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        writer = rows.write.format(self.format).mode("overwrite").options(**dict(self.options))
        writer.save(f"{self.path}/batch={batch}")

    def by_arrow(self, spark: SparkSession, schema: Schema) -> ParquetFolder | None:
        """The folder, if Arrow can write these rows as Spark would."""
        if self.format != "parquet" or self.options:
            return None
        return ParquetFolder.of(spark, self.path, schema)


@dataclass(frozen=True)
class JobQuery:
    """A query of a job, and the sink of each kind of its rows.

    `removed`: it has results of micro-batches before its end, but it is not a query of the job any more.
    """

    query: Query
    sinks: Mapping[str, Sink]
    time_column: str | None = None
    removed: bool = False

    @property
    def schema(self) -> Schema:
        """The columns of its results."""
        return Outlet(self.time_column).schema(self.query.schema)

    @property
    def streams(self) -> frozenset[str]:
        """The streams it reads."""
        return frozenset(source.name for source in self.query.sources)


@dataclass(frozen=True)
class Writer:
    """For foreachBatch: computes the micro-batch once, and writes the rows of each query to its sinks.

    Most micro-batches have few rows for each query. These come to the driver, all at once, so that a sink
    does not need a shuffle and a Python worker for them.
    """

    current: Callable[[], Mapping[str, JobQuery]]
    ordered: bool = True
    keeper: StatusKeeper | None = None
    budget: JobBudget | None = None

    def __call__(self, combined: DataFrame, batch: int) -> None:
        combined.persist()
        try:
            filled = Filled.of(combined)
            if self.budget is not None:
                self.budget.after(combined.sparkSession, batch, map(json.loads, filled.seen.reports))
            queries = self.current()
            due = {
                name: [kind for kind in of.sinks if batch == 0 or filled.any(kind, _owners(kind, name, of))]
                for name, of in queries.items()
            }
            with self._reported(combined.sparkSession, filled.seen, batch, queries, due) as spent:
                for name, kinds in due.items():
                    begun = seconds()
                    for kind in kinds:
                        self._write(combined, filled, kind, name, queries[name], batch)
                    spent[name] = seconds() - begun
        finally:
            combined.unpersist()

    @contextmanager
    def _reported(
        self,
        spark: SparkSession,
        seen: Seen,
        batch: int,
        queries: Mapping[str, JobQuery],
        due: Mapping[str, list[str]],
    ) -> Iterator[dict[str, float]]:
        """Write the status before the rows of a micro-batch are written, and after it. Yields sinks' time."""
        spent: dict[str, float] = {}
        keeper = self.keeper
        if keeper is None:
            yield spent
            return
        keeper.serve({name: tuple(sorted(of.streams)) for name, of in queries.items() if not of.removed})
        seen = replace(seen, lost=lost_since(spark, keeper.last_written))
        writing = [name for name, kinds in due.items() if kinds]
        if writing:
            keeper.write(spark, lambda: keeper.computed(seen, batch, writing))
        yield spent
        keeper.write(spark, lambda: keeper.written(seen, batch, spent))

    def _write(
        self, combined: DataFrame, filled: Filled, kind: str, name: str, of: JobQuery, batch: int
    ) -> None:
        """Give a sink the rows of one kind for one query."""
        spark, sink = combined.sparkSession, of.sinks[kind]
        schema = of.schema if kind == RESULT else _ASIDE[kind]
        unpack = Unpack(schema, ordered=kind == RESULT and self.ordered and of.query.ordered)
        owners = _owners(kind, name, of)
        here = filled.bodies(kind, owners)
        rows = of_kind(kind) & F.col(named("query" if kind == RESULT else "stream")).isin(*sorted(owners))
        folder = sink.by_arrow(spark, schema) if isinstance(sink, Files) else None
        written = filled.files.get(name, []) if kind == RESULT else []
        if written:
            assert folder is not None
            folder.show(batch, written)
        elif folder is not None and here is not None:
            folder.write(batch, unpack, as_batch(here))
        elif folder is not None:
            folder.collect(batch, unpack, packed_bodies(combined, rows, unpack))
        elif here is not None:
            sink(local_rows(spark, unpack, here), batch)
        else:
            sink(packed_rows(combined, rows, unpack), batch)


def to_sinks(writer: DataStreamWriter, write: Writer) -> DataStreamWriter:
    """A writer that calls the sinks; with Spark Connect they are sent to a process next to the server."""
    try:
        return writer.foreachBatch(write)
    except PySparkPicklingError as error:
        raise SparkError(
            "HR-SP02",
            "with Spark Connect sinks run next to the server, and a sink of this job cannot be sent there",
            hint="use a path, headrace.spark.Files, or a function that refers only to plain data",
        ) from error


_ASIDE: Final[dict[str, Schema]] = {LATE: LATE_SCHEMA, REJECTED: REJECTED_SCHEMA}


def _owners(kind: str, name: str, of: JobQuery) -> frozenset[str]:
    """The query, or the streams, whose rows a sink of a query gets."""
    return frozenset((name,)) if kind == RESULT else of.streams


@dataclass(frozen=True)
class Filled:
    """What a micro-batch has rows of: by kind and query or stream, its bodies with their shards.

    A body that is too large for the driver is None. `files` are, by query, those with results that tasks
    have written themselves.
    """

    found: Mapping[tuple[str, str], list[tuple[int, bytes | None]]]
    seen: Seen = field(default_factory=Seen)
    files: Mapping[str, list[str]] = field(default_factory=dict)

    @staticmethod
    def of(combined: DataFrame) -> Filled:
        """Look once at the rows of a micro-batch."""
        body, file = F.col(named("body")), F.col(named("stream"))
        filled = body.isNotNull() | (file.isNotNull() & (F.col(KIND) == RESULT))
        rows = combined.where(filled & F.col(KIND).isin(*KINDS, METRICS, REASONS))
        owner, small = (
            F.coalesce(named("query"), named("stream")),
            F.length(body) <= tuning.current.driver_bytes,
        )
        found: dict[tuple[str, str], list[tuple[int, bytes | None]]] = {}
        results: Counter[str] = Counter()
        texts: dict[str, list[bytes]] = {METRICS: [], REASONS: []}
        files: dict[str, list[str]] = {}
        for kind, name, shard, number, some, stream in rows.select(
            *(KIND, owner, named("shard"), named("rows")),
            F.when(small | ~F.col(KIND).isin(*KINDS), body),
            file,
        ).collect():
            if kind in texts:
                texts[kind].append(bytes(some))
                continue
            results[name] += number if kind == RESULT else 0
            if kind == RESULT and stream is not None:
                files.setdefault(name, []).append(stream)
            else:
                found.setdefault((kind, name), []).append((shard, some))
        return Filled(found, Seen(tuple(texts[METRICS]), tuple(texts[REASONS]), results), files)

    def any(self, kind: str, owners: Collection[str]) -> bool:
        """Whether there are rows of this kind."""
        written = kind == RESULT and not self.files.keys().isdisjoint(owners)
        return written or any((kind, owner) in self.found for owner in owners)

    def bodies(self, kind: str, owners: Collection[str]) -> list[tuple[int, bytes]] | None:
        """The rows of this kind as Arrow bytes; None if they are not all here."""
        every = [each for owner in sorted(owners) for each in self.found.get((kind, owner), ())]
        small = [(shard, body) for shard, body in every if body is not None]
        return small if len(small) == len(every) else None


def as_sink(given: Sink | str | PurePath) -> Sink:
    """A path becomes a sink of files; a function stays as it is."""
    return Files(str(given)) if isinstance(given, (str, PurePath)) else given
