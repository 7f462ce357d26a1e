"""Sinks: a file that grows, a directory of parts, standard output.

After a crash, more may be on disk than was committed; `open` removes the excess.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from headrace import disk, tuning
from headrace.connectors.contract import Commit
from headrace.connectors.encode import csv_header, csv_lines, json_lines
from headrace.connectors.existing_output import clear, is_there, part_numbers, refuse, refuse_append
from headrace.errors import ConnectorError
from headrace.schema import Schema

BUFFERED: Final = 1 << 20
ENCODERS: Final[dict[str, Callable[[pa.RecordBatch], bytes]]] = {"json": json_lines, "csv": csv_lines}


@dataclass
class FileSink:
    """One file of lines that grows. A commit is its length, and rows are appended to the end.

    `existing` says what to do with a file that already exists at the first start: `error`, `replace` or
    `append`.
    """

    path: Path
    format: str = "json"
    existing: str = "error"

    def __post_init__(self) -> None:
        self._file: BinaryIO | None = None
        self._length, self._safe = 0, -1

    def begin(self) -> Commit:
        with saying(self.path):
            there = is_there(self.path)
        if there and self.existing == "error":
            raise refuse(self.path)
        if there and self.existing == "append":
            if self.path.is_dir():
                raise refuse_append(self.path)
            return {"length": self._size()}
        return {"length": 0}

    def _size(self) -> int:
        return disk.current.size(self.path) if self.path.is_file() else 0

    def open(self, schema: Schema, commit: Commit) -> None:
        with saying(self.path):
            if self.existing == "replace" and self.path.is_dir():
                clear(self.path)
            disk.current.mkdir(self.path.parent)
            self._length = self._committed(self._size(), commit)
            if self._length and self.format == "csv":
                self._check_header(schema)
            self._file = disk.current.open(self.path, "a+b", BUFFERED)
            disk.current.sync(self.path.parent)
            self._file.truncate(self._length)
            self._begin_line(self._file)
            if not self._length and self.format == "csv":
                self._write(csv_header(schema))

    def cut(self, commit: Commit) -> None:
        with saying(self.path):
            length = self._committed(self._size(), commit)
            if length < self._size():
                with disk.current.open(self.path, "a+b", BUFFERED) as file:
                    file.truncate(length)
                    disk.current.flush(file)

    def _check_header(self, schema: Schema) -> None:
        """Check that the header of the existing file has the columns of the rows to append."""
        opened = disk.current.open(self.path, "rb")
        with io.TextIOWrapper(opened, "utf-8", errors="replace", newline="") as file:
            found = next(csv.reader(file), [])
        if found != schema.names:
            raise ConnectorError(
                "HR-C014",
                f"the file has other columns than the rows to append: {', '.join(found)}",
                place=str(self.path),
                hint=f"the rows have {', '.join(schema.names)}; write to another file",
            )

    def _begin_line(self, file: BinaryIO) -> None:
        """Start a new line before appending, if the file does not end with one."""
        file.seek(max(0, self._length - 1))
        if self._length and file.read(1) != b"\n":
            file.seek(self._length)
            self._write(b"\n")
        file.seek(self._length)

    def _committed(self, size: int, commit: Commit) -> int:
        """The committed length; an error if the file is shorter."""
        if size < commit["length"]:
            raise ConnectorError(
                "HR-C011",
                f"the file has {size} bytes, but {commit['length']} were committed",
                place=str(self.path),
                hint="restore the file, or delete the checkpoint and the outputs to start over",
            )
        return int(commit["length"])

    def write(self, data: pa.RecordBatch) -> None:
        with saying(self.path):
            self._write(ENCODERS[self.format](data))

    def _write(self, data: bytes) -> None:
        """Append bytes to the file."""
        assert self._file is not None
        self._file.write(data)
        self._length += len(data)

    def prepare(self) -> Commit:
        assert self._file is not None
        with saying(self.path):
            if self._length != self._safe:
                disk.current.flush(self._file)
                self._safe = self._length
            self._check_ours()
        return {"length": self._length}

    def _check_ours(self) -> None:
        """An error if another program changed the file, because committed rows could be lost."""
        size = self._size()
        if size != self._length:
            raise ConnectorError(
                "HR-C011",
                f"the file has {size} bytes, but {self._length} were written: it was cut, replaced or "
                "written to by another program while the run used it",
                place=str(self.path),
                hint="restore what was cut off, in front of what is there now, and run again; to rotate an "
                "output, stop the run first, or write Parquet or Arrow, which use a file per commit",
            )

    def publish(self, commit: Commit) -> None:
        return None

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()
            self._file = None


@dataclass
class PartsSink:
    """A directory with one part per commit; a part gets its final name only when it is committed."""

    path: Path
    format: str = "parquet"
    existing: str = "error"

    def __post_init__(self) -> None:
        self._schema: Schema = pa.schema([])
        self._next = 0
        self._writer: Writer | None = None
        self._held: list[pa.RecordBatch] = []
        self._rows = 0

    def begin(self) -> Commit:
        with saying(self.path):
            there = is_there(self.path)
        if there and self.existing == "error":
            raise refuse(self.path)
        if there and self.existing == "append":
            if not self.path.is_dir():
                raise refuse_append(self.path)
            return {"next": max(part_numbers(self.path), default=-1) + 1, "pending": []}
        return {"next": 0, "pending": []}

    def open(self, schema: Schema, commit: Commit) -> None:
        self._schema = schema
        with saying(self.path):
            if not commit["next"] and (self.existing == "replace" or self.path.is_file()):
                clear(self.path)
            disk.current.mkdir(self.path)
            for number in (n for n in part_numbers(self.path) if n >= commit["next"]):
                disk.current.unlink(self._name(number), missing_ok=True)
            self.publish(commit)
            for draft in self.path.glob(".part-*.draft"):
                disk.current.unlink(draft)
        self._next = commit["next"]

    def cut(self, commit: Commit) -> None:
        if self.path.is_dir():
            self.existing = "append"
            self.open(self._schema, commit)

    def _name(self, number: int) -> Path:
        return self.path / f"part-{number:06d}.{self.format}"

    def _draft(self, number: int) -> Path:
        """The path of a part that is not committed yet."""
        return self.path / f".part-{number:06d}.draft"

    def write(self, data: pa.RecordBatch) -> None:
        self._held.append(data)
        self._rows += data.num_rows
        if self._rows >= tuning.current.row_group_rows:
            with saying(self.path):
                self._flush()

    def _flush(self) -> None:
        """Write the buffered rows to the current part as one row group."""
        if not self._rows:
            return
        if self._writer is None:
            self._writer = Writer(self._draft(self._next), self.format, self._schema)
        self._writer.to.write_table(pa.Table.from_batches(self._held, self._schema).combine_chunks())
        self._held, self._rows = [], 0

    def prepare(self) -> Commit:
        with saying(self.path):
            self._flush()
            if self._writer is None:
                return {"next": self._next, "pending": []}
            self._writer.seal()
            self._writer = None
            disk.current.sync(self.path)
        self._next += 1
        return {"next": self._next, "pending": [self._next - 1]}

    def publish(self, commit: Commit) -> None:
        with saying(self.path):
            for number in commit["pending"]:
                if self._draft(number).exists():
                    disk.current.replace(self._draft(number), self._name(number))
                elif not self._name(number).exists():
                    raise ConnectorError(
                        "HR-C011",
                        f"part {number} was committed, but its file no longer exists",
                        place=str(self.path),
                        hint="restore it, or delete the checkpoint and the outputs to start over",
                    )
            if commit["pending"]:
                disk.current.sync(self.path)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Uncommitted:
    """A sink without commits: there is nothing to prepare or publish."""

    def begin(self) -> Commit:
        return {}

    def open(self, schema: Schema, commit: Commit) -> None:
        return None

    def cut(self, commit: Commit) -> None:
        return None

    def prepare(self) -> Commit:
        return {}

    def publish(self, commit: Commit) -> None:
        return None

    def close(self) -> None:
        return None


class StandardOutput(_Uncommitted):
    """Lines on standard output, written immediately. Printed rows cannot be taken back after a crash."""

    def __init__(self, format: str = "json") -> None:
        self._encode = ENCODERS[format]

    def write(self, data: pa.RecordBatch) -> None:
        sys.stdout.write(self._encode(data).decode("utf-8"))
        sys.stdout.flush()


class NoSink(_Uncommitted):
    """Drops all rows; used for outputs without a sink."""

    def write(self, data: pa.RecordBatch) -> None:
        return None


def _parquet(file: BinaryIO, schema: Schema) -> Any:
    return pq.ParquetWriter(file, schema)


def _ipc(file: BinaryIO, schema: Schema) -> Any:
    return ipc.new_file(file, schema)


WRITERS: Final[dict[str, Callable[[BinaryIO, Schema], Any]]] = {"parquet": _parquet, "arrow": _ipc}


class Writer:
    """A new file of batches; rows written through `to` are durable once the file is sealed."""

    def __init__(self, path: Path, format: str, schema: Schema, *, private: bool = False) -> None:
        self._file = disk.current.open(path, "wb", private=private)
        try:
            self.to = WRITERS[format](self._file, schema)
        except BaseException:
            self._file.close()
            raise

    def seal(self) -> None:
        """Finish the file and make it durable."""
        self.to.close()
        disk.current.flush(self._file)
        self._file.close()

    def close(self) -> None:
        """Close a file that is not sealed and will not be read."""
        if self._file.closed:
            return
        with suppress(OSError, pa.ArrowException):
            self.to.close()
        with suppress(OSError):
            self._file.close()


def saying(path: Path) -> AbstractContextManager[None]:
    """Turn file system errors into errors that name the output and suggest a fix."""
    return disk.coded(ConnectorError, "HR-C012", "write", path)
