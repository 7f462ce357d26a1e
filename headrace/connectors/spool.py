"""What came over a wire, on disk: bytes that cannot be asked for again are written down before they are used.

    spool/bids-00000000000000000000      the first bytes of stream bids
    spool/bids-00000000000000065536      those from offset 65,536 on

A segment ends with each commit, and goes when no checkpoint that is kept begins before its end. It is made of
frames: the length and checksum of some bytes, a checksum of these two and of the offset, and the bytes. So
damage is noticed, also in a length, and told from the last frame of a run that was killed while it wrote:
nothing of that one was used yet. A loss of power may take what came since the last commit, and leaves zeros
in its place: there the spool ends. Any other damage is an error.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace.connectors import disk
from headrace.connectors.lines import CUT
from headrace.errors import ConnectorError, DurabilityError

HEAD: Final = struct.Struct("<III")
ZEROS: Final = bytes(16)
"""What no flipped bit makes of lines."""


@dataclass(frozen=True)
class _Segment:
    """A file and its frames: of each the offset of its bytes in the stream, and its place in the file."""

    path: Path
    offsets: list[int]
    places: list[int]
    end: int
    damage: int | None
    """The place of the frame that is not what was written; the frames before it are whole."""


class Spool:
    """The bytes of one stream by their offset, from the oldest that may be read again up to `end`.

    What was appended survives `kill -9`; what was appended before `secure` survives a loss of power.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: BinaryIO | None = None
        self._known: _Segment | None = None
        self.end = 0
        self.secured = 0
        """The offset up to which all is safe on disk."""
        self.lost = ""
        """What a loss of power took, in words."""

    def clear(self) -> None:
        """Begin: whatever is there is of another run."""
        with self._saying("remove what an earlier run received"):
            for _, path in self._segments():
                disk.current.unlink(path)

    def resume(self, offset: int) -> None:
        """Go on after a run that was at `offset`. Its last line, if cut off, stays so: its wire is gone."""
        with self._saying("read what was received"):
            segments = list(self._segments())
            begin = self.end = segments[0][0] if segments else 0
            for place, (start, path) in enumerate(segments):
                after = segments[place + 1][0] if place + 1 < len(segments) else None
                if start != self.end:
                    self._gap(start, [path for _, path in segments[place:]])
                    break
                self.end = after if after is not None and after <= offset else self._taken_up(start, path)
            if segments:
                disk.current.sync(self._folder)
        if not begin <= offset <= self.end:
            raise self._missing(f"bytes {begin} to {self.end}, not {offset}")
        if self.end > offset and self.read(self.end - 1, 1) != b"\n":
            self.append(CUT)

    def _taken_up(self, start: int, path: Path) -> int:
        """The end of a segment of which the frames are whole, from here on, and safe."""
        segment = self._scanned(start, path)
        if segment.damage is not None:
            if segment.end < self.secured or not _is_torn(path, segment.damage):
                raise _damaged(path, segment.damage, segment.end)
            self.lost = f"a loss of power took what {self._name} received after its byte {segment.end}"
            with disk.current.open(path, "r+b", private=True) as file:
                file.truncate(segment.damage)
        disk.current.sync(path)
        return segment.end

    def _gap(self, start: int, later: list[Path]) -> None:
        """Nothing is of use after bytes that are missing: an error, unless a loss of power took them."""
        if self.end < self.secured:
            raise self._missing(f"bytes {self.end} to {start} are missing")
        self.lost = f"a loss of power took what {self._name} received after its byte {self.end}"
        for path in later:
            disk.current.unlink(path)

    def _missing(self, what: str) -> ConnectorError:
        return ConnectorError(
            "HR-C002",
            f"what was received of the stream is not here: {what}",
            place=str(self._folder / self._name),
            hint="put back a copy of the checkpoint directory, or delete it and the outputs",
        )

    def append(self, data: bytes) -> None:
        """Write down what came; nothing of it is used before."""
        with self._saying("write down what came"):
            if self._file is None:
                disk.current.mkdir(self._folder, private=True)
                self._file = disk.current.open(self._path(self.end), "wb", 0, private=True)
            left = memoryview(_head(self.end, data) + data)
            while left:
                left = left[self._file.write(left) :]
        self.end += len(data)

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on."""
        with self._saying("read what was received"):
            segment = self._segment(offset)
            if offset >= segment.end:
                raise _damaged(segment.path, segment.damage or 0, segment.end)
            frame = bisect_right(segment.offsets, offset) - 1
            with disk.current.open(segment.path, "rb") as file:
                file.seek(segment.places[frame])
                length, crc, _ = HEAD.unpack(file.read(HEAD.size))
                data = file.read(length)
        if len(data) != length or zlib.crc32(data) != crc:
            raise _damaged(segment.path, segment.places[frame], segment.offsets[frame])
        begin = offset - segment.offsets[frame]
        return data[begin : begin + size]

    def _segment(self, offset: int) -> _Segment:
        """The segment that has an offset; the last one looked at is known."""
        known = self._known
        if known is None or not known.offsets or not known.offsets[0] <= offset < known.end:
            start, path = max(each for each in self._segments() if each[0] <= offset)
            known = self._known = self._scanned(start, path)
        return known

    def _scanned(self, start: int, path: Path) -> _Segment:
        """The frames of a segment, but for one at its end that was not written whole.

        Bytes that were not safe before a loss of power are checked here, others when they are read.
        """
        offsets: list[int] = []
        places: list[int] = []
        offset, place, size = start, 0, disk.current.size(path)
        with disk.current.open(path, "rb") as file:
            while place + HEAD.size <= size:
                length, crc, check = HEAD.unpack(file.read(HEAD.size))
                if check != _check(offset, length, crc):
                    return _Segment(path, offsets, places, offset, place)
                if place + HEAD.size + length > size:
                    break
                if offset >= self.secured and zlib.crc32(file.read(length)) != crc:
                    return _Segment(path, offsets, places, offset, place)
                offsets.append(offset)
                places.append(place)
                offset, place = offset + length, place + HEAD.size + length
                file.seek(place)
        return _Segment(path, offsets, places, offset, None)

    def secure(self) -> None:
        """Make all of it safe on disk."""
        if self._file is not None:
            with self._saying("write down what came"):
                disk.current.flush(self._file)
                disk.current.sync(self._folder)
        self.secured = self.end

    def forget(self, offset: int) -> None:
        """Nobody will go back to before `offset`. The last segment stays: it tells where the stream is."""
        self.close()
        with self._saying("remove what is no longer needed"):
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

    @contextmanager
    def _saying(self, doing: str) -> Iterator[None]:
        """Errors of the file system, in words."""
        try:
            yield
        except OSError as error:
            raise DurabilityError(
                "HR-D004",
                f"cannot {doing}: {error.strerror or error}",
                place=str(self._folder),
                hint="make room, then run again; the peer must send again what this run could not keep",
            ) from error


def _head(offset: int, data: bytes) -> bytes:
    crc = zlib.crc32(data)
    return HEAD.pack(len(data), crc, _check(offset, len(data), crc))


def _check(offset: int, length: int, crc: int) -> int:
    return zlib.crc32(struct.pack("<QII", offset, length, crc))


def _is_torn(path: Path, place: int) -> bool:
    """Whether there are zeros where bytes were written: what a loss of power may leave of them."""
    rest = disk.current.read(path)[place:]
    return ZEROS in rest or rest.endswith(b"\0")


def _damaged(path: Path, place: int, offset: int) -> DurabilityError:
    return DurabilityError(
        "HR-D007",
        f"what was received of the stream is damaged from its byte {offset} on",
        place=str(path),
        hint="put back a copy of this file; or, to give up what came from there on, "
        f"run 'truncate -s {place} {path}' and delete the files of this stream with higher numbers",
    )
