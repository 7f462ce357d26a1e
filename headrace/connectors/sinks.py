"""Sinks: a file that grows, a directory of parts, standard output.

What is on disk after a crash may be more than was committed; `open` takes the rest away.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from headrace.connectors import disk
from headrace.connectors.contract import Commit
from headrace.connectors.encode import csv_header, csv_lines, json_lines
from headrace.connectors.existing import clear, is_there, part_numbers, refuse, refuse_append
from headrace.errors import ConnectorError
from headrace.schema import Schema

BUFFERED: Final = 1 << 20
GROUP: Final = 65_536
ENCODERS: Final[dict[str, Callable[[pa.RecordBatch], bytes]]] = {"json": json_lines, "csv": csv_lines}


@dataclass
class FileSink:
    """One file of lines that grows; a commit is its length. Rows go to its end, wherever that is.

    `existing` says what becomes of a file that is there at the first start: `error`, `replace` or `append`.
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

    def _check_header(self, schema: Schema) -> None:
        """Rows are appended under the columns they have."""
        opened = disk.current.open(self.path, "rb")
        with io.TextIOWrapper(opened, "utf-8", errors="replace", newline="") as file:
            found = next(csv.reader(file), [])
        if found != schema.names:
            raise ConnectorError(
                "HR-C014",
                f"the file has the columns {', '.join(found)}",
                place=str(self.path),
                hint=f"the rows to append have {', '.join(schema.names)}; append to another file",
            )

    def _begin_line(self, file: BinaryIO) -> None:
        """What is appended begins a line of its own."""
        file.seek(max(0, self._length - 1))
        if self._length and file.read(1) != b"\n":
            file.seek(self._length)
            self._write(b"\n")
        file.seek(self._length)

    def _committed(self, size: int, commit: Commit) -> int:
        if size < commit["length"]:
            raise ConnectorError(
                "HR-C011",
                f"the file has {size} bytes, but {commit['length']} were committed",
                place=str(self.path),
                hint="put it back as it was, or delete the checkpoint and the outputs to begin anew",
            )
        return int(commit["length"])

    def write(self, data: pa.RecordBatch) -> None:
        with saying(self.path):
            self._write(ENCODERS[self.format](data))

    def _write(self, data: bytes) -> None:
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
        """Nobody else may cut or replace the file: what was committed could not be found again."""
        size = self._size()
        if size != self._length:
            raise ConnectorError(
                "HR-C011",
                f"the file has {size} bytes, but {self._length} were written: it was cut, replaced or "
                "written to by another program while the run used it",
                place=str(self.path),
                hint="put back what was cut off, in front of what is there now, and run again; to rotate an "
                "output, stop the run, or write Parquet or Arrow, which have a file for each commit",
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
    """A directory with a part for each commit; a part has its name only once it is committed."""

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

    def _name(self, number: int) -> Path:
        return self.path / f"part-{number:06d}.{self.format}"

    def _draft(self, number: int) -> Path:
        return self.path / f".part-{number:06d}.draft"

    def write(self, data: pa.RecordBatch) -> None:
        self._held.append(data)
        self._rows += data.num_rows
        if self._rows >= GROUP:
            with saying(self.path):
                self._flush()

    def _flush(self) -> None:
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
                        f"part {number} was committed and is gone",
                        place=str(self.path),
                        hint="put it back, or delete the checkpoint and the outputs to begin anew",
                    )
            if commit["pending"]:
                disk.current.sync(self.path)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Uncommitted:
    """What has nothing to prepare and nothing to publish."""

    def begin(self) -> Commit:
        return {}

    def open(self, schema: Schema, commit: Commit) -> None:
        return None

    def prepare(self) -> Commit:
        return {}

    def publish(self, commit: Commit) -> None:
        return None

    def close(self) -> None:
        return None


class StandardOutput(_Uncommitted):
    """Lines on standard output, at once. What was printed cannot be taken back after a crash."""

    def __init__(self, format: str = "json") -> None:
        self._encode = ENCODERS[format]

    def write(self, data: pa.RecordBatch) -> None:
        sys.stdout.write(self._encode(data).decode("utf-8"))
        sys.stdout.flush()


class NoSink(_Uncommitted):
    """Takes rows and keeps none: for outputs that nobody asked for."""

    def write(self, data: pa.RecordBatch) -> None:
        return None


def _parquet(file: BinaryIO, schema: Schema) -> Any:
    return pq.ParquetWriter(file, schema)


def _ipc(file: BinaryIO, schema: Schema) -> Any:
    return ipc.new_file(file, schema)


WRITERS: Final[dict[str, Callable[[BinaryIO, Schema], Any]]] = {"parquet": _parquet, "arrow": _ipc}


class Writer:
    """A new file of batches: what is written `to` it is safe once it is sealed."""

    def __init__(self, path: Path, format: str, schema: Schema) -> None:
        self._file = disk.current.open(path, "wb")
        try:
            self.to = WRITERS[format](self._file, schema)
        except BaseException:
            self._file.close()
            raise

    def seal(self) -> None:
        """No more comes: make the file whole and safe."""
        self.to.close()
        disk.current.flush(self._file)
        self._file.close()

    def close(self) -> None:
        """Let go of a file that nobody will read, unless it is sealed."""
        if self._file.closed:
            return
        with suppress(OSError, pa.ArrowException):
            self.to.close()
        with suppress(OSError):
            self._file.close()


@contextmanager
def saying(path: Path) -> Iterator[None]:
    """Errors of the file system become errors that name the output and what to do."""
    try:
        yield
    except OSError as error:
        raise ConnectorError(
            "HR-C012",
            f"cannot write: {error.strerror or error}",
            place=str(path),
            hint="what was committed is safe: make room or repair the place, then run again",
        ) from error
