"""The file system, as everything that must survive a crash sees it: one small set of operations.

Whatever writes what is read back later goes through `current`, and so do its reads. A test puts another disk
there: one that fails, tears what is written, or loses what was not synced (tests/simulation).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast


class Disk:
    """The real one. Each method is one operation that may fail, with an OSError.

    What was written survives the end of the process once it was flushed, and a loss of power once `flush` or
    `sync` returned; a name survives it once `sync` of its directory returned.
    """

    def __init__(self) -> None:
        self._safe: set[Path] = set()
        """The directories whose names this process has made safe."""

    def open(self, path: Path, mode: str, buffering: int = -1, *, private: bool = False) -> BinaryIO:
        """A file: "rb" to read it, "wb" or "w+b" to write a new one, "r+b" or "a+b" to change one.

        `private`: nobody else may read what is made here, and a link is not followed.
        """
        return cast(BinaryIO, open(path, mode, buffering, opener=_private if private else None))

    def flush(self, file: BinaryIO) -> None:
        """Make what was written to an open file safe."""
        file.flush()
        os.fsync(file.fileno())

    def sync(self, path: Path) -> None:
        """Make a file that is closed, or the names in a directory, safe."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: Path) -> bytes:
        """All bytes of a file."""
        return path.read_bytes()

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def size(self, path: Path) -> int:
        """How many bytes a file has."""
        return path.stat().st_size

    def replace(self, path: Path, by: Path) -> None:
        """Give a file or directory another name in the same directory, in place of what has it."""
        path.replace(by)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        path.unlink(missing_ok=missing_ok)

    def mkdir(self, path: Path, *, private: bool = False) -> None:
        """Make a directory and those it is in, where there are none; their names are safe afterwards.

        `private`: nobody else may enter it, if it is made here.
        """
        path = path.absolute()
        for each in reversed([each for each in (path, *path.parents) if not each.is_dir()]):
            self._safe.discard(each)
            self.make(each, 0o700 if private and each == path else 0o777)
        for each in (path, *path.parents):
            if each in self._safe or os.path.ismount(each):
                break
            self._secure(each)

    def _secure(self, path: Path) -> None:
        """The name of a directory, once: who made it may have been killed before that was safe."""
        if os.access(path.parent, os.R_OK | os.W_OK):
            self.sync(path.parent)
        self._safe.add(path)

    def make(self, path: Path, mode: int) -> None:
        """Make one directory, unless it is there by now."""
        path.mkdir(mode, exist_ok=True)

    def rmtree(self, path: Path) -> None:
        """Remove a directory with all that is in it."""
        shutil.rmtree(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


current = Disk()
"""The disk in use. Ask for it at each operation: `disk.current.open(…)`."""


@contextmanager
def using(other: Disk) -> Iterator[None]:
    """Another disk, for a while and for all threads."""
    global current  # noqa: PLW0603
    before, current = current, other
    try:
        yield
    finally:
        current = before
