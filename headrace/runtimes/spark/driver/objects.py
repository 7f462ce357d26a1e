"""Objects of a store as a stream of Spark, listed and read by our own code, with the keys of the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import PipelineError
from headrace.runtimes.spark.driver.files import FileStream
from headrace.runtimes.spark.driver.source_names import reader
from headrace.runtimes.spark.worker.object_rows import MOST_FILES, ObjectFiles, Place
from headrace.runtimes.spark.worker.partitioner import StreamSpec


@dataclass(frozen=True)
class ObjectStream(FileStream):
    """The objects behind a DataFrame, and how their rows are read."""

    def reached(self, stream: StreamSpec, per_second: int | None) -> Column | None:
        """Stores say when writing began, not when an object could be seen."""
        return None


def object_listing(spark: SparkSession, name: str, place: Place, options: Mapping[str, Any]) -> DataFrame:
    """The objects as a stream. `name` is that of the source in checkpoints."""
    made = ObjectFiles.for_stream(name, place)
    spark.dataSource.register(made)
    found = reader(spark, name).format(made.name()).options(**options).load()
    return found.select("path", F.timestamp_micros("written").alias("modificationTime"), "length")


def check_options(options: Mapping[str, Any], place: str) -> None:
    """Raise HR-F017 for options of Spark's own file source, which does not read the objects."""
    other = next((name for name in options if name.lower() != MOST_FILES.lower()), None)
    if other is not None:
        raise PipelineError(
            "HR-F017",
            f"a source of objects does not have the option {other!r}",
            place=place,
            hint=f"the only option is {MOST_FILES}",
        )
