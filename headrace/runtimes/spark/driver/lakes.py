"""Delta and Iceberg tables as streams of Spark, through `deltalake` and `pyiceberg`, in any version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession

from headrace.connectors.lakes import LakeLog
from headrace.runtimes.spark.driver.files import parts_in
from headrace.runtimes.spark.driver.source_names import reader
from headrace.runtimes.spark.driver.task_streams import TaskStream
from headrace.runtimes.spark.worker.lake_rows import LakeFiles, LakeOffsets, LakeRows
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED, StreamSpec
from headrace.schema import Schema


@dataclass(frozen=True)
class LakeStream(TaskStream):
    """The files of a table behind a DataFrame, and how their rows are read."""

    def inputs(self, now: Column | None = None, reached: Column | None = None) -> DataFrame:
        shared = {NOW: now, REACHED: reached}
        return self.listed.select(
            "version", "whole", "number", *(c.alias(name) for name, c in shared.items() if c is not None)
        )

    def reached(self, stream: StreamSpec, per_second: int | None) -> Column | None:
        """Tables do not say when a row was committed."""
        return None


def lake(
    spark: SparkSession,
    name: str,
    log: LakeLog,
    schema: Schema,
    *,
    follow: bool,
    new: bool,
    poll: float,
    options: Mapping[str, Any],
    **timing: Any,
) -> LakeStream:
    """The stream of a table. `name` is that of the source in checkpoints."""
    made = LakeFiles.for_stream(name, LakeOffsets(log, follow, new), poll, parts_in(spark))
    spark.dataSource.register(made)
    listed = reader(spark, name).format(made.name()).options(**options).load()
    return LakeStream(listed, LakeRows(log, schema), polled=poll if follow else 0.0, **timing)
