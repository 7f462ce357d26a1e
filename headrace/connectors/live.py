"""Lines from live sources: a socket or standard input.

At most one block is held: while nobody reads, the sender's buffers fill up and the sender waits. Bytes from a
wire cannot be requested again; with a spool, what was received can be read again.
"""

from __future__ import annotations

import os
import select
from dataclasses import dataclass
from typing import Any, Final, Protocol

from headrace import tuning
from headrace.connectors.contract import Bad, Block, Code, Position, Span, empty, shown
from headrace.connectors.csv_lines import CsvLines, header
from headrace.connectors.formats import Format, decoder
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.lines import without_cut, without_long
from headrace.connectors.spool import Spool
from headrace.schema import Schema

CHUNK: Final = 1 << 16


class Wire(Protocol):
    """Incoming bytes; `receive` returns None if there are none now, and b"" at the end.

    When a connection ends it returns `lines.CUT`: bytes after the last line end are not a row.
    """

    def receive(self) -> bytes | None: ...

    def close(self) -> None: ...


class Assembler:
    """Joins bytes into complete lines; of a line that is too long, only the beginning is kept."""

    def __init__(self, longest: int) -> None:
        self._rest = b""
        self._longest = longest
        self._dropped = 0

    @property
    def pending(self) -> int:
        """Bytes of the incomplete line."""
        return self._dropped or len(self._rest)

    def add(self, data: bytes) -> tuple[bytes, list[Bad]]:
        """The complete lines that `data` finishes."""
        bad = []
        if self._dropped:
            end = data.find(b"\n")
            self._dropped += len(data) if end < 0 else end
            if end < 0:
                return b"", []
            bad.append(self._bad(self._dropped))
            self._rest, self._dropped, data = b"", 0, data[end + 1 :]
        whole = self._rest + data
        end = whole.rfind(b"\n") + 1
        self._rest = whole[end:]
        if len(self._rest) > self._longest:
            self._dropped, self._rest = len(self._rest), self._rest[:4096]
        return whole[:end], bad

    def finish(self) -> tuple[bytes, list[Bad]]:
        """The last line, which has no line end."""
        rest, dropped = self._rest, self._dropped
        self._rest, self._dropped = b"", 0
        return (
            (b"", [Bad(Code.TOO_LONG, f"the line has {dropped} bytes, which is too long", shown(rest))])
            if dropped
            else (rest, [])
        )

    def _bad(self, size: int) -> Bad:
        return Bad(Code.TOO_LONG, f"the line has {size} bytes, which is too long", shown(self._rest))


@dataclass
class LiveLines:
    """Rows from the lines on a wire. It ends with the wire or, with `keep_open`, never.

    A position is the offset of the first line that was not returned yet, and the span of a block is the
    offset of its end. With `header`, the first line of a run names the columns; a position stores them
    for the lines in the spool.
    """

    wire: Wire
    schema: Schema
    how: Format
    bounded: bool = True
    spool: Spool | None = None

    def __post_init__(self) -> None:
        self._lines = Assembler(self.how.longest)
        self._names: list[str] | None = None
        self._decoder: JsonLines | CsvLines | None = None
        if self.how.name == "json":
            self._decoder = decoder(self.schema, self.how)
        elif not self.how.header:
            self._use(self.schema.names)
        self._bytes = 0
        self._at: dict[str, Any] = {"bytes": 0}
        self._spooled = 0
        """The offset up to which the spool is read again before reading from the wire."""
        self._same: int | None = None
        """The end of the block to read again."""
        self._fresh = True
        self.ended = False

    def _use(self, names: list[str]) -> None:
        """Decode the following lines with these column names."""
        self._names = names
        self._decoder = decoder(self.schema, self.how, names)

    def read(self) -> Block | None:
        if self._fresh and self.spool is not None:
            self.spool.clear()
        self._fresh = False
        again = self._bytes < self._spooled
        got, bad = self._reread() if again else self._receive()
        block = self._decode(got)
        if again and self._bytes == self._spooled:
            self._expect_header()
        if not got and not bad:
            return None
        self._at = self._here()
        return Block(block.data, (*bad, *block.bad), span={"end": self._bytes - self._lines.pending})

    def _receive(self) -> tuple[bytes, list[Bad]]:
        """The complete lines that are available now, up to one block."""
        lines: list[bytes] = []
        bad: list[Bad] = []
        size = 0
        while size < tuning.current.live_block_bytes and not self.ended:
            data = self.wire.receive()
            if data is None:
                break
            if data and self.spool is not None:
                self.spool.append(data)
            self.ended = not data
            self._add(data, lines, bad)
            size += len(data)
        return b"".join(lines), bad

    def _reread(self) -> tuple[bytes, list[Bad]]:
        """One block of what an earlier run received."""
        assert self.spool is not None
        lines: list[bytes] = []
        bad: list[Bad] = []
        block = self._bytes + tuning.current.live_block_bytes
        end = min(block, self._spooled) if self._same is None else self._same
        self._same = None
        while self._bytes < end:
            self._add(self.spool.read(self._bytes, min(CHUNK, end - self._bytes)), lines, bad)
        return b"".join(lines), bad

    def _add(self, data: bytes, lines: list[bytes], bad: list[Bad]) -> None:
        """Add received bytes: complete lines go to `lines`, lines that are too long to `bad`.

        Empty `data` is the end.
        """
        self._bytes += len(data)
        whole, long = self._lines.add(data) if data else self._lines.finish()
        lines.append(whole)
        bad += long

    def _decode(self, lines: bytes) -> Block:
        """The rows of complete lines; the first line may be the header."""
        lines, bad = without_cut(lines)
        lines, long = without_long(lines, self.how.longest)
        bad += long
        if self._decoder is None and lines:
            first, _, lines = lines.partition(b"\n")
            names = header(first, self.how.delimiter, self.how.longest)
            bad += [names] if isinstance(names, Bad) else []
            self._use([] if isinstance(names, Bad) else names)
        if self._decoder is None:
            return Block(empty(self.schema), tuple(bad))
        block = self._decoder.decode(lines)
        return Block(block.data, (*bad, *block.bad))

    def _expect_header(self) -> None:
        """Expect a new header line: the following lines come from another peer."""
        if self.how.name == "csv" and self.how.header:
            self._decoder = self._names = None

    def position(self) -> Position:
        return self._at

    def _here(self) -> dict[str, Any]:
        """The position after the last complete line."""
        at: dict[str, Any] = {"bytes": self._bytes - self._lines.pending}
        return at if self._names is None else {**at, "names": self._names}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._fresh = False
        self._at, self._bytes = position, position["bytes"]
        if self.spool is None:
            return
        self.spool.resume(self._bytes)
        self._spooled, self._same = self.spool.end, None if span is None else span["end"]
        if self._bytes < self._spooled and "names" in position:
            self._use(position["names"])

    def close(self) -> None:
        self.wire.close()
        if self.spool is not None:
            self.spool.close()


class StandardInput:
    """The bytes of standard input, or of another descriptor."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor

    def receive(self) -> bytes | None:
        ready, _, _ = select.select([self._descriptor], [], [], 0)
        return os.read(self._descriptor, CHUNK) if ready else None

    def close(self) -> None:
        return None
