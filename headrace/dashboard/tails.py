"""The newest rows of outputs that are files, as text: lines, and parts in a directory, of both runtimes."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from headrace.connectors.formats import SUFFIXES
from headrace.pipeline.spec import FilesTo

ROWS: Final = 20
"""How many rows are shown."""
BYTES: Final = 64 * 1024
"""How much of the end of a text file is read."""
PARTS: Final = 8
"""How many of the newest parts of a directory are looked at."""
LONGEST: Final = 200
"""The length of a value; the rest is cut off."""

Mark = tuple[int, int]
"""Size and modification time: if they are the same, nothing new was written."""
_NUMBER: Final = re.compile(r"\d+")


@dataclass(frozen=True)
class Tail:
    """The newest rows of an output, the newest last; values are text."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass
class TailReader:
    """Follows one output, and reads it again only if it has changed."""

    path: Path
    format: str
    _mark: Mark | None = None
    _tail: Tail = field(default_factory=Tail)

    def read(self) -> Tail:
        """The newest rows."""
        mark = _mark_of(self.path)
        if mark != self._mark:
            try:
                self._tail = _newest(self.path, self.format)
                self._mark = mark
            except (OSError, ValueError, pa.ArrowException):
                pass  # it is being replaced: the next look sees it
        return self._tail


def reader_of(sink: Any, path: Callable[[str], Path]) -> TailReader | None:
    """The reader of a sink of the pipeline; None if it does not write files."""
    if not isinstance(sink, FilesTo):
        return None
    found = sink.format or SUFFIXES.get(Path(sink.path).suffix.lower())
    return None if found is None else TailReader(path(sink.path), found)


def _mark_of(path: Path) -> Mark | None:
    """What changes when rows are written; for a directory, its newest part."""
    try:
        found = path.stat()
        if path.is_dir():
            parts = _parts(path)
            newest = max((each.stat().st_mtime_ns for each in parts), default=0)
            return len(parts), max(newest, found.st_mtime_ns)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _parts(path: Path) -> list[Path]:
    """The newest parts of a directory, the newest first: files, or the files of Spark's micro-batches."""
    with os.scandir(path) as entries:
        names = [each.name for each in entries if not each.name.startswith((".", "_"))]
    found: list[Path] = []
    for name in sorted(names, key=_in_order, reverse=True):
        one = path / name
        inner = sorted(one.iterdir(), reverse=True) if one.is_dir() else [one]
        found += [each for each in inner if not each.name.startswith((".", "_")) and each.is_file()]
        if len(found) >= PARTS:
            break
    return found[:PARTS]


def _in_order(name: str) -> tuple[int, str]:
    number = _NUMBER.search(name)
    return int(number[0]) if number else -1, name


def _newest(path: Path, format: str) -> Tail:
    """The newest rows of a file or a directory."""
    if not path.exists():
        return Tail()
    files = _parts(path) if path.is_dir() else [path]
    columns: dict[str, None] = {}
    rows: list[dict[str, Any]] = []
    for each in files:
        part = READERS[format](each)
        for row in part:
            columns |= dict.fromkeys(row)
        rows = part + rows
        if len(rows) >= ROWS:
            break
    shown = tuple(tuple(_text(row.get(name)) for name in columns) for row in rows[-ROWS:])
    return Tail(tuple(columns), shown)


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    text = text[1:-1] if text.startswith('"') and not isinstance(value, str) else text
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _last_lines(path: Path) -> Iterator[str]:
    """The last complete lines of a text file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BYTES))
        text = file.read()
    lines = text.split(b"\n")
    if size > BYTES:
        lines = lines[1:]
    yield from (line.decode("utf-8", "replace") for line in lines[:-1][-ROWS:])


def _json(path: Path) -> list[dict[str, Any]]:
    found = (json.loads(line) for line in _last_lines(path) if line.strip())
    return [row for row in found if isinstance(row, dict)]


def _csv(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        head = next(csv.reader(file), [])
    rows = csv.reader(io.StringIO("\n".join(_last_lines(path))))
    return [dict(zip(head, row, strict=False)) for row in rows if row and row != head]


def _parquet(path: Path) -> list[dict[str, Any]]:
    with pq.ParquetFile(path) as file:
        groups = file.num_row_groups
        table = file.read_row_group(groups - 1) if groups else file.read()
    return _as_rows(table)


def _arrow(path: Path) -> list[dict[str, Any]]:
    with pa.OSFile(str(path)) as file:
        try:
            opened = ipc.open_file(file)
            count = opened.num_record_batches
            batches = [opened.get_batch(count - 1)] if count else []
            return _as_rows(pa.Table.from_batches(batches, opened.schema))
        except pa.ArrowInvalid:
            file.seek(0)
            return _as_rows(ipc.open_stream(file).read_all())


def _as_rows(table: pa.Table) -> list[dict[str, Any]]:
    last = table.slice(max(0, table.num_rows - ROWS))
    found: list[dict[str, Any]] = last.to_pylist()
    return found


READERS: Final[dict[str, Callable[[Path], list[dict[str, Any]]]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "arrow": _arrow,
}
