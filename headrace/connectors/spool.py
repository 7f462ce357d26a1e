"""Received data on disk: bytes that cannot be requested again are stored before they are used.

    spool/bids-00000000000000000000      the first bytes of stream bids
    spool/bids-00000000000000065536      those from offset 65,536 on

A segment ends with each commit, and is removed when no retained checkpoint starts before its end. It consists
of frames: the length and checksum of some bytes, a checksum of these two and of the offset, and the bytes. So
damage is noticed, even in a length, and can be distinguished from a frame that a killed run wrote only in
part and never used. A power failure may replace everything since the last commit by zeros: the spool ends
there. Any other damage is an error.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from headrace import disk
from headrace.connectors.lines import CUT
from headrace.errors import ConnectorError, DurabilityError

HEAD: Final = struct.Struct("<III")
ZEROS: Final = bytes(16)
"""A run of zeros this long; a flipped bit in lines cannot produce it."""


@dataclass(frozen=True)
class _Segment:
    """A file and its frames: for each, the offset of its bytes in the stream and its position in the file."""

    path: Path
    offsets: list[int]
    places: list[int]
    end: int
    damage: int | None
    """The position of the first damaged frame; the frames before it are intact."""


class Spool:
    """The bytes of one stream by offset, from the oldest that may be read again up to `end`.

    Appended bytes survive `kill -9`; bytes appended before `secure` also survive a power failure.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._file: BinaryIO | None = None
        self._known: _Segment | None = None
        self.end = 0
        self.secured = 0
        """The offset up to which everything is durable."""
        self.lost = ""
        """A message about data lost in a power failure."""

    def clear(self) -> None:
        """Start from nothing: remove the data of another run."""
        with self._saying("remove the received data of an earlier run"):
            for _, path in self._segments():
                disk.current.unlink(path)

    def resume(self, offset: int) -> None:
        """Continue after a run that was at `offset`. An incomplete last line of that run stays incomplete."""
        with self._saying("read the received data"):
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
            raise self._missing(f"it covers bytes {begin} to {self.end}, and byte {offset} is needed")
        if self.end > offset and self.read(self.end - 1, 1) != b"\n":
            self.append(CUT)

    def _taken_up(self, start: int, path: Path) -> int:
        """The end of a segment, after a damaged last frame was cut off and the rest synced."""
        segment = self._scanned(start, path)
        if segment.damage is not None:
            if segment.end < self.secured or not _is_torn(path, segment.damage):
                raise _damaged(path, segment.damage, segment.end)
            self.lost = f"a power failure lost what stream {self._name} received after byte {segment.end}"
            with disk.current.open(path, "r+b", private=True) as file:
                file.truncate(segment.damage)
        disk.current.sync(path)
        return segment.end

    def _gap(self, start: int, later: list[Path]) -> None:
        """Drop the segments after missing bytes; an error, unless a power failure explains the gap."""
        if self.end < self.secured:
            raise self._missing(f"bytes {self.end} to {start} are missing")
        self.lost = f"a power failure lost what stream {self._name} received after byte {self.end}"
        for path in later:
            disk.current.unlink(path)

    def _missing(self, what: str) -> ConnectorError:
        return ConnectorError(
            "HR-C002",
            f"received data of the stream is missing: {what}",
            place=str(self._folder / self._name),
            hint="restore the checkpoint directory from a copy, or delete it and the outputs to start over",
        )

    def append(self, data: bytes) -> None:
        """Store received bytes, before they are used."""
        with self._saying("write the received data"):
            if self._file is None:
                disk.current.mkdir(self._folder, private=True)
                self._file = disk.current.open(self._path(self.end), "wb", 0, private=True)
            left = memoryview(_head(self.end, data) + data)
            while left:
                left = left[self._file.write(left) :]
        self.end += len(data)

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on."""
        with self._saying("read the received data"):
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
        """The segment that contains an offset; the last result is cached."""
        known = self._known
        if known is None or not known.offsets or not known.offsets[0] <= offset < known.end:
            start, path = max(each for each in self._segments() if each[0] <= offset)
            known = self._known = self._scanned(start, path)
        return known

    def _scanned(self, start: int, path: Path) -> _Segment:
        """The frames of a segment, without a partly written frame at its end.

        Bytes that may have been lost in a power failure are checked here, others when they are read.
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
        """Make everything written so far durable."""
        if self._file is not None:
            with self._saying("write the received data"):
                disk.current.flush(self._file)
                disk.current.sync(self._folder)
        self.secured = self.end

    def forget(self, offset: int) -> None:
        """Remove segments before `offset`, except the last one, which shows where the stream is."""
        self.close()
        with self._saying("remove received data that is no longer needed"):
            segments = list(self._segments())
            for (_, path), (end, _) in itertools.pairwise(segments):
                if end <= offset:
                    disk.current.unlink(path)

    def close(self) -> None:
        """Close the segment; the next bytes start a new one."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _path(self, offset: int) -> Path:
        return self._folder / f"{self._name}-{offset:020}"

    def _segments(self) -> Iterator[tuple[int, Path]]:
        """The first offset and the path of each segment on disk."""
        pattern = re.compile(re.escape(self._name) + r"-(\d{20})")
        names = disk.current.names(self._folder) if self._folder.exists() else []
        for name in names:
            found = pattern.fullmatch(name)
            if found:
                yield int(found[1]), self._folder / name

    def _saying(self, doing: str) -> AbstractContextManager[None]:
        """Turn file system errors into coded errors that name this spool."""
        hint = "free some space, then run again; the peer must resend what this run could not store"
        return disk.coded(DurabilityError, "HR-D004", doing, self._folder, hint)


def _head(offset: int, data: bytes) -> bytes:
    """The header of a frame: length, checksum of the data, and checksum of the header itself."""
    crc = zlib.crc32(data)
    return HEAD.pack(len(data), crc, _check(offset, len(data), crc))


def _check(offset: int, length: int, crc: int) -> int:
    """The checksum of a frame header; it includes the offset, so a frame in the wrong place is noticed."""
    return zlib.crc32(struct.pack("<QII", offset, length, crc))


def _is_torn(path: Path, place: int) -> bool:
    """Whether a frame consists of zeros, which a power failure can leave in place of the written bytes."""
    rest = disk.current.read(path)[place:]
    return ZEROS in rest or rest.endswith(b"\0")


def _damaged(path: Path, place: int, offset: int) -> DurabilityError:
    """The error for damage, with the command that gives up the data from there on."""
    return DurabilityError(
        "HR-D007",
        f"the received data of the stream is damaged from byte {offset} on",
        place=str(path),
        hint="restore this file from a copy; or, to give up the data from there on, "
        f"run 'truncate -s {place} {path}' and delete the files of this stream with higher numbers",
    )
