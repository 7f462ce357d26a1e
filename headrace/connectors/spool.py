"""What came over a wire, on disk: bytes that cannot be asked for again are written down before they are used.

    spool/bids-00000000000000000000      the first bytes of stream bids
    spool/bids-00000000000000065536      those from offset 65,536 on

A segment ends with each commit, and goes when no checkpoint that is kept begins before its end.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headrace.connectors import disk
from headrace.connectors.lines import CUT
from headrace.errors import ConnectorError, DurabilityError


class Spool:
    """The bytes of one stream by their offset, from the oldest that may be read again up to `end`.

    What was appended survives `kill -9`; what was appended before `secure` survives a loss of power.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: BinaryIO | None = None
        self.end = 0

    def clear(self) -> None:
        """Begin: whatever is there is of another run."""
        for _, path in self._segments():
            disk.current.unlink(path)

    def resume(self, offset: int) -> None:
        """Go on after a run that was at `offset`. Its last line, if cut off, stays so: its wire is gone."""
        segments = list(self._segments())
        begin = self.end = segments[0][0] if segments else 0
        for start, path in segments:
            if start == self.end:
                self.end += disk.current.size(path)
        if not begin <= offset <= self.end:
            raise ConnectorError(
                "HR-C002",
                f"what was received of the stream is not here: bytes {begin} to {self.end}, not {offset}",
                place=str(self._folder / self._name),
                hint="put back a copy of the checkpoint directory, or delete it and the outputs",
            )
        if self.end > offset and self.read(self.end - 1, 1) != b"\n":
            self.append(CUT)

    def append(self, data: bytes) -> None:
        """Write down what came; nothing of it is used before."""
        try:
            if self._file is None:
                disk.current.mkdir(self._folder)
                self._file = disk.current.open(self._path(self.end), "wb", 0)
            left = memoryview(data)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise DurabilityError(
                "HR-D004",
                f"cannot write down what came: {error.strerror or error}",
                place=str(self._folder),
                hint="make room, then run again; the peer must send again what this run could not keep",
            ) from error
        self.end += len(data)

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on."""
        start, path = max(each for each in self._segments() if each[0] <= offset)
        with disk.current.open(path, "rb") as file:
            file.seek(offset - start)
            return file.read(size)

    def secure(self) -> None:
        """Make all of it safe on disk."""
        if self._file is not None:
            disk.current.flush(self._file)
            disk.current.sync(self._folder)

    def forget(self, offset: int) -> None:
        """Nobody will go back to before `offset`. The last segment stays: it tells where the stream is."""
        self.close()
        segments = list(self._segments())
        for (_, path), (end, _) in itertools.pairwise(segments):
            if end <= offset:
                disk.current.unlink(path)

    def close(self) -> None:
        """End the segment; the next bytes begin another."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, offset: int) -> Path:
        return self._folder / f"{self._name}-{offset:020}"

    def _segments(self) -> Iterator[tuple[int, Path]]:
        pattern = re.compile(re.escape(self._name) + r"-(\d{20})")
        names = disk.current.names(self._folder) if self._folder.exists() else []
        for name in names:
            found = pattern.fullmatch(name)
            if found:
                yield int(found[1]), self._folder / name
