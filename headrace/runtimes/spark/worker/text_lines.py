"""Parses lines of text files in Spark's tasks, with the readers of the embedded runtime.

Spark finds the files and splits them into lines. `headrace.connectors` parses the lines and decides which
are bad, so a pipeline file reads the same rows on both runtimes, in any session time zone. A bad line
becomes a row with only the column `BAD`; the partitioner sends it to a host, which rejects it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import FileSystem

from headrace.connectors.contract import Bad, Block, empty
from headrace.connectors.csv_lines import CsvLines
from headrace.connectors.formats import Format, decoder, headed
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.lines import too_long
from headrace.runtimes.embedded.timing import Timed, Timing
from headrace.runtimes.spark.worker.partitioner import BAD
from headrace.schema import Schema
from headrace.time.row_promises import ticks_of

Run = tuple[str, int]
"""A part of a file that one task reads: the file, and the offset at which the part begins."""


@dataclass(frozen=True)
class Arrivals:
    """The column of recorded arrivals, its unit, and the name of the output column."""

    column: str
    unit: int | None
    name: str


@dataclass(frozen=True)
class TextLines:
    """Lines to rows, in `mapInArrow`. If files have a header, batches also say which run a line belongs to.

    `leaving` is the output schema: the columns of the rows, their times in the column `ticks` if they have
    times, their arrivals if these are recorded, and `BAD`.
    """

    schema: Schema
    how: Format
    leaving: Schema
    timing: Timing | None = None
    ticks: str = ""
    arrivals: Arrivals | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blocks = self._headed(batches) if has_header(self.how) else self._plain(batches)
        for block in blocks:
            yield from self._rows(block)

    # --- lines

    def _plain(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        decode = decoder(self.schema, self.how)
        for batch in batches:
            yield from self._decoded(batch.column(0), decode)

    def _headed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Block]:
        """Parse each run of lines with the header of its file, which is the first line of the file."""
        now: Run | None = None
        decode: CsvLines | JsonLines | None = None
        for batch in batches:
            for run, lines in _runs(batch):
                if run != now or decode is None:
                    now, (path, begin) = run, run
                    first = _first_line(path, self.how.longest) if begin else lines[0].as_py()
                    decode, bad = headed(self.schema, self.how, first)
                    if not begin:
                        lines = lines.slice(1)
                        yield Block(empty(self.schema), bad)
                yield from self._decoded(lines, decode)

    def _decoded(self, lines: pa.Array, decode: CsvLines | JsonLines) -> Iterator[Block]:
        """Decode lines in blocks; lines that are too long are bad input."""
        lengths = pc.binary_length(lines).to_numpy(zero_copy_only=False)
        long = lengths > self.how.longest
        if long.any():
            bad = tuple(too_long(lines[i].as_py(), int(lengths[i])) for i in np.flatnonzero(long))
            yield Block(empty(self.schema), bad)
            lines, lengths = lines.filter(pa.array(~long)), lengths[~long]
        ends = np.cumsum(lengths, dtype=np.int64)
        cuts = np.searchsorted(ends, np.arange(self.how.block, ends[-1], self.how.block)) if len(ends) else ()
        for begin, end in pairwise(np.unique([0, *cuts, len(lines)]).tolist()):
            yield decode.decode(_joined(lines.slice(begin, end - begin)))

    # --- rows

    def _rows(self, block: Block) -> Iterator[pa.RecordBatch]:
        """The output rows of a block: good ones with their times, and bad ones."""
        data, bad, columns = block.data, block.bad, dict[str, pa.Array]()
        if self.timing is not None:
            timed: Timed = self.timing.of(data)
            data, bad = timed.data, (*bad, *timed.bad)
            columns[self.ticks] = timed.times
        if self.arrivals is not None:
            ticks, known = ticks_of(data.column(self.arrivals.column), self.arrivals.unit)
            columns[self.arrivals.name] = pa.array(np.where(known, ticks, 0))
        if data.num_rows:
            columns |= dict(zip(data.schema.names, data.columns, strict=True))
            yield self._leaving(columns, data.num_rows)
        if bad:
            clock = {} if self.arrivals is None else {self.arrivals.name: pa.array([0] * len(bad))}
            yield self._leaving({BAD: pa.array([_described(each) for each in bad]), **clock}, len(bad))

    def _leaving(self, columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        """The given columns in the schema that leaves the task, with nulls for the others."""
        arrays = [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in self.leaving
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.leaving)


def has_header(how: Format) -> bool:
    """Whether the first line of a file is needed to parse the others."""
    return how.name == "csv" and how.header


def _described(bad: Bad) -> str:
    return json.dumps([str(bad.code), bad.reason, bad.raw], ensure_ascii=False)


def _joined(lines: pa.Array) -> bytes:
    """Lines joined into one block of text."""
    together = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    block: bytes = pc.binary_join(together, b"\n")[0].as_buffer().to_pybytes()
    return block + b"\n"


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[Run, pa.Array]]:
    """The lines of a batch, by the run that they belong to."""
    paths, begins = batch.column(1).dictionary_encode(), batch.column(2).to_numpy()
    changes = np.flatnonzero((np.diff(paths.indices.to_numpy()) != 0) | (np.diff(begins) != 0)) + 1
    for begin, end in pairwise([0, *changes.tolist(), batch.num_rows]):
        if end > begin:
            yield (paths[begin].as_py(), int(begins[begin])), batch.column(0).slice(begin, end - begin)


def _first_line(uri: str, longest: int) -> bytes:
    """The header of a file, if this task reads a later part of the file."""
    files, path = FileSystem.from_uri(uri)
    with files.open_input_stream(path) as stream:
        return io.BufferedReader(stream).readline(longest)
