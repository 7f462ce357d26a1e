"""File formats, and how to read a file of each format from a given place.

A place is JSON: an offset in a file of lines, (row group, row) in Parquet, (batch, row) in Arrow IPC.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from headrace import tuning
from headrace.connectors.columnar import IpcReader, ParquetReader
from headrace.connectors.contract import Bad, Block, Opener, empty
from headrace.connectors.csv_lines import CsvLines, header
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.lines import LONGEST, MARK, LineFile
from headrace.schema import Schema

MOST: Final = 128 << 20
"""Maximum size in bytes of a decoded piece of a columnar file."""


@dataclass(frozen=True)
class Format:
    """How to read files: the format's name and its options."""

    name: str
    missing: str = "error"
    delimiter: str = ","
    header: bool = True
    longest: int = LONGEST
    block: int = field(default_factory=lambda: tuning.current.text_block_bytes)
    rows: int = field(default_factory=lambda: tuning.current.batch_rows)
    most: int = MOST
    opened: Opener | None = None
    """Opens files that are not on this machine, or parts of files."""


class Reader(Protocol):
    """One open file."""

    def read(self, at: Any, *, complete: bool, stop: Any = None) -> tuple[Block, Any] | None:
        """The rows at a place (None: the beginning) and the place after them; None at the end.

        `stop`: the place after these rows when they were read before; the same rows are returned
        again.
        """
        ...

    def close(self) -> None: ...


def decoder(schema: Schema, how: Format, names: list[str] | None = None) -> JsonLines | CsvLines:
    """The decoder for lines; `names` are the columns of a CSV file, by default those of the schema."""
    if how.name == "json":
        return JsonLines(schema, missing=how.missing)
    return CsvLines(schema, schema.names if names is None else names, delimiter=how.delimiter)


def headed(schema: Schema, how: Format, first: bytes) -> tuple[JsonLines | CsvLines, tuple[Bad, ...]]:
    """The decoder of a CSV file, from its first line.

    If that line is bad, it is returned too: no line is a row.
    """
    names = header(first, how.delimiter, how.longest)
    if isinstance(names, Bad):
        return decoder(schema, how, []), (names,)
    return decoder(schema, how, names), ()


class LinesReader:
    """JSON lines or CSV; a place is an offset."""

    def __init__(self, path: Path, schema: Schema, how: Format) -> None:
        self._lines = LineFile(path, block=how.block, longest=how.longest, opened=how.opened)
        self._schema, self._how = schema, how
        self._decoder: JsonLines | CsvLines | None = None
        self._begin = 0
        self._bad: tuple[Bad, ...] = ()

    def read(self, at: Any, *, complete: bool, stop: Any = None) -> tuple[Block, Any] | None:
        decoder = self._decoder or self._decoding(complete)
        if decoder is None:
            return None
        if self._bad and (at or 0) < self._begin:
            return Block(empty(self._schema), self._bad), self._begin
        begin = max(at or 0, self._begin)
        again = None if stop is None else self._lines.read_again(begin, stop)
        cut = again or self._lines.read(begin, complete=complete)
        if cut is None:
            return None
        block = decoder.decode(cut.lines if begin else cut.lines.removeprefix(MARK))
        return Block(block.data, (*cut.bad, *block.bad)), cut.next

    def _decoding(self, complete: bool) -> JsonLines | CsvLines | None:
        """The decoder, once a required header has been read."""
        if self._how.name == "json" or not self._how.header:
            self._decoder = decoder(self._schema, self._how)
        elif (first := self._first_line(complete)) is not None:
            self._begin = len(first)
            self._decoder, self._bad = headed(self._schema, self._how, first)
        return self._decoder

    def _first_line(self, complete: bool) -> bytes | None:
        """The header line; None if it is not complete yet."""
        self.handle.seek(0)
        line = self.handle.readline(self._how.longest)
        whole = complete or line.endswith(b"\n") or len(line) == self._how.longest
        return line if line and whole else None

    @property
    def handle(self) -> BinaryIO:
        """The open file."""
        return self._lines.handle

    def rest(self, at: Any) -> bytes:
        """The beginning of an unfinished line."""
        return self._lines.rest(max(at or 0, self._begin))

    def close(self) -> None:
        self._lines.close()


READERS: Final[dict[str, Callable[[Path, Schema, Format], Reader]]] = {
    "json": LinesReader,
    "csv": LinesReader,
    "parquet": lambda path, schema, how: ParquetReader(path, schema, how.rows, how.most, how.opened),
    "arrow": lambda path, schema, how: IpcReader(path, schema, how.rows, how.most, how.opened),
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
