"""A file as blocks of whole lines, in memory that no line can exceed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace.connectors import disk
from headrace.connectors.codes import Code
from headrace.connectors.contract import Bad, shown

BLOCK: Final = 4 << 20
LONGEST: Final = 8 << 20
"""A line longer than this is not a row: it is skipped up to its end, and rejected."""

CUT: Final = b"\x18\n"
"""What stands for the missing end of a line that a connection broke off: ASCII's CANCEL, and a line end."""
LONG: Final = b"\x19\n"
"""What stands for the end of a line that was too long, behind CUT's sign and the reason."""

MARK: Final = b"\xef\xbb\xbf"
"""What some programs put at the beginning of a file in UTF-8; it is not part of the first line."""


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

    @property
    def handle(self) -> BinaryIO:
        """The open file: it stays the same one, whatever becomes of its name."""
        if self._file is None:
            self._file = disk.current.open(self.path, "rb")
        return self._file

    def read(self, offset: int, *, complete: bool) -> Cut | None:
        """The lines from `offset` on, about a block of them; None if no whole line is there."""
        file = self.handle
        if self._skipped[0] == offset:
            return self._skip(file, offset, complete)
        file.seek(offset)
        data, more = b"", b""
        while b"\n" not in more and len(data) <= self._longest:
            more = file.read(self._block)
            data += more
            if len(more) < self._block:
                break
        if _first_line(data) > self._longest:
            self._skipped = (offset, offset)
            return self._skip(file, offset, complete)
        whole = complete and len(more) < self._block
        end = len(data) if whole else data.rfind(b"\n") + 1
        return Cut(data[:end], offset + end) if end else None

    def read_again(self, offset: int, stop: int) -> Cut:
        """The lines up to `stop`, which were read at once before, whatever was written after them."""
        file = self.handle
        file.seek(offset)
        data = file.read(min(stop - offset, self._longest + 1))
        if _first_line(data) <= self._longest:
            return Cut(data + file.read(stop - offset - len(data)), stop)
        file.seek(stop - 1)
        size = stop - offset - (file.read(1) == b"\n")
        return Cut(b"", stop, (too_long(data, size),))

    def rest(self, offset: int) -> bytes:
        """The beginning of a line that has not ended."""
        if self._file is None:
            return b""
        self._file.seek(offset)
        return self._file.read(4096)

    def _skip(self, file: BinaryIO, offset: int, complete: bool) -> Cut | None:
        """Past the end of a line that is too long, reading on from where the search came to last time."""
        at, ended = max(self._skipped[1], offset), 0
        file.seek(at)
        while not ended and (chunk := file.read(1 << 20)):
            end = chunk.find(b"\n")
            ended = int(end >= 0)
            at += end if ended else len(chunk)
        if not ended and not complete:
            self._skipped = (offset, at)
            return None
        self._skipped = (-1, 0)
        file.seek(offset)
        return Cut(b"", at + ended, (too_long(file.read(min(4096, at - offset)), at - offset),))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _first_line(data: bytes) -> int:
    end = data.find(b"\n")
    return len(data) if end < 0 else end


def too_long(head: bytes, size: int) -> Bad:
    """A line of so many bytes, without its end."""
    return Bad(Code.TOO_LONG, f"a line of {size} bytes", shown(head[:4096]))


def too_long_mark(reason: str) -> bytes:
    """What stands for the end of a line of which only the beginning was kept."""
    return CUT[:1] + reason.encode() + LONG


def without_cut(lines: bytes) -> tuple[bytes, list[Bad]]:
    """Lines without those that were broken off; half a line may look like a row, and is none."""
    if CUT not in lines and LONG not in lines:
        return lines, []
    whole, bad = [], []
    for line in lines.split(b"\n"):
        if line.endswith(LONG[:1]):
            head, _, reason = line[:-1].rpartition(CUT[:1])
            bad.append(Bad(Code.TOO_LONG, shown(reason), shown(head)))
        elif not line.endswith(CUT[:1]):
            whole.append(line)
        elif len(line) > 1:
            bad.append(Bad(Code.CUT, "the connection ended within the line", shown(line[:-1])))
    return b"\n".join(whole), bad


def without_long(lines: bytes, longest: int) -> tuple[bytes, list[Bad]]:
    """Whole lines without those that are too long, which came in one piece."""
    if len(lines) <= longest:
        return lines, []
    each = lines.split(b"\n")
    bad = [too_long(line, len(line)) for line in each if len(line) > longest]
    return (b"\n".join(line for line in each if len(line) <= longest), bad) if bad else (lines, [])


def is_utf8(lines: bytes) -> bool:
    """Whether a block can be read as text; parsers look only at the columns that are wanted."""
    if lines.isascii():
        return True
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    return True


def not_utf8(line: bytes) -> Bad | None:
    """A line that cannot be read as text."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return Bad(Code.ENCODING, f"byte {error.start} is not UTF-8", shown(line))
    return None


def split(lines: bytes) -> list[bytes]:
    """The lines that hold something, be it blanks, without their ends."""
    return [line for each in lines.split(b"\n") if (line := each.removesuffix(b"\r"))]
