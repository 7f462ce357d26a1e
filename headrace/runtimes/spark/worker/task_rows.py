"""Rows that Spark's tasks decode themselves: pieces of files that they open, or messages of Kafka.

The decoders are those of the embedded runtime, so both runtimes read the same rows and reject the same input
for the same reasons, in any session time zone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times
from headrace.connectors.contract import Bad, Block
from headrace.connectors.history import Cut
from headrace.plan.nodes.core import Plan, Select
from headrace.plan.nodes.trees import walk
from headrace.runtimes.embedded.timing import Timed, Timing
from headrace.runtimes.spark.worker.partitioner import BAD, KEEP, NOW, REACHED, TIME, Partitioner
from headrace.runtimes.spark.worker.preaggregate import chain_steps
from headrace.runtimes.spark.worker.source_column import SOURCE
from headrace.schema import Schema
from headrace.time.row_promises import ticks_of
from headrace.time.timestamp import FARTHEST, MAX_TIME


class RowReader(Protocol):
    """Decodes what a task gets from Spark."""

    @property
    def schema(self) -> Schema:
        """The columns of the rows."""
        ...

    def only(self, needed: frozenset[str]) -> RowReader:
        """A reader that may leave out the other columns."""
        ...

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Block]]:
        """Rows and bad input, each with the columns that all rows of the block share."""
        ...


@dataclass(frozen=True)
class CutRows:
    """The rows of a part of a stream that are on its side of a cut."""

    reader: RowReader
    cut: Cut
    part: str

    @property
    def schema(self) -> Schema:
        return self.reader.schema

    def only(self, needed: frozenset[str]) -> CutRows:
        return CutRows(self.reader.only(needed | {self.cut.column}), self.cut, self.part)

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Block]]:
        for shared, block in self.reader.blocks(batches):
            yield shared, self.cut.of(block, self.part)


@dataclass(frozen=True)
class Arrivals:
    """The column of recorded arrivals, its unit, and the name of the output column."""

    column: str
    unit: int | None
    name: str


@dataclass(frozen=True)
class TaskRows:
    """What a task gets as rows, in `mapInArrow`.

    `leaving` is the output schema: the columns of the rows, their times in the column `ticks` if they have
    times, their arrivals if these are recorded, and `BAD`, which is set for input that is not a row.
    """

    reader: RowReader
    leaving: Schema
    timing: Timing | None = None
    ticks: str = ""
    arrivals: Arrivals | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _, block in self.reader.blocks(batches):
            yield from self._rows(block)

    def _rows(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The output rows of a block: good ones with their times, and bad ones."""
        data, bad, columns = block.data, block.bad, dict[str, pa.Array]()
        if self.timing is not None:
            timed: Timed = self.timing.of(data)
            data, bad = timed.data, (*bad, *timed.bad)
            columns[self.ticks] = timed.times
        if self.arrivals is not None:
            columns[self.arrivals.name] = pa.array(_arrived(data, self.arrivals))
        if data.num_rows:
            columns |= dict(zip(data.schema.names, data.columns, strict=True))
            yield filled(self.leaving, columns, data.num_rows)
        if bad:
            clock = {} if self.arrivals is None else {self.arrivals.name: pa.array([0] * len(bad))}
            yield filled(self.leaving, {BAD: described(bad), **clock}, len(bad))


@dataclass(frozen=True)
class Entering:
    """How decoded rows enter a partitioner: what Spark's own columns do for other DataFrames.

    `chain` are the filters and projections before it. With `marks`, rows that a filter drops are marked, and
    carry only their time. `source_column` names the source of a row, if the chain may take its column away.
    `needed` are the columns that anything reads: others need not be decoded, and are then null. `recorded`
    has the instants at which rows reached their source, if these are one of their columns.
    """

    chain: Plan
    timing: Timing | None
    arrivals: Arrivals | None
    marks: bool = True
    guard: int = MAX_TIME
    clock: bool = False
    reached: bool = False
    source_column: str | None = None
    needed: frozenset[str] | None = None
    recorded: Arrivals | None = None

    @property
    def schema(self) -> Schema:
        """The columns that the partitioner takes."""
        marked = self.marks and any(isinstance(node, Select) for node in walk(self.chain))
        times = {
            TIME: self.timing is not None,
            NOW: self.clock or self.arrivals is not None,
            REACHED: self.reached,
        }
        extra = [pa.field(name, pa.int64()) for name, wanted in times.items() if wanted]
        extra.append(pa.field(BAD, pa.string()))
        if self.source_column is not None:
            extra.append(pa.field(SOURCE, self._source.schema.field(self.source_column).type))
        return pa.schema([*self.chain.schema, *extra, *([pa.field(KEEP, pa.bool_())] if marked else [])])

    @property
    def _source(self) -> Plan:
        plan = self.chain
        while plan.inputs:
            plan = plan.inputs[0]
        return plan


