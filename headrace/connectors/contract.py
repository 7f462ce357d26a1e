"""The interfaces of sources and sinks.

A source yields blocks of rows in arrival order and reports its position; a sink takes rows and reports what
is durable. Positions and commits are plain JSON, so that a checkpoint can store them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import disk
from headrace.schema import Schema

Times: TypeAlias = npt.NDArray[np.int64]
Position: TypeAlias = Any
"""The position of a source, as JSON; only the source interprets it.

It identifies which rows were returned, by what they were read from: for files, the name relative to the
pipeline's folder, how far each was read and checksums of what was read; for a connection, the offset in its
spool; for a generator, the number of the next row. Data that is added later does not change which rows a
position means. If the data that was read has changed, `seek` detects it and raises.
"""
Span: TypeAlias = Any
"""Where a block was read, as JSON: with it, a partly processed block can be read again."""
Commit: TypeAlias = dict[str, Any]
"""What a sink has made durable, as JSON."""

Opener: TypeAlias = Callable[[Path], BinaryIO]
"""Opens a file for reading."""

SHOWN: Final = 1000
"""Characters kept of a bad row: enough to recognise it, never a gigabyte."""


@dataclass(frozen=True)
class Bad:
    """Input that could not be converted to a row of the stream: a code, the reason, and how it began."""

    code: str
    reason: str
    raw: str


@dataclass(frozen=True)
class Block:
    """Rows in arrival order, and the bad input among them.

    `arrival` are the instants at which the rows arrive, for a source that generates them. `span` says
    where the rows are; it is None for a source that can read the same block again from its position
    alone.
    """

    data: pa.RecordBatch
    bad: tuple[Bad, ...] = ()
    arrival: Times | None = None
    span: Span | None = None

    def __len__(self) -> int:
        return int(self.data.num_rows)


class Source(Protocol):
    """Rows of one stream.

    Laws: after `seek(p)`, with p returned by `position()`, `read` returns the rows after p, each once.
    After `seek(p, s)`, with s the span of a block that was read at p, the next `read` returns that block
    again: the same rows and the same bad input in the same order, even if more data has arrived since.
    Memory does not grow with the amount of data read. `read` never waits: None means that there is
    nothing now or, if `ended`, that nothing more will come.
    """

    @property
    def bounded(self) -> bool:
        """Whether it ends by itself."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        ...

    def read(self) -> Block | None:
        """The next rows; None if there are none now."""
        ...

    def position(self) -> Position:
        """Where the next `read` begins."""
        ...

    def seek(self, position: Position, span: Span | None = None) -> None:
        """Go to a position of a source with the same definition.

        `span` belongs to a partly processed block.
        """
        ...

    def close(self) -> None:
        """Close files and sockets."""
        ...


@runtime_checkable
class Surveyed(Protocol):
    """A source that is asked in the background: that `read` returns nothing does not say that it is empty."""

    def read_until(self) -> int | None:
        """The instant up to which everything that reached the source was returned; None: not known yet."""
        ...


class Sink(Protocol):
    """Rows of one output.

    Laws: rows written before `prepare` are durable when it returns, and become visible once `publish` or
    `open` is called with its commit. Rows written after the commit that is passed to `open` are removed
    by it.
    """

    def begin(self) -> Commit:
        """The first commit of a sink that nothing was written to; this call changes nothing."""
        ...

    def open(self, schema: Schema, commit: Commit) -> None:
        """Continue from a commit."""
        ...

    def cut(self, commit: Commit) -> None:
        """Remove what was written after a commit; nothing more will be written."""
        ...

    def write(self, data: pa.RecordBatch) -> None:
        """Write rows; may block, which is how a slow sink applies backpressure to its sources."""
        ...

    def prepare(self) -> Commit:
        """Make everything written so far durable."""
        ...

    def publish(self, commit: Commit) -> None:
        """The commit is final: make its rows visible."""
        ...

    def close(self) -> None:
        """Close files; rows that were not committed may be lost."""
        ...


def local_file(path: Path) -> BinaryIO:
    """Open a file of this machine."""
    return disk.current.open(path, "rb")


def shown(raw: bytes | str) -> str:
    """The beginning of a bad row as printable text."""
    begin = raw[: SHOWN * 4 if isinstance(raw, bytes) else SHOWN]
    text = begin.decode("utf-8", "backslashreplace") if isinstance(begin, bytes) else begin
    return text[:SHOWN].rstrip("\r\n") + (" …" if len(raw) > SHOWN else "")


def empty(schema: Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


# The codes of rejected input; `docs/pipelines.md` has a line for each.


class Code(StrEnum):
    """Codes are stable across releases: a code never changes its meaning."""

    SYNTAX = "HR-R101"
    TYPE = "HR-R102"
    ENCODING = "HR-R103"
    TOO_LONG = "HR-R104"
    COLUMNS = "HR-R105"
    UNREADABLE = "HR-R106"
    IMPLAUSIBLE = "HR-R107"
    TOO_LARGE = "HR-R108"
    CUT = "HR-R109"
