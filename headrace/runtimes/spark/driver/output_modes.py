"""Spark's output modes `update` and `complete` for the changelog of a query in a job.

A changelog has every change, at its instant. `update` gives a sink the change of each key from one
micro-batch to the next, and `complete` the table that all changes so far have made.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Final
from urllib.parse import quote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import SparkError
from headrace.expressions import Column as PlanColumn
from headrace.expressions.sparksql.spelling import quoted
from headrace.plan.analysis.unique_keys import unique_keys
from headrace.plan.nodes.changelog import DELETE, INSERT, UPDATE, Changelog
from headrace.plan.nodes.core import IStream, Plan, Project
from headrace.runtimes.spark.driver.record import (
    make_directory,
    names_in,
    remove_directory,
    write_text,
)
from headrace.runtimes.spark.driver.writing import Sink
from headrace.sql import Query

APPEND: Final = "append"
_TABLES: Final = "_headrace.tables"
_BEGUN: Final = "_begun"
_BATCH: Final = "batch="
_NUMBER: Final = "__headrace_number"
_FIRST: Final = "__headrace_first"
_ROW: Final = "__headrace_row"


@dataclass(frozen=True)
class Changes:
    """The columns of a changelog by key: its operation, and the key."""

    operation: str
    keys: tuple[str, ...]

    @staticmethod
    def of(plan: Plan) -> Changes | None:
        """Those of `CHANGELOG(…) PRIMARY KEY (…)`; None for any other query."""
        if not isinstance(plan, Project) or not isinstance(plan.input, Changelog) or not plan.input.keys:
            return None
        named = {e.name: name for name, e in plan.columns if isinstance(e, PlanColumn)}
        return Changes(named[plan.input.operation], tuple(named[key] for key in plan.input.keys))

    def by_key(self, rows: DataFrame) -> DataFrame:
        """For each key its first operation and its last row, in the order of the changes."""
        last = F.max_by(F.struct(*map(_column, rows.columns)), _NUMBER).alias(_ROW)
        first = F.min_by(_column(self.operation), _NUMBER).alias(_FIRST)
        numbered = rows.withColumn(_NUMBER, F.monotonically_increasing_id())
        return numbered.groupBy(*map(_column, self.keys)).agg(first, last).select(_FIRST, _ROW)


def _column(name: str) -> Column:
    return F.col(quoted(name))


def _of_row(name: str) -> Column:
    """A column of the last row of a key."""
    return F.col(_ROW)[name]


@dataclass(frozen=True)
class Updates:
    """Gives a sink one row for each key that the micro-batch has changed, with its operation."""

    sink: Sink
    changes: Changes

    def __call__(self, rows: DataFrame, batch: int) -> None:
        operation = self.changes.operation
        was, stays = F.col(_FIRST) != INSERT, _of_row(operation) != DELETE
        now = F.when(was & stays, UPDATE).when(stays, INSERT).otherwise(DELETE)
        columns = [now if name == operation else _of_row(name) for name in rows.columns]
        changed = self.changes.by_key(rows).where(was | stays)
        named = zip(columns, rows.columns, strict=True)
        self.sink(changed.select(*(column.alias(name) for column, name in named)), batch)


@dataclass(frozen=True)
class Complete:
    """Gives a sink all rows of the table whenever a micro-batch has changed it.

    `home` keeps the table as of the last two such micro-batches: one that runs again begins with the table
    before it.
    """

    sink: Sink
    changes: Changes
    home: str

    def begin(self, spark: SparkSession) -> None:
        """Begin with an empty table."""
        remove_directory(spark, self.home)
        make_directory(spark, self.home)
        write_text(spark, self.home, _BEGUN, "")

    def has_begun(self, spark: SparkSession) -> bool:
        """Whether there is a table, also if it is empty."""
        return _BEGUN in names_in(spark, self.home)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        spark = rows.sparkSession
        names = [name for name in names_in(spark, self.home) if name.startswith(_BATCH)]
        kept = sorted(int(name.removeprefix(_BATCH)) for name in names)
        before = max((number for number in kept if number < batch), default=None)
        columns = [name for name in rows.columns if name != self.changes.operation]
        changed = self.changes.by_key(rows)
        table = changed.where(_of_row(self.changes.operation) != DELETE).select(
            *(_of_row(name).alias(name) for name in columns)
        )
        if before is not None:
            held = spark.read.parquet(self._folder(before))
            same = (_column(name).eqNullSafe(_of_row(name)) for name in self.changes.keys)
            table = held.join(changed, reduce(Column.__and__, same), "left_anti").unionByName(table)
        table.write.mode("overwrite").parquet(self._folder(batch))
        self.sink(spark.read.parquet(self._folder(batch)), batch)
        for number in kept:
            if number < batch and number != before:
                remove_directory(spark, self._folder(number))

    def _folder(self, batch: int) -> str:
        return f"{self.home}/{_BATCH}{batch}"


def settle(
    spark: SparkSession, checkpoint: str, sinks: Mapping[str, Sink | None], kept: Collection[str]
) -> None:
    """Make the tables ready for a start: those of queries whose state is kept go on, others begin empty."""
    complete = {name: sink for name, sink in sinks.items() if isinstance(sink, Complete)}
    for name, sink in complete.items():
        if name in kept and not sink.has_begun(spark):
            raise SparkError(
                "HR-SP66",
                "the query has run in another output mode: its table lacks the changes until now",
                place=name,
                hint=f"start(reset=[{name!r}]) begins the query empty, or add it by another name",
            )
    homes = {Path(sink.home).name for sink in complete.values()}
    for folder in names_in(spark, f"{checkpoint}/{_TABLES}"):
        if folder not in homes:
            remove_directory(spark, f"{checkpoint}/{_TABLES}/{folder}")
    for name, sink in complete.items():
        if name not in kept:
            sink.begin(spark)


def _home(checkpoint: str, name: str) -> str:
    return f"{checkpoint}/{_TABLES}/{quote(name, safe='')}"


MODES: Final[dict[str, Callable[[Sink, Changes, str], Sink]]] = {
    "update": lambda sink, changes, home: Updates(sink, changes),
    "complete": Complete,
}


def in_mode(mode: str, sink: Sink | None, query: Query, name: str, checkpoint: str) -> Sink | None:
    """The sink, for the rows of an output mode; an error if the query cannot have it (HR-SP66)."""
    if mode == APPEND:
        return sink
    if mode not in MODES:
        known = ", ".join((APPEND, *MODES))
        raise SparkError("HR-SP66", f"{mode!r} is not an output mode", place=name, hint=f"one of {known}")
    if sink is None:
        raise SparkError(
            "HR-SP66", "an output mode is for results, and they have no sink", place=name, hint="sink=..."
        )
    changes = Changes.of(query.logical)
    if changes is None:
        raise SparkError(
            "HR-SP66",
            f"output mode {mode} needs a changelog by key: the operation and the key of each change",
            place=name,
            hint=f"write CHANGELOG(SELECT …) PRIMARY KEY ({_suggested(query.logical)})",
        )
    return MODES[mode](sink, changes, _home(checkpoint, name))


def _suggested(plan: Plan) -> str:
    """Columns that identify a row of the relation, if it is known."""
    keys = unique_keys(plan.input) if isinstance(plan, IStream) else set()
    found = min((sorted(key) for key in keys if key), key=len, default=["…"])
    return ", ".join(found)
