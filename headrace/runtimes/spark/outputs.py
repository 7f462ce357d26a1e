"""Result, late and rejected rows of one query, each to a sink of its own, exactly once.

One query has one checkpoint and one copy of the state; three queries would have three. A micro-batch may be
run again after a failure, with the same rows and the same number: a sink that overwrites what that number
wrote before has each row once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import SparkError
from headrace.runtimes.spark.apply import Answers, answers
from headrace.runtimes.spark.lock import hold
from headrace.sql import Query

Sink = Callable[[DataFrame, int], None]
"""Takes the rows of a micro-batch and its number; must be idempotent by the number."""

KINDS = ("result", "late", "rejected")


@dataclass(frozen=True)
class Files:
    """Files in a folder `batch=<number>` for each micro-batch, overwritten when it is run again."""

    path: str
    format: str = "parquet"
    options: tuple[tuple[str, str], ...] = ()

    def __call__(self, rows: DataFrame, batch: int) -> None:
        writer = rows.write.format(self.format).mode("overwrite").options(**dict(self.options))
        writer.save(f"{self.path}/batch={batch}")


@dataclass(frozen=True)
class Outputs:
    """The three outputs of a query that is not started yet."""

    query: Query
    answers: Answers

    def start(
        self,
        *,
        checkpoint: str,
        result: Sink | str | None = None,
        late: Sink | str | None = None,
        rejected: Sink | str | None = None,
        name: str | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start the one query; a path stands for Parquet `Files` there.

        `trigger` is what `DataStreamWriter.trigger` takes, as in `{"availableNow": True}`. While the query
        runs, no other driver can start one on this checkpoint (HR-SP22).
        """
        sinks = {
            kind: _sink(sink)
            for kind, sink in zip(KINDS, (result, late, rejected), strict=True)
            if sink is not None
        }
        if not sinks:
            raise SparkError(
                "HR-SP17", "no sink for any output", hint="start(result=..., late=..., rejected=...)"
            )
        writer = self.answers.together.writeStream.outputMode("append").option(
            "checkpointLocation", checkpoint
        )
        writer = writer.queryName(name or self.query.name)
        if trigger:
            writer = writer.trigger(**trigger)
        held = hold(self.answers.together.sparkSession, checkpoint)
        try:
            started = writer.foreachBatch(self._to(sinks)).start()
        except BaseException:
            if held is not None:
                held.release()
            raise
        if held is not None:
            held.until_ended(started)
        return started

    def _to(self, sinks: dict[str, Sink]) -> Callable[[DataFrame, int], None]:
        def write(together: DataFrame, batch: int) -> None:
            together.persist()
            try:
                kinds = replace(self.answers, together=together)
                for kind, sink in sinks.items():
                    sink(getattr(kinds, kind), batch)
            finally:
                together.unpersist()

        return write


def _sink(given: Sink | str | PurePath) -> Sink:
    return Files(str(given)) if isinstance(given, (str, PurePath)) else given


def outputs(query: Query, **streams_and_options: Any) -> Outputs:
    """Result, late and rejected rows together; takes what `apply` takes."""
    return Outputs(query, answers(query, **streams_and_options))
