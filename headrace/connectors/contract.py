"""What a source and a sink are, to whoever drives them.

A source gives blocks of rows in arrival order, and says where it is; a sink takes rows, and says what of them
is safe. Positions and commits are plain JSON, so that a checkpoint can hold them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.schema import Schema

Times: TypeAlias = npt.NDArray[np.int64]
Position: TypeAlias = Any
"""Where a source is, as JSON; its meaning is the source's own.

It says which rows were given, by what they were read from and not by how that was spelled: of files, the name
from the pipeline's folder, how far each was read and checksums of what was read; of a connection, the offset
in its spool; of a generator, the number of the next row. What is added to the world afterwards does not
change which rows a position means. If what was given has changed, `seek` finds out and raises.
"""
Span: TypeAlias = Any
"""From where to where a block was read, as JSON: with it, a block that was taken in part is read again."""
Commit: TypeAlias = dict[str, Any]
"""What of a sink is safe, as JSON."""

SHOWN: Final = 1000
"""Characters of a bad row that are kept: enough to recognise it, and never a gigabyte."""


@dataclass(frozen=True)
class Bad:
    """Input that could not be made into a row of the stream: a code, the reason, and how it began."""

    code: str
    reason: str
    raw: str


@dataclass(frozen=True)
class Block:
    """Rows in arrival order, and what was bad among them.

    `arrival` are the instants at which the rows come, of a source that makes its own. `span` says where the
    rows are; a source whose position alone makes it read the same block again has none.
    """

    data: pa.RecordBatch
    bad: tuple[Bad, ...] = ()
    arrival: Times | None = None
    span: Span | None = None

    def __len__(self) -> int:
        return int(self.data.num_rows)


class Source(Protocol):
    """Rows of one stream.

    Laws: after `seek(p)`, with p what `position()` said, `read` gives the rows that came after p, each once.
    After `seek(p, s)`, with s the span of a block that was read at p, the next `read` gives that block again,
    the same rows and the same bad input in the same order, whatever has come since. Memory does not grow with
    what has been read. `read` never waits: None means nothing now, and nothing ever if `ended`.
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
        """The next rows, or None."""
        ...

    def position(self) -> Position:
        """Where the next `read` begins."""
        ...

    def seek(self, position: Position, span: Span | None = None) -> None:
        """Go to where another source of the same definition was; `span` is of a block taken in part."""
        ...

    def close(self) -> None:
        """Let go of files and sockets."""
        ...


class Sink(Protocol):
    """Rows of one output.

    Laws: what was written before `prepare` is safe on disk when it returns, and becomes visible once
    `publish` was called with its commit or `open` was; what was written after the commit that `open` is given
    is gone then.
    """

    def begin(self) -> Commit:
        """The commit to start from, of a sink that nothing was written to; nothing is changed by this."""
        ...

    def open(self, schema: Schema, commit: Commit) -> None:
        """Go on from a commit."""
        ...

    def write(self, data: pa.RecordBatch) -> None:
        """Take rows; may wait, which is how a slow sink slows its sources."""
        ...

    def prepare(self) -> Commit:
        """Make all that was written safe."""
        ...

    def publish(self, commit: Commit) -> None:
        """The commit was decided: show it."""
        ...

    def close(self) -> None:
        """Let go of files; what was not committed may go."""
        ...


def shown(raw: bytes | str) -> str:
    """The beginning of a bad row as text, whatever its bytes are."""
    begin = raw[: SHOWN * 4 if isinstance(raw, bytes) else SHOWN]
    text = begin.decode("utf-8", "backslashreplace") if isinstance(begin, bytes) else begin
    return text[:SHOWN].rstrip("\r\n") + (" …" if len(raw) > SHOWN else "")


def empty(schema: Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
