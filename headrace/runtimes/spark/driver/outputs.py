"""`headrace.spark.outputs`: results, late and rejected rows of one query, each written to its own sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.runtimes.spark.driver.apply import checked
from headrace.runtimes.spark.driver.dataframes import all_frames, streams_of
from headrace.runtimes.spark.driver.job import Job
from headrace.runtimes.spark.driver.options import SparkOptions
from headrace.runtimes.spark.driver.output_modes import APPEND
from headrace.runtimes.spark.driver.writing import Sink
from headrace.sql import Query


@dataclass(frozen=True)
class Outputs:
    """The three outputs of a query that has not started yet."""

    query: Query
    streams: Mapping[str, DataFrame]
    options: SparkOptions

    def start(
        self,
        *,
        checkpoint: str,
        result: Sink | str | None = None,
        late: Sink | str | None = None,
        rejected: Sink | str | None = None,
        name: str | None = None,
        trigger: dict[str, Any] | None = None,
        output_mode: str = APPEND,
    ) -> StreamingQuery:
        """Start the query, as a `job` of one query. A sink that is a path gets Parquet `Files`.

        `output_mode` is "append" or, for a changelog by key, "update" or "complete" (`Job.add`).
        """
        named = name or self.query.name
        job = Job(self.streams, replace(self.options, time_column=None), checkpoint, named, controlled=False)
        column = self.options.time_column
        job.add(
            named,
            self.query,
            sink=result,
            late=late,
            rejected=rejected,
            time_column=column,
            output_mode=output_mode,
        )
        return job.start(trigger=trigger)


def outputs(
    query: Query,
    streams: Mapping[str, DataFrame] | None = None,
    options: SparkOptions | None = None,
    **more_streams: DataFrame,
) -> Outputs:
    """Results, late and rejected rows of `query`, to be started as one Spark query.

        out = outputs(query, {"bids": bids}, SparkOptions(bounds={"bids": {"disorder": "10 seconds"}}))
        out.start(checkpoint="checkpoint", result="results", late="late", rejected="rejected")

    It takes the same arguments as `apply`. For several queries, use `job`.
    """
    frames, options = all_frames(streams, more_streams), checked(options)
    streams_of(query, frames)
    return Outputs(query, frames, options)
