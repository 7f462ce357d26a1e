"""A file as blocks of complete lines; a long line cannot exceed the memory limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace.connectors.contract import Bad, Code, Opener, local_file, shown

LONGEST: Final = 8 << 20
"""A longer line is not a row: it is skipped up to its end and rejected."""

CUT: Final = b"\x18\n"
"""The mark at the end of a line that a broken connection cut off: ASCII CANCEL and a line end."""
LONG: Final = b"\x19\n"
"""The mark at the end of a line that was too long, after the CANCEL character and the reason."""

MARK: Final = b"\xef\xbb\xbf"
"""The byte order mark that some programs put at the beginning of a UTF-8 file; not part of the first line."""


@dataclass(frozen=True)
class Cut:
    """Complete lines, the offset of the next line, and lines that were too long to be read."""

    lines: bytes
    next: int
    bad: tuple[Bad, ...] = ()


class LineFile:
    """Reads forward from any offset.

    `complete`: the file no longer grows, so its last line needs no line end.
    """

    def __init__(
        self, path: Path, *, block: int, longest: int = LONGEST, opened: Opener | None = None
    ) -> None:
        self.path, self._opened = path, opened or local_file
        self._block, self._longest = max(1, min(block, longest)), longest
        self._file: BinaryIO | None = None
        self._skipped = (-1, 0)

    @property
    def handle(self) -> BinaryIO:
        """The open file, which stays the same even if it is renamed or replaced."""
        if self._file is None:
            self._file = self._opened(self.path)
        return self._file

    def read(self, offset: int, *, complete: bool) -> Cut | None:
        """About one block of lines from `offset` on; None if there is no complete line yet."""
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
        """The lines up to `stop`, which an earlier run read as one block."""
        file = self.handle
        file.seek(offset)
        data = file.read(min(stop - offset, self._longest + 1))
        if _first_line(data) <= self._longest:
            return Cut(data + file.read(stop - offset - len(data)), stop)
        file.seek(stop - 1)
        size = stop - offset - (file.read(1) == b"\n")
        return Cut(b"", stop, (too_long(data, size),))

    def rest(self, offset: int) -> bytes:
        """The beginning of an unfinished line."""
        if self._file is None:
            return b""
        self._file.seek(offset)
        return self._file.read(4096)

    def _skip(self, file: BinaryIO, offset: int, complete: bool) -> Cut | None:
        """Skip to the end of a line that is too long, continuing where the last search stopped."""
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
    """The length of the first line, without its end."""
    end = data.find(b"\n")
    return len(data) if end < 0 else end


def too_long(head: bytes, size: int) -> Bad:
    """The bad row for a line of `size` bytes, without its line end."""
    return Bad(Code.TOO_LONG, f"the line has {size} bytes, which is too long", shown(head[:4096]))


def too_long_mark(reason: str) -> bytes:
    """The mark for a line of which only the beginning was kept, with the reason."""
    return CUT[:1] + reason.encode() + LONG


def without_cut(lines: bytes) -> tuple[bytes, list[Bad]]:
    """Remove lines that were cut off: half a line may look like a row, but must not become one."""
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
            bad.append(Bad(Code.CUT, "the connection ended in the middle of the line", shown(line[:-1])))
    return b"\n".join(whole), bad


def without_long(lines: bytes, longest: int) -> tuple[bytes, list[Bad]]:
    """Remove complete lines that are too long."""
    if len(lines) <= longest:
        return lines, []
    each = lines.split(b"\n")
    bad = [too_long(line, len(line)) for line in each if len(line) > longest]
    return (b"\n".join(line for line in each if len(line) <= longest), bad) if bad else (lines, [])


def is_utf8(lines: bytes) -> bool:
    """Whether a block is valid UTF-8; parsers check only the columns that are wanted."""
    if lines.isascii():
        return True
    try:
        lines.decode()
    except UnicodeDecodeError:
        return False
    return True


def not_utf8(line: bytes) -> Bad | None:
    """The bad row for a line that is not valid UTF-8; None if it is valid."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return Bad(Code.ENCODING, f"the line is not valid UTF-8 (byte {error.start})", shown(line))
    return None


def split(lines: bytes) -> list[bytes]:
    """The lines that are not empty (they may be blank), without their line ends."""
    return [line for each in lines.split(b"\n") if (line := each.removesuffix(b"\r"))]
