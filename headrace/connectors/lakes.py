"""Tables of a lake as sources: Delta and Iceberg.

A table is a log of versions, and each version adds files. A source reads the rows that were there when it
started, and then the files that each later version adds. Files never change, so the version, the file and
the number of rows say exactly which rows were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.conform import fit
from headrace.connectors.contract import Block, Position, Span
from headrace.errors import ConnectorError
from headrace.schema import DataType, Schema
from headrace.time.clock import seconds

File: TypeAlias = Any
"""A file of a table, as its `LakeLog` knows it."""


class LakeLog(Protocol):
    """The versions of a table. Law: a version always has the same files in the same order."""

    @property
    def place(self) -> str:
        """What it is, for messages; without secrets."""
        ...

    def table(self) -> str:
        """What identifies the table: another table under the same name has another one."""
        ...

    def newest(self) -> int | None:
        """The newest version; None if there is none yet."""
        ...

    def after(self, version: int) -> int | None:
        """The version after this one; None if it is the newest."""
        ...

    def whole(self, version: int) -> Sequence[File]:
        """All files of a version."""
        ...

    def added(self, version: int) -> Sequence[File]:
        """The files that a version adds; an error if it also removes rows."""
        ...

    def batches(self, file: File) -> Iterator[pa.RecordBatch]:
        """The rows of a file, always in the same order."""
        ...


class LakeSource:
    """Rows of a table. With `follow`, rows that are added later, too; `new` reads only those.

    `now` is the clock of the run, in ticks: new versions are looked for at most once in `poll` seconds.
    """

    def __init__(
        self,
        log: LakeLog,
        schema: Schema,
        *,
        follow: bool = False,
        new: bool = False,
        block_rows: int = 131_072,
        poll: float = 1.0,
        now: Callable[[], int] = lambda: 0,
    ) -> None:
        self._log, self._schema, self._now = log, schema, now
        self._read_until: int | None = None
        self.bounded, self.ended = not follow, False
        self._new, self._most, self._poll = new, block_rows, poll
        self._table: str | None = None
        self._version: int | None = None
        self._whole = True
        self._files: Sequence[File] = ()
        self._file, self._row = 0, 0
        self._rows: Iterator[pa.RecordBatch] | None = None
        self._rest: pa.RecordBatch | None = None
        self._again: int | None = None
        self._looked = -poll

    def read_until(self) -> int | None:
        """The instant of the last look that found nothing new."""
        return self._read_until

    def read(self) -> Block | None:
        most, self._again = self._again or self._most, None
        while not self.ended and (self._version is not None or self._begins()):
            if self._file < len(self._files):
                found = self._take(self._files[self._file], most)
                if found is not None:
                    self._row += found.num_rows
                    block = fit(found, self._schema)
                    return Block(block.data, block.bad, span=found.num_rows)
                self._file, self._row = self._file + 1, 0
                self._forget()
            elif self.bounded:
                self.ended = True
            elif not self._goes_on():
                return None
        return None

    def _begins(self) -> bool:
        """Start with the newest version; false if there is none yet."""
        if not self._may_look():
            return False
        begun = self._now()
        self._table = self._log.table()
        newest = self._log.newest()
        if newest is not None:
            self._start(newest, whole=True)
            self._file = len(self._files) if self._new else 0
        else:
            self._read_until, self.ended = begun, self.bounded
        return newest is not None

    def _goes_on(self) -> bool:
        """Go to the next version; looks for it at most once in `poll` seconds if there was none."""
        assert self._version is not None
        if not self._may_look():
            return False
        begun = self._now()
        later = self._log.after(self._version)
        if later is None:
            self._read_until = begun
        else:
            self._start(later, whole=False)
            self._looked = -self._poll
        return later is not None

    def _may_look(self) -> bool:
        if seconds() - self._looked < self._poll:
            return False
        self._looked = seconds()
        return True

    def _start(self, version: int, *, whole: bool) -> None:
        self._files = self._log.whole(version) if whole else self._log.added(version)
        self._version, self._whole = version, whole
        self._file, self._row = 0, 0
        self._forget()

    def _take(self, file: File, most: int) -> pa.RecordBatch | None:
        """At most this many of the next rows of a file; as many as there are in it, if that is less."""
        if self._rows is None:
            self._rows = self._log.batches(file)
            self._skip(self._row)
        pieces: list[pa.RecordBatch] = []
        left = most
        while left:
            piece = self._rest if self._rest is not None else next(self._rows, None)
            if piece is None:
                break
            pieces.append(piece.slice(0, left))
            self._rest = piece.slice(left) if piece.num_rows > left else None
            left -= pieces[-1].num_rows
        whole = pa.Table.from_batches(pieces).combine_chunks().to_batches() if pieces else []
        return whole[0] if whole else None

    def _skip(self, rows: int) -> None:
        """Go over rows that were read before."""
        assert self._rows is not None
        while rows:
            piece = next(self._rows, None)
            if piece is None:
                raise changed(
                    self._log, f"a file of version {self._version} is shorter than what was read of it"
                )
            if piece.num_rows > rows:
                self._rest = piece.slice(rows)
            rows -= min(rows, piece.num_rows)

    def position(self) -> Position:
        return {
            "table": self._table,
            "version": self._version,
            "whole": self._whole,
            "file": self._file,
            "row": self._row,
        }

    def seek(self, position: Position, span: Span | None = None) -> None:
        self.close()
        self.ended, self._again, self._looked, self._read_until = False, span, -self._poll, None
        self._table, self._version = position["table"], None
        if self._table is not None and self._table != self._log.table():
            raise changed(self._log, "another table has its name now")
        if position["version"] is not None:
            self._start(position["version"], whole=position["whole"])
            self._file, self._row = position["file"], position["row"]

    def close(self) -> None:
        self._forget()

    def _forget(self) -> None:
        rows, self._rows, self._rest = self._rows, None, None
        if rows is not None and hasattr(rows, "close"):
            rows.close()


def changed(log: LakeLog, message: str) -> ConnectorError:
    """The error of a table that is not what was read."""
    return ConnectorError(
        "HR-C002",
        message,
        place=log.place,
        hint="restore the table, or start over with a new checkpoint",
    )


# --- types

_NARROW: Final[tuple[tuple[Callable[[DataType], bool], DataType], ...]] = (
    (pt.is_uint8, pa.int16()),
    (pt.is_uint16, pa.int32()),
    (pt.is_uint32, pa.int64()),
    (pt.is_uint64, pa.decimal128(20, 0)),
    (pt.is_float16, pa.float32()),
    (pt.is_null, pa.string()),
)


def lake_type(of: DataType) -> DataType:
    """The type of a column in a lake, which has no unsigned numbers, and times in microseconds."""
    if pt.is_timestamp(of):
        return pa.timestamp("us", None if of.tz is None else "UTC")
    return next((to for holds, to in _NARROW if holds(of)), of)


def lake_schema(schema: Schema) -> Schema:
    """The columns of a table in a lake for these rows."""
    return pa.schema([pa.field(each.name, lake_type(each.type)) for each in schema])
