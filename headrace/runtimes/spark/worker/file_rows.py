"""Files that Spark's tasks read with Arrow: Spark lists them, and their rows never become rows of Java.

A task gets one row for each piece of a file (`headrace.connectors.pieces`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.connectors.contract import Block
from headrace.connectors.formats import GROWING
from headrace.connectors.pieces import Piece, PieceReader
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED
from headrace.schema import Schema

PIECES = "uri string, number int, count int, written bigint"
"""The columns of pieces; `written` is when the file was written, in microseconds."""


@dataclass(frozen=True)
class FileRows:
    """The rows of pieces of files."""

    reader: PieceReader

    @property
    def schema(self) -> Schema:
        return self.reader.schema

    def only(self, needed: frozenset[str]) -> FileRows:
        """Columns of a columnar file that nothing reads are not decoded."""
        if self.reader.how.name in GROWING:
            return self
        read = pa.schema([field for field in self.reader.schema if field.name in needed])
        return FileRows(replace(self.reader, schema=read))

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Block]]:
        for shared, piece in pieces_of(batches):
            for block in self.reader.read(piece):
                yield shared, block


def pieces_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Piece]]:
    """The pieces that a task reads, oldest files first, each with the columns that all its rows share."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in sorted(rows, key=lambda each: (each["written"], each["uri"], each["number"])):
        shared = {name: row[name] for name in (NOW, REACHED) if name in row}
        yield shared, Piece(row["uri"], row["number"], row["count"])
