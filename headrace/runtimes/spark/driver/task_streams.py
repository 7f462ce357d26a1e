"""Streams whose rows are decoded in the tasks that partition and pre-aggregate them.

Offsets, rate limits and exactly-once bookkeeping are Spark's. Elsewhere such a stream is an ordinary
streaming DataFrame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import Column, DataFrame

from headrace.plan.analysis.native import links
from headrace.plan.nodes.core import Plan, Project, Select, Source, TimeKind
from headrace.runtimes.embedded.timing import Timing
from headrace.runtimes.spark.driver.reading import FILES, WITHHELD
from headrace.runtimes.spark.driver.stream_rows import file_reached
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.versions import arrow_schema
from headrace.runtimes.spark.worker.partitioner import BAD, NOW, Partitioner, StreamSpec
from headrace.runtimes.spark.worker.task_rows import (
    Arrivals,
    Entering,
    RowReader,
    TaskPartitioner,
    TaskRows,
)

_KEPT: Final = "_headrace_task_stream"
"""The attribute of a DataFrame that says what it is made of."""


@dataclass(frozen=True)
class TaskStream:
    """What is behind a DataFrame: the stream that Spark reads, and how tasks decode it.

    `polled`: for so many seconds the source may not have looked for new rows when Spark asks. `past`: it is
    the history of a stream, about which the clock promises nothing; `recorded` are then the instants at which
    its rows arrived, in the order in which they are read.
    """

    listed: DataFrame
    reader: RowReader
    timing: Timing | None = None
    ticks: str = ""
    arrivals: Arrivals | None = None
    polled: float = 0.0
    past: bool = False
    recorded: Arrivals | None = None

    def inputs(self, now: Column | None = None, reached: Column | None = None) -> DataFrame:
        """What the tasks get."""
        raise NotImplementedError

    def takes(self, usual: str) -> str:
        """How much of its source a micro-batch reads (`reading`); of a history only `recorded` tells."""
        if not self.past:
            return usual
        return WITHHELD if self.recorded is None else FILES

    def reached(self, stream: StreamSpec, per_second: int | None) -> Column | None:
        """When a row reached its source, if a rate limit makes that matter."""
        return file_reached(self.listed, stream, per_second)

    def frame(self) -> DataFrame:
        """The rows as an ordinary DataFrame, which remembers this."""
        extra = [*([self.ticks] if self.timing else ()), *([self.arrivals.name] if self.arrivals else ())]
        numbers = (pa.field(name, pa.int64()) for name in extra)
        leaving = spark_schema(pa.schema([*self.reader.schema, *numbers, pa.field(BAD, pa.string())]))
        read = TaskRows(self.reader, arrow_schema(leaving), self.timing, self.ticks, self.arrivals)
        made: DataFrame = self.inputs().mapInArrow(read, leaving)
        vars(made)[_KEPT] = self
        return made

    def partitioned(
        self,
        entering: Entering,
        partitioner: Partitioner,
        ddl: str,
        now: Column | None,
        reached: Column | None,
    ) -> DataFrame:
        """The rows in packages, decoded and partitioned in one task."""
        read = TaskPartitioner(self.reader, entering, partitioner)
        return self.inputs(now, reached).mapInArrow(read, ddl)

    def can_enter(self, source: Source, time_column: str | None, arrival: str | None) -> bool:
        """Whether the rows are what a query reads; otherwise Spark converts them."""
        schema = self.reader.schema
        if schema.names[: len(source.schema)] != source.schema.names:
            return False
        clocks = [time_column] if source.time is TimeKind.EXTERNAL and self.timing is None else []
        clocks += [arrival] if arrival is not None and self.arrivals is None else []
        known = all(each in schema.names and not pt.is_date(schema.field(each).type) for each in clocks)
        return known and all(schema.field(f.name).type == f.type for f in source.schema)

    def entering(
        self,
        stream: StreamSpec,
        chain: Plan,
        time_column: str | None,
        arrival: str | None,
        streams: Sequence[StreamSpec],
        *,
        marks: bool,
        all_columns: bool,
        reads: Plan | None = None,
    ) -> Entering | None:
        """How the rows enter a partitioner; None if only Spark can convert them to what it takes.

        `reads`, if given, is the only plan that reads their columns, in the partitioner itself.
        """
        source = links(chain)[0]
        assert isinstance(source, Source)
        if not self.can_enter(source, time_column, arrival):
            return None
        timing, arrivals = self.timing if stream.external else None, self.arrivals
        if timing is None and stream.external and time_column is not None:
            timing = Timing(time_column, None, tuple(source.schema.names))
        if arrivals is None and arrival is not None:
            arrivals = Arrivals(arrival, None, NOW)
        column = None
        if stream.sources is not None and not isinstance(chain, Source):
            column = stream.sources.name
        needed = None if all_columns else _needed(chain, streams) if reads is None else _read_by(reads)
        if needed is not None:
            own = (
                timing and timing.column,
                arrivals and arrivals.column,
                self.recorded and self.recorded.column,
                stream.sources and stream.sources.name,
            )
            needed = needed | {name for name in own if name}
            if timing is not None:
                timing = replace(timing, columns=tuple(n for n in timing.columns if n in needed))
        return Entering(
            chain,
            timing,
            None if arrivals is None else replace(arrivals, name=NOW),
            marks,
            stream.guard,
            arrivals is None and not stream.clockless,
            source_column=column,
            needed=needed,
            recorded=self.recorded,
        )


def _needed(chain: Plan, streams: Sequence[StreamSpec]) -> frozenset[str] | None:
    """The columns that anything reads; None if rows are sent as they are."""
    names = frozenset(chain.schema.names)
    partials = [stream.partials for stream in streams if not stream.witness]
    if partials and all(each is not None for each in partials):
        names = frozenset[str]().union(
            *(
                _read(each.chain, {*each.keys, *(c.column for c in each.calls if c.column)})
                for each in partials
                if each
            )
        )
    found = _read(chain, names)
    return None if found >= frozenset(links(chain)[0].schema.names) else found


def _read_by(plan: Plan) -> frozenset[str]:
    """The columns of its stream that a plan of filters and projections reads."""
    return _read(plan, frozenset(plan.schema.names))


def _read(chain: Plan, names: frozenset[str] | set[str]) -> frozenset[str]:
    """The columns that a chain reads to make some of its columns."""
    wanted = frozenset(names)
    for link in reversed(links(chain)[1:]):
        if isinstance(link, Project):
            made = dict(link.columns)
            wanted = frozenset[str]().union(*(made[name].columns() for name in wanted))
        elif isinstance(link, Select):
            wanted |= link.predicate.columns()
    return wanted


def task_stream_of(df: DataFrame) -> TaskStream | None:
    """What is behind a DataFrame whose rows tasks decode; None for others."""
    found: TaskStream | None = vars(df).get(_KEPT)
    return found


def listed_by(df: DataFrame) -> DataFrame:
    """The stream that Spark reads for a DataFrame, or the DataFrame itself."""
    found = task_stream_of(df)
    return df if found is None else found.listed
