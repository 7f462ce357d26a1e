"""Results, late and rejected rows as DataFrames, from the combined table that hosts emit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.worker.answers import KIND, MOST_ROWS, named
from headrace.runtimes.spark.worker.packing import from_ipc
from headrace.schema import Schema


def packed_rows(combined: DataFrame, rows: Column, unpack: Unpack) -> DataFrame:
    """The rows of the combined table that match, unpacked; in one partition if they are put in order."""
    return packed_bodies(combined, rows, unpack).mapInArrow(unpack, spark_schema(unpack.schema))


def packed_bodies(combined: DataFrame, rows: Column, unpack: Unpack) -> DataFrame:
    """The same, still packed: what `unpack` takes."""
    bodies = combined.where(rows & F.col(named("body")).isNotNull()).select(named("shard"), named("body"))
    return bodies.repartition(1) if unpack.ordered else bodies


def local_rows(spark: SparkSession, unpack: Unpack, bodies: Iterable[tuple[int, bytes]]) -> DataFrame:
    """Packed rows that are in the driver, with the numbers of their shards; in one
    partition.

    As rows of a local relation they would be serialized into every task, which costs twice as much.
    """
    none = pa.RecordBatch.from_pylist([], unpack.schema)  # PySpark cannot take a column without a chunk
    rows = pa.Table.from_batches([none, *unpack((as_batch(bodies),))], unpack.schema)
    spark.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")
    return spark.createDataFrame(rows, spark_schema(unpack.schema)).coalesce(1)


def as_batch(bodies: Iterable[tuple[int, bytes]]) -> pa.RecordBatch:
    """Packed rows that are in the driver, as Spark hands them to a task."""
    shards, packed = tuple(zip(*bodies, strict=True)) or ((), ())
    return pa.RecordBatch.from_arrays([pa.array(shards, pa.int32()), pa.array(packed, pa.binary())], _PACKED)


_PACKED: Final = ("shard", "body")


def of_kind(kind: str) -> Column:
    """The rows of one kind."""
    return F.col(KIND) == kind


@dataclass(frozen=True)
class Unpack:
    """Arrow bytes back to Arrow batches, in `mapInArrow` or in the driver.

    Results have their time as an additional last column. Shards cover the same interval of time in a
    micro-batch, so putting each micro-batch in order puts all results in order.
    """

    schema: Schema
    ordered: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if not self.ordered:
            for _, body in _bodies(batches):
                yield from self._named(body).to_batches(max_chunksize=MOST_ROWS)
            return
        found = [body for _, body in sorted(_bodies(batches), key=lambda each: each[0])]
        if found:
            yield from self._named(in_order(pa.concat_tables(found))).to_batches(max_chunksize=MOST_ROWS)

    def _named(self, rows: pa.Table) -> pa.Table:
        """The columns of the schema; the time has another name there, or is left out."""
        return pa.Table.from_arrays(rows.columns[: len(self.schema)], schema=self.schema)


def in_order(rows: pa.Table) -> pa.Table:
    """The rows in the order of their times, which are in the last column."""
    times = rows.column(rows.num_columns - 1).to_numpy()
    if bool((times[1:] >= times[:-1]).all()):
        return rows
    return rows.take(pa.array(np.argsort(times, kind="stable")))


def _bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
    """The packed rows, each with the number of its shard."""
    for batch in batches:
        for shard, body in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            yield shard, from_ipc(body.as_buffer())
