"""The formats of files: how each is read on from a place in it.

A place is JSON: an offset in a file of lines, (row group, row) in Parquet, (batch, row) in Arrow IPC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from headrace.connectors import disk
from headrace.connectors.codes import Code
from headrace.connectors.columns import fit
from headrace.connectors.contract import Bad, Block, empty
from headrace.connectors.csv_lines import CsvLines, header
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.lines import BLOCK, LONGEST, MARK, LineFile
from headrace.schema import Schema

ROWS: Final = 131_072
"""Rows of a block of a columnar file: as many as an operator takes at a time."""

GIVEN_UP: Final = [-1, -1]
"""The place in a file that cannot be read on."""


@dataclass(frozen=True)
class Format:
    """How to read files: the format's name and its options."""

    name: str
    missing: str = "error"
    delimiter: str = ","
    header: bool = True
    longest: int = LONGEST
    block: int = BLOCK
    rows: int = ROWS


class Reader(Protocol):
    """One open file."""

    def read(self, at: Any, *, complete: bool) -> tuple[Block, Any] | None:
        """The rows at a place (None: the beginning) and the place after them; None at the end."""
        ...

    def close(self) -> None: ...


def decoder(schema: Schema, how: Format, names: list[str] | None = None) -> JsonLines | CsvLines:
    """What makes rows of lines; `names` are the columns of a CSV file, else those of the schema."""
    if how.name == "json":
        return JsonLines(schema, missing=how.missing)
    return CsvLines(schema, schema.names if names is None else names, delimiter=how.delimiter)


def headed(schema: Schema, how: Format, first: bytes) -> tuple[JsonLines | CsvLines, tuple[Bad, ...]]:
    """The decoder of a CSV file by its first line, and that line if it is bad: then no other is a row."""
    names = header(first, how.delimiter, how.longest)
    if isinstance(names, Bad):
        return decoder(schema, how, []), (names,)
    return decoder(schema, how, names), ()


class LinesReader:
    """JSON lines or CSV; a place is an offset."""

    def __init__(self, path: Path, schema: Schema, how: Format) -> None:
        self._lines = LineFile(path, block=how.block, longest=how.longest)
        self._schema, self._how = schema, how
        self._decoder: JsonLines | CsvLines | None = None
        self._begin = 0
        self._bad: tuple[Bad, ...] = ()

    def read(self, at: Any, *, complete: bool) -> tuple[Block, Any] | None:
        decoder = self._decoder or self._decoding(complete)
        if decoder is None:
            return None
        if self._bad and (at or 0) < self._begin:
            return Block(empty(self._schema), self._bad), self._begin
        begin = max(at or 0, self._begin)
        cut = self._lines.read(begin, complete=complete)
        if cut is None:
            return None
        block = decoder.decode(cut.lines if begin else cut.lines.removeprefix(MARK))
        return Block(block.data, (*cut.bad, *block.bad)), cut.next

    def _decoding(self, complete: bool) -> JsonLines | CsvLines | None:
        """The decoder, once a header that is asked for has been read."""
        if self._how.name == "json" or not self._how.header:
            self._decoder = decoder(self._schema, self._how)
        elif (first := self._first_line(complete)) is not None:
            self._begin = len(first)
            self._decoder, self._bad = headed(self._schema, self._how, first)
        return self._decoder

    def _first_line(self, complete: bool) -> bytes | None:
        with disk.current.open(self._lines.path, "rb") as file:
            line = file.readline(self._how.longest)
        whole = complete or line.endswith(b"\n") or len(line) == self._how.longest
        return line if line and whole else None

    def close(self) -> None:
        self._lines.close()


class ColumnarReader:
    """A file of batches; a place is (part, row), and reading on from the last one costs no seeking."""

    def __init__(self, path: Path, schema: Schema, how: Format) -> None:
        self._path, self._schema, self._size = path, schema, how.rows
        self._rows: Iterator[pa.RecordBatch] = iter(())
        self._at: list[int] | None = None

    def read(self, at: Any, *, complete: bool) -> tuple[Block, Any] | None:
        if at == GIVEN_UP:
            return None
        try:
            found = self._next(list(at or (0, 0)))
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = f"the rest of the file cannot be read: {str(error).splitlines()[0]}"
            return Block(empty(self._schema), (Bad(Code.UNREADABLE, reason, str(self._path)),)), GIVEN_UP
        if found is None:
            return None
        return fit(found, self._schema), list(self._at or (0, 0))

    def _next(self, at: list[int]) -> pa.RecordBatch | None:
        if self._at != at:
            self._rows = self._from(*at)
        return next(self._rows, None)

    def _from(self, part: int, row: int) -> Iterator[pa.RecordBatch]:
        """Batches from a place on; `_at` is the place after the one that was given last."""
        parts, batches = self._parts()
        for number in range(part, parts):
            at = 0
            for batch in batches(number):
                piece = batch.slice(max(0, row - at)) if number == part else batch
                at += batch.num_rows
                if piece.num_rows:
                    self._at = [number, at]
                    yield piece

    def _parts(self) -> tuple[int, Any]:
        raise NotImplementedError

    def close(self) -> None:
        self._rows, self._at = iter(()), None


class ParquetReader(ColumnarReader):
    """Parquet, a row group at a time, in batches."""

    def _parts(self) -> tuple[int, Any]:
        file = pq.ParquetFile(self._path)
        here = set(file.schema_arrow.names)
        wanted = [name for name in self._schema.names if name in here]

        def batches(group: int) -> Iterator[pa.RecordBatch]:
            yield from file.iter_batches(self._size, row_groups=[group], columns=wanted, use_threads=False)

        return file.num_row_groups, batches


class IpcReader(ColumnarReader):
    """Arrow IPC, the file or the stream format, a batch at a time."""

    def _parts(self) -> tuple[int, Any]:
        with self._path.open("rb") as file:
            is_file = file.read(6) == b"ARROW1"
        mapped = pa.memory_map(str(self._path))
        if is_file:
            reader = ipc.open_file(mapped)
            return reader.num_record_batches, lambda number: self._cut(reader.get_batch(number))
        stream = list(ipc.open_stream(mapped))
        return len(stream), lambda number: self._cut(stream[number])

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        for begin in range(0, batch.num_rows, self._size):
            yield batch.slice(begin, self._size)


READERS: Final[dict[str, type[LinesReader] | type[ColumnarReader]]] = {
    "json": LinesReader,
    "csv": LinesReader,
    "parquet": ParquetReader,
    "arrow": IpcReader,
}
SUFFIXES: Final = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
GROWING: Final = frozenset({"json", "csv"})
"""The formats whose files may grow at their end."""
