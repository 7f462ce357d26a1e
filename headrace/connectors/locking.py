"""One holder of a directory at a time, also when somebody deletes files in it.

The lock is on the directory itself, not on a file in it: there is nothing to delete. Where a file system
cannot lock directories (NFS), it is on a file `LOCK` in it. Whoever deletes that file, or replaces the whole
directory, makes a second holder possible; so a holder asks `holds` before each write that counts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Final

LOCK: Final = "LOCK"
_CANNOT: Final = frozenset((errno.EBADF, errno.EINVAL, errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS))


class DirectoryLock:
    """The lock on a directory that exists; it goes with the process that has it.

    `own`: only a real directory of this user's is locked, so that nobody else chooses what it stands for.
    """

    def __init__(self, path: Path, *, own: bool = False) -> None:
        self._path, self._own = path, own
        self._descriptor = -1
        self._locked = path

    def take(self, *, shared: bool = False) -> bool:
        """Lock it; false if another has it, or if it is not what may be locked."""
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
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self._descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            return False
        if not self.holds():  # replaced between the two: whoever did it comes first
            self.release()
            return False
        return True

    def holds(self) -> bool:
        """Whether what is locked is still what is there."""
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
    """Whether somebody has the lock of a directory."""
    lock = DirectoryLock(path)
    try:
        return not lock.take(shared=True)
    except OSError:
        return False
    finally:
        lock.release()
