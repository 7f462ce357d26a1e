"""A spill store in a directory: one Arrow file for each batch, mapped into memory when it is read."""

from __future__ import annotations

import mmap
import os
import re
import uuid
import weakref
import zlib
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace import disk, tuning
from headrace.disk import DirectoryLock, Summed
from headrace.errors import SpillError
from headrace.spill.store import Handle

_NAME: Final = "headrace-spill-"
_TOKEN = b"headrace"


class DirectorySpillStore:
    """Spills batches into its own directory under `path`, and removes the directory at the end.

    `path` may be shared, such as the temporary directory: the store's own directory has a random name, and
    only its user may enter. A store holds a lock on its directory; the next store under the same path removes
    the directories of killed processes, but no symbolic links and nothing of other users. No file is needed
    after its process ends, because snapshots contain spilled state.
    """

    in_memory = False

    def __init__(self, path: str | Path) -> None:
        self._token = uuid.uuid4().hex
        self._sizes: dict[str, int] = {}
        self._unread: dict[str, int] = {}
        self._read: dict[str, int] = {}
        self.path = Path(path) / f"{_NAME}{self._token}"
        try:
            lock = _create(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        with suppress(OSError):
            _sweep(Path(path))
        self._close = weakref.finalize(self, _remove, self.path, lock)

    @property
    def least(self) -> int:
        return tuning.current.mapped_array_bytes

    def put(self, rows: pa.RecordBatch) -> Handle:
        name = f"{len(self._sizes):08d}-{uuid.uuid4().hex[:8]}.arrow"
        path = self.path / name
        schema = rows.schema.with_metadata({_TOKEN: self._token + name})
        try:
            with (
                closing(Summed(disk.current.open(path, "wb", private=True))) as sink,
                pa.PythonFile(sink, "w") as file,
                pa.ipc.new_file(file, schema) as writer,
            ):
                writer.write_batch(rows.replace_schema_metadata(schema.metadata))
            self._sizes[name], self._unread[name] = sink.size, sink.crc
        except OSError as error:
            with suppress(OSError):
                disk.current.unlink(path)
            raise _unwritable(self.path, error) from error
        return Handle(name, rows.num_rows, self._sizes[name])

    def get(self, handle: Handle) -> pa.RecordBatch:
        """A view of the file. Every read checks that the bytes are those that were written."""
        path = self.path / handle.name
        try:
            if disk.current.size(path) != self._sizes.get(handle.name):
                raise OSError("the size of the file has changed since it was written")
            with pa.memory_map(str(path)) as source:
                self._check(handle.name, source)
                found = pa.ipc.open_file(source).get_batch(0)
        except (OSError, pa.ArrowException, ValueError, IndexError) as error:
            raise _unreadable(path, str(error)) from error
        if (found.schema.metadata or {}).get(_TOKEN) != (self._token + handle.name).encode():
            raise _unreadable(path, "the file was replaced since it was written")
        return found.replace_schema_metadata(None)

    def _check(self, name: str, source: pa.MemoryMappedFile) -> None:
        """Whether the bytes are those that were written: by CRC-32 at first, by a sum of words after that.

        The sum misses more kinds of damage, but no flip of a single bit, and costs a fifth of the CRC.
        """
        data = source.read_buffer()
        source.seek(0)
        total = _sum(data)
        if name in self._unread and zlib.crc32(data) == self._unread[name]:
            self._read[name] = total
            del self._unread[name]
        if self._read.get(name) != total:
            raise OSError("the content of the file has changed since it was written")

    def room(self, bytes: int) -> npt.NDArray[np.uint8]:
        """Mapped pages of a file without a name, which is freed with the last reference to it."""
        path = self.path / f"room-{uuid.uuid4().hex}"
        try:
            with disk.current.open(path, "w+b", private=True) as file:
                disk.current.unlink(path)
                os.posix_fallocate(file.fileno(), 0, bytes)
                pages = mmap.mmap(file.fileno(), bytes)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return np.frombuffer(pages, np.uint8)

    def drop(self, handle: Handle) -> None:
        self._sizes.pop(handle.name, None)
        self._unread.pop(handle.name, None)
        self._read.pop(handle.name, None)
        with suppress(OSError):
            disk.current.unlink(self.path / handle.name)

    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes.values())

    def close(self) -> None:
        """Remove the directory."""
        self._close()


def _sum(data: pa.Buffer) -> int:
    """A sum of bytes, eight at a time."""
    whole = len(data) & ~7
    words = np.frombuffer(data, np.uint64, whole // 8)
    return hash((int(words.sum(dtype=np.uint64)), bytes(data[whole:])))


def _create(path: Path) -> DirectoryLock:
    """A new directory, locked before another spill store can see it under its name."""
    hidden = path.with_name(f".{path.name}")
    disk.current.mkdir(hidden.parent, private=True)
    hidden.mkdir(0o700)
    lock = DirectoryLock(hidden, own=True)
    if not lock.take():
        raise OSError("another process locked the new directory")
    disk.current.replace(hidden, path)
    return lock


def _sweep(path: Path) -> None:
    """Remove directories of this user that no running store has locked."""
    for name in disk.current.names(path):
        if re.fullmatch(_NAME + "[0-9a-f]{32}", name):
            with suppress(OSError):
                lock = DirectoryLock(path / name, own=True)
                if lock.take():
                    _remove(path / name, lock)


def _remove(path: Path, lock: DirectoryLock) -> None:
    with suppress(OSError):
        disk.current.rmtree(path)
    lock.release()


def _unwritable(path: Path, error: OSError) -> SpillError:
    return SpillError(
        "HR-M102",
        f"cannot spill state to disk: {error.strerror or os.strerror(error.errno or 0) or error}",
        place=str(path),
        hint="free some space there, or choose another directory; the state is still in memory",
    )


def _unreadable(path: Path, reason: str) -> SpillError:
    return SpillError(
        "HR-M103",
        f"cannot read spilled state back: {reason}",
        place=str(path),
        hint="restart from the last checkpoint: it contains this state and needs no spilled file",
    )
