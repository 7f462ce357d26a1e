"""Pieces of files: parts of one file that several tasks read, so that together they read each row once.

Lines belong to the piece in which they begin; a Parquet file is cut between row groups, an Arrow file between
batches. Directories named `column=value` are columns of the files below them.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from headrace.connectors import ipc_sizes
from headrace.connectors.conform import converted, unfit_value
from headrace.connectors.contract import Bad, Block, Code, Opener, empty, local_file
from headrace.connectors.formats import GROWING, READERS, Format
from headrace.connectors.identity import unreadable
from headrace.connectors.parquet_pages import groups_of
from headrace.schema import Schema

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""The name of the directory of rows without a value."""
SAME_SCHEMES: Final = {"s3a": "s3", "s3n": "s3", "wasbs": "abfss", "wasb": "abfs"}
"""Schemes of Hadoop that others write differently."""
LOOKED_AT: Final = 1 << 16


@dataclass(frozen=True)
class Piece:
    """Piece `number` of the `count` pieces of a file; `uri` is the file as Hadoop writes it."""

    uri: str
    number: int = 0
    count: int = 1


@dataclass(frozen=True)
class Storage:
    """Where files are: on this machine, or in an object store that their URIs or a `filesystem` name.

    `filesystem` is one of `pyarrow.fs` or of fsspec, with the credentials that it needs.
    """

    filesystem: Any = None

    def path(self, uri: str) -> Path:
        """The path of a file; of a remote one, only for messages."""
        return Path(local_path(uri) or uri)

    def opener(self, uri: str) -> Opener | None:
        """How to open a file; None if it is on this machine."""
        if self.filesystem is None and local_path(uri) is not None:
            return None
        store, path = self.found(uri)
        return lambda _: io.BufferedReader(store.open_input_file(path))

    def found(self, uri: str) -> tuple[fs.FileSystem, str]:
        """The file system of a file, and the path of the file in it."""
        scheme, _, rest = uri.partition("://")
        inside = local_path(uri) or rest
        if isinstance(self.filesystem, fs.FileSystem):
            return self.filesystem, inside
        if self.filesystem is not None:
            return _of_fsspec(self.filesystem), self.filesystem._strip_protocol(uri)
        same = f"{SAME_SCHEMES.get(scheme, scheme)}://{rest}"
        try:
            found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(same.replace(" ", "%20"))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):
            other, path = import_module("fsspec.core").url_to_fs(same)
            return _of_fsspec(other), path
        return found


def _of_fsspec(store: Any) -> fs.FileSystem:
    return fs.PyFileSystem(fs.FSSpecHandler(store))


def local_path(uri: str) -> str | None:
    """The path of a file on this machine, from its URI, which Hadoop does not quote; None if it is remote."""
    if uri.startswith("file:"):
        return "/" + uri.removeprefix("file:").lstrip("/")
    return None if "://" in uri else uri


