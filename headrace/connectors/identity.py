"""Identifies files: a name that does not depend on how a path was written, and a mark of what was read.

A file inside the folder of the pipeline is named by its path relative to it, so the whole folder can be
moved; any other file by its full path. Folders are resolved; the file's own name is kept, so a link that now
points elsewhere counts as a replaced file.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from headrace import disk
from headrace.errors import ConnectorError

END: Final = 1 << 16
"""Bytes at the beginning of a file, and before the point read so far, that identify the file."""


TICK: Final = 50_000_000
"""Two changes of a file within this many nanoseconds may have the same modification time."""


@dataclass
class Names:
    """The names of files in positions, and the paths of these files."""

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
        """The path of the file with that name."""
        return Path(name) if self._home is None else self._home / name


@dataclass(frozen=True)
class Mark:
    """How far a file was read, and what it looked like.

    `at` is the place where its reader continues. `taken` bytes identify the file: the bytes read so far
    for a file of lines, all bytes for any other. `head` and `tail` are checksums of the first and the
    last of them. `modified` is the modification time, or 0 if that is not reliable. `left`: it was read
    to its end when it was last looked at.
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
        """The mark as a JSON list; `of_json` reads it."""
        return [self.at, self.taken, self.head, self.tail, self.inode, self.modified, int(self.left)]

    @staticmethod
    def of_json(found: list[Any]) -> Mark:
        at, taken, head, tail, inode, changed, left = found
        return Mark(at, taken, head, tail, inode, changed, bool(left))

    def holds(self, path: Path, stat: os.stat_result) -> bool:
        """Whether the file at `path` still has the bytes that were read under this mark."""
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
    """The mark of an open file that was read up to `at`; `taken` is None if the whole file identifies it.

    `ended`: a line without a line end is the last of the file.
    """
    stat = os.fstat(file.fileno())
    size = stat.st_size if taken is None else taken
    known = before.head if before is not None and before.taken >= END else None
    head, tail = ends(file, size, known)
    file.seek(max(0, size - 1))
    left = ended and file.read(1) != b"\n"
    return Mark(at, size, head, tail, stat.st_ino, modified(stat), left)


def unreadable(path: Path, error: OSError) -> ConnectorError:
    """The error for an input that cannot be read now; treating it as a new file would repeat rows."""
    return ConnectorError(
        "HR-C006",
        f"the file cannot be read: {error.strerror or error}",
        place=str(path),
        hint="all commits are safe: run again when the file can be read",
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
    """The modification time; 0 if it is so recent that another change could have the same time."""
    return stat.st_mtime_ns if abs(time.time_ns() - stat.st_mtime_ns) > TICK else 0


def siblings(path: Path, inode: int) -> list[tuple[Path, os.stat_result]]:
    """Files in the same directory that this file may have become: by inode first, then by name."""
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
    """The `stat` of a regular file; None if it does not exist."""
    try:
        found = stat(path)
    except OSError:
        return None
    return found if (found.st_mode & 0o170000) == 0o100000 else None
