"""The file system for code that must survive a crash: one small set of operations.

Code that writes data to read it back later uses `current`, also for reading. Tests replace it with a disk
that fails, writes only a part, or loses data that was not synced (tests/simulation).
"""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
import errno
import fcntl


class Disk:
    """The real disk. Each method is one operation that may fail with an OSError.

    Data survives the end of the process once it is flushed, and a power failure once `flush` or `sync` has
    returned; a name survives a power failure once `sync` of its directory has returned.
    """

    def __init__(self) -> None:
        self._safe: set[Path] = set()
        """The directories whose names this process has made durable."""

    def open(self, path: Path, mode: str, buffering: int = -1, *, private: bool = False) -> BinaryIO:
        """Open a file: "rb" to read, "wb" or "w+b" to write a new one, "r+b" or "a+b" to change one.

        `private`: only the owner can read a file created here, and symbolic links are not followed.
        """
        return cast(BinaryIO, open(path, mode, buffering, opener=_private if private else None))

    def flush(self, file: BinaryIO) -> None:
        """Make the content of an open file durable."""
        file.flush()
        os.fsync(file.fileno())

    def sync(self, path: Path) -> None:
        """Make a closed file, or the names in a directory, durable."""
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
        """The size of a file in bytes."""
        return path.stat().st_size

    def replace(self, path: Path, by: Path) -> None:
        """Rename a file or directory within its directory, replacing any that has the new name."""
        path.replace(by)

    def link(self, path: Path, to: Path) -> None:
        """Give a file a second name in its directory; a FileExistsError if the name is taken."""
        os.link(path, to)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        """Remove a file."""
        path.unlink(missing_ok=missing_ok)

    def mkdir(self, path: Path, *, private: bool = False) -> None:
        """Create a directory and its missing parents; their names are durable afterwards.

        `private`: only the owner can enter a directory created here.
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
        """Make the name of a directory durable, once: its creator may have been killed before doing so."""
        if os.access(path.parent, os.R_OK | os.W_OK):
            self.sync(path.parent)
        self._safe.add(path)

    def make(self, path: Path, mode: int) -> None:
        """Create one directory, if it does not exist yet."""
        path.mkdir(mode, exist_ok=True)

    def rmtree(self, path: Path) -> None:
        """Remove a directory with its content."""
        shutil.rmtree(path)


def _private(path: str, flags: int) -> int:
    """Open a file that only its owner can read; do not follow symbolic links."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


current = Disk()
"""The disk in use. Look it up for each operation: `disk.current.open(…)`."""


AGAIN: Final = "all commits are safe: free some space or repair the disk, then run again"


@contextmanager
def coded(kind: type[HeadraceError], code: str, doing: str, place: Path, hint: str = AGAIN) -> Iterator[None]:
    """Turn an OSError into a Headrace error that says what failed, where, and what to do."""
    try:
        yield
    except OSError as error:
        message = f"cannot {doing}: {error.strerror or error}"
        raise kind(code, message, place=str(place), hint=hint) from error


@contextmanager
def using(other: Disk) -> Iterator[None]:
    """Use another disk for a while, in all threads."""
    global current  # noqa: PLW0603
    before, current = current, other
    try:
        yield
    finally:
        current = before


# Checksums of files, computed while they are written.


class Summed:
    """A file to write to, with the size and CRC-32 of what was written; Arrow can write to it too."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size, self.crc = 0, 0

    def write(self, data: ReadableBuffer, /) -> int:
        """Write all bytes, and add them to the checksum and the size."""
        view = memoryview(data).cast("B")
        self.crc = zlib.crc32(view, self.crc)
        self.size += len(view)
        left = view
        while left:
            left = left[self.file.write(left) :]
        return len(view)

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.file.close()

    @property
    def closed(self) -> bool:
        return self.file.closed


# A lock on a directory: one holder at a time, even if files in it are deleted.
#
# The lock is on the directory itself, so there is no lock file to delete. On file systems that cannot lock
# directories (NFS) it is on a file `LOCK` inside. Deleting that file, or replacing the whole directory, makes
# a second holder possible; so a holder checks `holds` before each write that matters.


LOCK: Final = "LOCK"
_CANNOT: Final = frozenset((errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS))


class DirectoryLock:
    """The lock on an existing directory; it is released when the process ends.

    `own`: lock only a real directory that belongs to this user, so that nobody else can redirect it.
    """

    def __init__(self, path: Path, *, own: bool = False) -> None:
        self._path, self._own = path, own
        self._descriptor = -1
        self._locked = path

    def take(self, *, shared: bool = False) -> bool:
        """Lock the directory; false if another process holds the lock, or if it may not be locked."""
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if self._own else 0))
        if self._own and os.fstat(directory).st_uid != os.geteuid():
            os.close(directory)
            return False
        self._descriptor, self._locked = directory, self._path
        try:
            return self._try(shared)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
        self._locked = self._path / LOCK
        self._descriptor = os.open(self._locked, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        os.close(directory)
        return self._try(shared)

    def _try(self, shared: bool) -> bool:
        """Try to lock without waiting; False if another process holds the lock."""
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        if not self.holds():  # replaced between the two: whoever replaced it comes first
            self.release()
            return False
        return True

    def holds(self) -> bool:
        """Whether the locked file or directory is still the one at the path."""
        if self._descriptor < 0:
            return False
        try:
            found, held = os.stat(self._locked), os.fstat(self._descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def is_held(path: Path) -> bool:
    """Whether a process holds the lock of a directory."""
    lock = DirectoryLock(path)
    try:
        return not lock.take(shared=True)
    except OSError:
        return False
    finally:
        lock.release()
