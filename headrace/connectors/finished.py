"""The files that were read to the end, as an append-only log: a commit appends the new entries.

    files/bids-000000.log     a line for each file of stream bids: its name and its mark; the last one counts
    files/bids-000000.copy    the same: if one of the two is damaged, nothing is lost

A position holds the number of the log, its length in bytes and their checksum. That part is durable before
the checkpoint with the position is. When most lines are outdated, the log is written again under the
next number, and the old log is removed when no checkpoint needs it.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from headrace import disk, tuning
from headrace.connectors.identity import Mark
from headrace.errors import DurabilityError


class FinishedFiles:
    """Finished files by name. Without a folder nothing is written, and no position can be restored."""

    def __init__(self, folder: Path | None = None, stream: str = "files") -> None:
        self._folder, self._stream = folder, stream
        self._marks: dict[str, Mark] = {}
        self._inodes: dict[int, str] = {}
        self._number, self._length, self._crc = 0, 0, 0
        self._live = 0
        """Bytes of the lines that are not outdated."""
        self._new: list[bytes] = []
        self._written = 0
        self._lock = threading.Lock()
        """A source may read ahead in one thread while another thread commits."""

    def __len__(self) -> int:
        return len(self._marks)

    def get(self, name: str) -> Mark | None:
        """The mark of a finished file."""
        return self._marks.get(name)

    def by_inode(self, inode: int) -> str | None:
        """The name of the file that had this inode."""
        return self._inodes.get(inode)

    def add(self, name: str, mark: Mark) -> None:
        """Record that a file was read to its end."""
        line = _line(name, mark)
        with self._lock:
            before = self._marks.get(name)
            self._live += len(line) - (len(_line(name, before)) if before is not None else 0)
            self._marks[name] = mark
            self._inodes[mark.inode] = name
            self._append(line)

    def _append(self, line: bytes) -> None:
        """Add a line to the log, to be written by the next `secure`."""
        self._length += len(line)
        self._crc = zlib.crc32(line, self._crc)
        if self._folder is not None:
            self._new.append(line)

    def position(self) -> list[int]:
        """Identifies the current state of the log: its number, length and checksum."""
        with self._lock:
            return [self._number, self._length, self._crc]

    def secure(self) -> None:
        """Make everything recorded so far durable."""
        with self._lock:
            if self._folder is None:
                return
            if self._new:
                self._write(self._folder, self._new)
                self._new = []
            if self._length > 2 * self._live + tuning.current.finished_log_bytes:
                self._begin_again(self._folder)

    def _write(self, folder: Path, lines: list[bytes]) -> None:
        """Append lines to the log and its copy."""
        data = b"".join(lines)
        with _saying(folder):
            disk.current.mkdir(folder, private=True)
            for path in self._paths(folder):
                _put(path, self._written, data)
            if not self._written:
                disk.current.sync(folder)
        self._written += len(data)

    def _begin_again(self, folder: Path) -> None:
        """Write the log again under the next number, without outdated lines."""
        lines = [_line(name, mark) for name, mark in self._marks.items()]
        self._number, self._length, self._crc, self._written = self._number + 1, 0, 0, 0
        for line in lines:
            self._append(line)
        self._write(folder, lines)
        self._new = []

    def restore(self, position: list[int]) -> None:
        """Go back to a position of this log; lines after it are ignored."""
        self._number, self._length, self._crc = position
        self._marks, self._inodes = {}, {}
        self._new, self._written, self._live = [], self._length, 0
        if not self._length:
            return
        for name, each in self._read(self._length, self._crc):
            self._marks[name] = each
            self._inodes[each.inode] = name
        self._live = sum(len(_line(name, each)) for name, each in self._marks.items())

    def _read(self, length: int, crc: int) -> Iterator[tuple[str, Mark]]:
        """The entries in the first `length` bytes; a damaged log or copy is restored from the other one."""
        assert self._folder is not None, "a log that is not on disk cannot be read again"
        paths = self._paths(self._folder)
        found = [_begin(path, length) for path in paths]
        whole = next((data for data in found if len(data) == length and zlib.crc32(data) == crc), None)
        if whole is None:
            raise DurabilityError(
                "HR-D007",
                "the list of files already read is damaged or missing",
                place=str(paths[0]),
                hint="restore the checkpoint from a copy, or delete it and the outputs to start over",
            )
        for path, data in zip(paths, found, strict=True):
            if data != whole:
                with _saying(self._folder):
                    _put(path, 0, whole)
        for line in whole.splitlines():
            name, *found = json.loads(line)
            yield name, Mark.of_json(found)

    def forget(self, position: list[int]) -> None:
        """Remove logs that only positions before `position` need."""
        if self._folder is None or not position[0] or not self._folder.is_dir():
            return
        with _saying(self._folder):
            for name in disk.current.names(self._folder):
                match = re.fullmatch(re.escape(self._stream) + r"-(\d{6,})\.(log|copy)", name)
                if match and int(match[1]) < position[0]:
                    disk.current.unlink(self._folder / name, missing_ok=True)

    def _paths(self, folder: Path) -> list[Path]:
        """The log and its copy."""
        return [folder / f"{self._stream}-{self._number:06d}.{end}" for end in ("log", "copy")]


def _saying(folder: Path) -> AbstractContextManager[None]:
    """Turn file system errors into coded errors."""
    return disk.coded(DurabilityError, "HR-D004", "write the list of files already read", folder)


def _put(path: Path, at: int, data: bytes) -> None:
    """Write durably at an offset of a file; offset 0 replaces the file."""
    with disk.current.open(path, "r+b" if at else "wb", private=True) as file:
        file.seek(at)
        file.write(data)
        disk.current.flush(file)


def _begin(path: Path, length: int) -> bytes:
    """The first `length` bytes of a file; empty if it cannot be read."""
    try:
        return disk.current.read(path)[:length]
    except OSError:
        return b""


def _line(name: str, mark: Mark) -> bytes:
    """The line of the log for one file."""
    found: list[Any] = [name, *mark.json]
    return json.dumps(found, separators=(",", ":")).encode() + b"\n"
