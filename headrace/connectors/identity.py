"""Which file it is: a name that does not depend on how a path was written, and a mark of what was read.

A file inside the folder of the pipeline is called by its path from there, so the whole folder can move; any
other by its full path. Folders are resolved; the file's own name is kept, so a link that is pointed elsewhere
is a file that was replaced.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from headrace.connectors import disk
from headrace.errors import ConnectorError

END: Final = 1 << 16
"""Bytes at the beginning of a file, and before the place that was read to, by which it is recognised."""


TICK: Final = 50_000_000
"""Nanoseconds within which two changes of a file may have the same time of modification."""


@dataclass
class Names:
    """What files are called in positions, and where they are."""

    root: Path | None = None
    _folders: dict[Path, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._home = None if self.root is None else self.root.resolve()

    def of(self, path: Path) -> str:
        """The name of a file."""
        folder = path.parent
        if folder not in self._folders:
            real = folder.resolve()
            inside = self._home is not None and real.is_relative_to(self._home)
            self._folders[folder] = str(real.relative_to(self._home) if inside and self._home else real)
        return os.path.normpath(os.path.join(self._folders[folder], path.name))

    def path(self, name: str) -> Path:
        """Where a file of that name is."""
        return Path(name) if self._home is None else self._home / name


@dataclass(frozen=True)
class Mark:
    """How far a file was read, and what it looked like.

    `at` is the place its reader goes on from. `taken` bytes of it identify it: those that were read of a file
    of lines, all of any other. `head` and `tail` are checksums of the first and the last of them. `modified`
    is when it was changed last, or 0 if that is not known surely. `left`: it was read up to its end when it
    was last looked at.
    """

    at: Any
    taken: int
    head: int
    tail: int
    inode: int
    modified: int
    left: bool = False

    @property
    def json(self) -> list[Any]:
        return [self.at, self.taken, self.head, self.tail, self.inode, self.modified, int(self.left)]

    @staticmethod
    def of_json(found: list[Any]) -> Mark:
        at, taken, head, tail, inode, changed, left = found
        return Mark(at, taken, head, tail, inode, changed, bool(left))

    def holds(self, path: Path, stat: os.stat_result) -> bool:
        """Whether the file there has what was read of this one."""
        if stat.st_size < self.taken:
            return False
        if not self.taken or (
            self.modified and (stat.st_ino, stat.st_mtime_ns) == (self.inode, self.modified)
        ):
            return True
        try:
            with disk.current.open(path, "rb") as file:
                return ends(file, self.taken) == (self.head, self.tail)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise unreadable(path, error) from error


def mark(
    file: BinaryIO, at: Any, taken: int | None, before: Mark | None = None, *, ended: bool = False
) -> Mark:
    """The mark of an open file that was read up to `at`; `taken` is None if the whole of it identifies it.

    `ended`: a line without an end is the last of the file.
    """
    stat = os.fstat(file.fileno())
    size = stat.st_size if taken is None else taken
    known = before.head if before is not None and before.taken >= END else None
    head, tail = ends(file, size, known)
    file.seek(max(0, size - 1))
    left = ended and file.read(1) != b"\n"
    return Mark(at, size, head, tail, stat.st_ino, modified(stat), left)


def unreadable(path: Path, error: OSError) -> ConnectorError:
    """An input of which it cannot be said now what is in it; to take it for another one would repeat rows."""
    return ConnectorError(
        "HR-C006",
        f"the file cannot be read: {error.strerror or error}",
        place=str(path),
        hint="what was committed is safe: run again once the file can be read",
    )


def ends(file: BinaryIO, taken: int, head: int | None = None) -> tuple[int, int]:
    """Checksums of the first and of the last of the `taken` bytes."""
    length = min(taken, END)
    if head is None:
        file.seek(0)
        head = zlib.crc32(file.read(length))
    if taken <= END:
        return head, head
    file.seek(taken - length)
    return head, zlib.crc32(file.read(length))


def modified(stat: os.stat_result) -> int:
    """When a file was changed; 0 if that is so short ago that another change could bear the same time."""
    return stat.st_mtime_ns if abs(time.time_ns() - stat.st_mtime_ns) > TICK else 0


def siblings(path: Path, inode: int) -> list[tuple[Path, os.stat_result]]:
    """Files beside this one that it may have become: the one with its inode, then those named after it."""
    found = []
    try:
        names = disk.current.names(path.parent) if path.parent.is_dir() else []
    except OSError as error:
        raise unreadable(path.parent, error) from error
    for name in names:
        other = path.parent / name
        if name != path.name and (stat := regular(other)) is not None:
            same = stat.st_ino == inode
            if same or name.startswith(path.stem):
                found.append((not same, other, stat))
    return [(other, stat) for _, other, stat in sorted(found, key=lambda each: (each[0], each[1]))]


def regular(path: Path, stat: Callable[[Path], os.stat_result] = os.stat) -> os.stat_result | None:
    """What the file system says of a file; None if there is none."""
    try:
        found = stat(path)
    except OSError:
        return None
    return found if (found.st_mode & 0o170000) == 0o100000 else None
