"""A file as blocks of whole lines, in memory that no line can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, shown

BLOCK: Final = 4 << 20
LONGEST: Final = 8 << 20
"""A line longer than this is no row: it is skipped up to its end, and rejected."""


@dataclass(frozen=True)
class Cut:
    """Whole lines, where the next begin, and lines that were too long to be read."""

    lines: bytes
    next: int
    bad: tuple[Bad, ...] = ()


class LineFile:
    """Reads forward from any offset. `complete`: the file grows no more, so its last line needs no end."""

    def __init__(self, path: Path, *, block: int = BLOCK, longest: int = LONGEST) -> None:
        self.path = path
        self._block, self._longest = max(1, min(block, longest)), longest
        self._file: BinaryIO | None = None
        self._skipped = (-1, 0)

    def read(self, offset: int, *, complete: bool) -> Cut | None:
        """The lines from `offset` on, about a block of them; None if no whole line is there."""
        if self._file is None:
            self._file = self.path.open("rb")
        if self._skipped[0] == offset:
            return self._skip(self._file, offset, complete)
        self._file.seek(offset)
        data, more = b"", b""
        while b"\n" not in more and len(data) <= self._longest:
            more = self._file.read(self._block)
            data += more
            if len(more) < self._block:
                break
        if _first_line(data) > self._longest:
            self._skipped = (offset, offset)
            return self._skip(self._file, offset, complete)
        whole = complete and len(more) < self._block
        end = len(data) if whole else data.rfind(b"\n") + 1
        return Cut(data[:end], offset + end) if end else None

    def _skip(self, file: BinaryIO, offset: int, complete: bool) -> Cut | None:
        """Past the end of a line that is too long, reading on from where the search came to last time."""
        at = max(self._skipped[1], offset)
        file.seek(at)
        while chunk := file.read(1 << 20):
            end = chunk.find(b"\n")
            at += end + 1 if end >= 0 else len(chunk)
            if end >= 0:
                break
        else:
            if not complete:
                self._skipped = (offset, at)
                return None
        self._skipped = (-1, 0)
        file.seek(offset)
        return Cut(b"", at, (_too_long(file.read(4096), at - offset),))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _first_line(data: bytes) -> int:
    end = data.find(b"\n")
    return len(data) if end < 0 else end


def _too_long(head: bytes, size: int) -> Bad:
    return Bad(Code.TOO_LONG, f"a line of {size} bytes", shown(head[:4096]))


def split(lines: bytes) -> list[bytes]:
    """The lines that hold something, without their ends."""
    return [line for each in lines.split(b"\n") if (line := each.removesuffix(b"\r")) and not line.isspace()]