class TaskPartitioner:
    """Decodes rows and partitions them, in one task."""

    def __init__(self, reader: RowReader, entering: Entering, partitioner: Partitioner) -> None:
        self._reader, self._entering, self._partitioner = reader, entering, partitioner

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from self._partitioner(self._rows(batches))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        entering = self._entering
        reader = self._reader if entering.needed is None else self._reader.only(entering.needed)
        steps = chain_steps(entering.chain)
        schema = entering.schema
        for extra, block in reader.blocks(batches):
            data, bad, ticks = block.data, block.bad, None
            if entering.timing is not None:
                timed = entering.timing.of(data)
                data, bad, ticks = timed.data, (*bad, *timed.bad), timed.times
            if data.num_rows:
                yield self._entered(schema, steps, data, ticks, extra)
            if bad:
                columns: dict[str, Any] = {BAD: described(bad), KEEP: np.ones(len(bad), np.bool_)}
                if entering.arrivals is not None:
                    columns[NOW] = np.zeros(len(bad), np.int64)
                yield filled(schema, {**_repeated(extra, len(bad)), **columns}, len(bad))

    def _entered(
        self,
        schema: Schema,
        steps: list[Any],
        data: pa.RecordBatch,
        ticks: pa.Array | None,
        extra: dict[str, Any],
    ) -> pa.RecordBatch:
        """The rows of a block with their times, after the filters and projections."""
        entering = self._entering
        columns = _repeated(extra, data.num_rows)
        if ticks is not None:
            columns[TIME] = ticks
        if entering.arrivals is not None:
            columns[NOW] = pa.array(_arrived(data, entering.arrivals))
        if entering.recorded is not None:
            columns[REACHED] = pa.array(_arrived(data, entering.recorded))
        if entering.source_column is not None:
            columns[SOURCE] = data.column(entering.source_column)
        rows, keep = _widened(data, self._reader.schema), None
        for step in steps:
            if not entering.marks:
                rows, kept = step(rows)
                if kept is not None:
                    columns = {name: _of(each).filter(pa.array(kept)) for name, each in columns.items()}
                continue
            rows, kept = step.marked(rows)
            if kept is not None:
                keep = kept if keep is None else keep & kept
        if entering.marks and KEEP in schema.names:
            known = np.ones(rows.num_rows, np.bool_) if keep is None else keep
            columns[KEEP] = pa.array(known | self._are_bad(columns))
        columns |= dict(zip(rows.schema.names, rows.columns, strict=True))
        return filled(schema, columns, rows.num_rows)

    def _are_bad(self, columns: dict[str, Any]) -> Mask:
        """Times that are missing, out of range, or too far ahead: the engine rejects these rows."""
        if TIME not in columns:
            return np.zeros(1, np.bool_)
        times = columns[TIME]
        ticks: Times = times.fill_null(FARTHEST).to_numpy(zero_copy_only=False)
        outside: Mask = (ticks <= -FARTHEST) | (ticks >= FARTHEST)
        if self._entering.guard == MAX_TIME:
            return outside
        clocks = _of(columns[NOW]).to_numpy(zero_copy_only=False)
        limit = np.minimum(clocks, MAX_TIME - self._entering.guard) + self._entering.guard
        bad: Mask = outside | (ticks > limit)
        return bad


def described(bad: Iterable[Bad]) -> pa.Array:
    """Bad input in the column `BAD`."""
    return pa.array([json.dumps([str(b.code), b.reason, b.raw], ensure_ascii=False) for b in bad])


def filled(schema: Schema, columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    """The given columns in a schema, with nulls for the others."""
    arrays = [
        _of(columns[field.name]).cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _of(column: Any) -> pa.Array:
    return column if isinstance(column, pa.Array) else pa.array(column)


def _repeated(shared: dict[str, int], rows: int) -> dict[str, Any]:
    return {name: np.broadcast_to(np.int64(value), rows) for name, value in shared.items()}


def _arrived(data: pa.RecordBatch, arrivals: Arrivals) -> Times:
    ticks, known = ticks_of(data.column(arrivals.column), arrivals.unit)
    return np.where(known, ticks, 0)


def _widened(data: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows with all columns; those that were not read are null."""
    if data.num_columns == len(schema):
        return data
    return filled(schema, dict(zip(data.schema.names, data.columns, strict=True)), data.num_rows)