@dataclass(frozen=True)
class PieceReader:
    """Reads pieces of files in one format. `base` is the directory below which directories are columns."""

    schema: Schema
    how: Format
    storage: Storage = Storage()
    base: str = ""

    def read(self, piece: Piece) -> Iterator[Block]:
        """The rows of a piece, in blocks. A file that does not exist any more is an error: no row is lost."""
        path, opener = self.storage.path(piece.uri), self.storage.opener(piece.uri)
        try:
            yield from self._with_directories(piece, path, opener)
        except OSError as error:
            raise unreadable(path, error) from error

    def _with_directories(self, piece: Piece, path: Path, opener: Opener | None) -> Iterator[Block]:
        """The rows, with the columns that directories give."""
        named = {n: text for n, text in directories(piece.uri, self.base).items() if n in self.schema.names}
        if not named:
            yield from self._blocks(piece, path, opener, self.schema)
            return
        values: dict[str, pa.Array] = {}
        for name, text in named.items():
            field = self.schema.field(name)
            value, wrong = converted(pa.array([None if text == NO_VALUE else text]), field.type)
            if wrong is not None and wrong.any():
                if not piece.number:
                    bad = Bad(Code.TYPE, unfit_value(field, text), str(path))
                    yield Block(empty(self.schema), (bad,))
                return
            values[name] = value
        inside = pa.schema([field for field in self.schema if field.name not in values])
        for block in self._blocks(piece, path, opener, inside):
            yield replace(block, data=self._completed(block.data, values))

    def _completed(self, data: pa.RecordBatch, values: dict[str, pa.Array]) -> pa.RecordBatch:
        columns = [
            pa.repeat(values[name][0], data.num_rows) if name in values else data.column(name)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _blocks(self, piece: Piece, path: Path, opener: Opener | None, schema: Schema) -> Iterator[Block]:
        """The rows of the file itself."""
        reading = _lines if self.how.name in GROWING else _parts
        opened = opener or local_file
        span = (None, None) if piece.count == 1 else reading(self.how.name, piece, path, opened)
        if span is None:
            return
        at, last = span
        how = replace(self.how, opened=opener)
        if isinstance(last, int):
            how = replace(how, opened=_Until(opened, last))
        reader = READERS[how.name](path, schema, how)
        try:
            while (found := reader.read(at, complete=True)) is not None:
                block, at = found
                if isinstance(last, list) and at > [last[0] + 1, 0]:
                    return  # the last group had no rows, and this is the next one
                yield block
                if isinstance(last, list) and at >= last:
                    return
        finally:
            reader.close()


# --- where a piece begins and ends

Span = tuple[Any, Any]
"""The places where a piece begins and ends: offsets, or (part, row)."""


def _lines(name: str, piece: Piece, path: Path, opened: Opener) -> Span | None:
    """The lines that begin in an equal share of the bytes."""
    with opened(path) as file:
        size = file.seek(0, io.SEEK_END)
        begin, end = (
            _next_line(file, size * i // piece.count, size) for i in (piece.number, piece.number + 1)
        )
    return (begin or None, end) if begin < end else None


def _next_line(file: BinaryIO, at: int, size: int) -> int:
    """The first beginning of a line at or after an offset."""
    if not 0 < at < size:
        return at
    file.seek(at - 1)
    at -= 1
    while chunk := file.read(LOOKED_AT):
        end = chunk.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(chunk)
    return size


def _parts(name: str, piece: Piece, path: Path, opened: Opener) -> Span | None:
    """An equal share of the row groups or batches; all for the first piece if the file cannot be divided."""
    with opened(path) as file:
        try:
            rows = ROWS[name](file)
        except Exception:  # damaged: the reader of the first piece says how
            rows = None
    if rows is None:
        return None if piece.number else (None, None)
    begin, end = (len(rows) * i // piece.count for i in (piece.number, piece.number + 1))
    return ([begin, 0], [end - 1, rows[end - 1]]) if begin < end else None


def _batch_rows(file: BinaryIO) -> list[int] | None:
    """The rows of the batches of an Arrow file; None for the stream format, which has no list of them."""
    if not ipc_sizes.is_file(file):
        return None
    _, batches = ipc_sizes.file_blocks(file)
    return [ipc_sizes.message_at(file, at).rows for at, _ in batches]


ROWS: Final[dict[str, Callable[[BinaryIO], list[int] | None]]] = {
    "parquet": lambda file: [group.rows for group in groups_of(file)],
    "arrow": _batch_rows,
}


@dataclass(frozen=True)
class _Until:
    """Opens files that seem to end at an offset."""

    opened: Opener
    end: int

    def __call__(self, path: Path) -> BinaryIO:
        return io.BufferedReader(_Beginning(self.opened(path), self.end))


class _Beginning(io.RawIOBase):
    """The beginning of a file."""

    def __init__(self, file: BinaryIO, end: int) -> None:
        self._file, self._end = file, end

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END:
            return self._file.seek(self._end + offset)
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(max(0, min(len(buffer), self._end - self._file.tell())))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


# --- directories as columns


def directories(uri: str, base: str) -> dict[str, str]:
    """The values that the directories of a file give, by column: those below `base`, as Hive writes them."""
    path, below = _plain(uri), _plain(base).rstrip("/")
    inside = path[len(below) :] if path.startswith(below) else ""
    parts = (each.partition("=") for each in inside.split("/")[:-1] if "=" in each)
    return {unquote(name): value if value == NO_VALUE else unquote(value) for name, _, value in parts}


def _plain(uri: str) -> str:
    """The path of a file without its scheme and host."""
    local = local_path(uri)
    return local if local is not None else "/" + uri.partition("://")[2].partition("/")[2]


__all__ = ["NO_VALUE", "Piece", "PieceReader", "Storage", "directories", "local_path"]
