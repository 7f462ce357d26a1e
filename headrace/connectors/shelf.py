"""A shelf in a directory: one Arrow file for each batch, mapped into memory when it is read."""

from __future__ import annotations

import fcntl
import io
import mmap
import os
import uuid
import weakref
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.connectors import disk
from headrace.errors import SpillError
from headrace.flow.shelf import Handle

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_LOCK = "lock"
_TOKEN = b"headrace"


class DirectoryShelf:
    """Puts batches into a directory of its own under `path`, which goes when the shelf does.

    What a killed process left is removed by the next shelf under the same path: a living shelf holds a lock
    on its directory. Nothing there outlives its process on purpose, because snapshots contain what is
    spilled.
    """

    in_memory = False
    least = 1 << 16

    def __init__(self, path: str | Path) -> None:
        self._token = uuid.uuid4().hex
        self._sizes: dict[str, int] = {}
        self._unread: dict[str, int] = {}
        self.path = Path(path) / f"spill-{self._token}"
        try:
            lock = _create(self.path)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        _sweep(Path(path), self.path)
        self._close = weakref.finalize(self, _remove, self.path, lock)

    def put(self, rows: pa.RecordBatch) -> Handle:
        name = f"{len(self._sizes):08d}-{uuid.uuid4().hex[:8]}.arrow"
        path = self.path / name
        schema = rows.schema.with_metadata({_TOKEN: self._token + name})
        try:
            sink = _Summed(cast(io.RawIOBase, disk.current.open(path, "wb", 0)))
            with sink, pa.PythonFile(sink, "w") as file, pa.ipc.new_file(file, schema) as writer:
                writer.write_batch(rows.replace_schema_metadata(schema.metadata))
            self._sizes[name], self._unread[name] = disk.current.size(path), sink.sum
        except OSError as error:
            with suppress(OSError):
                disk.current.unlink(path)
            raise _unwritable(self.path, error) from error
        return Handle(name, rows.num_rows, self._sizes[name])

    def get(self, handle: Handle) -> pa.RecordBatch:
        """A view of the file: what is looked at is read, the rest is not; the first time all is checked."""
        path = self.path / handle.name
        try:
            if disk.current.size(path) != self._sizes.get(handle.name):
                raise OSError("the file has another size than when it was written")
            with pa.memory_map(str(path)) as source:
                self._check(handle.name, source)
                found = pa.ipc.open_file(source).get_batch(0)
        except (OSError, pa.ArrowException, ValueError, IndexError) as error:
            raise _unreadable(path, str(error)) from error
        if (found.schema.metadata or {}).get(_TOKEN) != (self._token + handle.name).encode():
            raise _unreadable(path, "the file is not the one that was written")
        return found.replace_schema_metadata(None)

    def _check(self, name: str, source: pa.MemoryMappedFile) -> None:
        """Whether the bytes are those that were written, at the first reading; the sum is then forgotten."""
        expected = self._unread.get(name)
        if expected is None:
            return
        found = zlib.crc32(source.read_buffer())
        source.seek(0)
        if found != expected:
            raise OSError("its bytes are not those that were written")
        del self._unread[name]

    def room(self, bytes: int) -> npt.NDArray[np.uint8]:
        """Mapped pages of a file without a name, which goes with the last reference to it."""
        path = self.path / f"room-{uuid.uuid4().hex}"
        try:
            with disk.current.open(path, "w+b") as file:
                disk.current.unlink(path)
                os.posix_fallocate(file.fileno(), 0, bytes)
                pages = mmap.mmap(file.fileno(), bytes)
        except OSError as error:
            raise _unwritable(self.path, error) from error
        return np.frombuffer(pages, np.uint8)

    def drop(self, handle: Handle) -> None:
        self._sizes.pop(handle.name, None)
        self._unread.pop(handle.name, None)
        with suppress(OSError):
            disk.current.unlink(self.path / handle.name)

    def bytes(self) -> int:
        """Bytes of all files."""
        return sum(self._sizes.values())

    def close(self) -> None:
        """Remove the directory."""
        self._close()


class _Summed(io.BufferedWriter):
    """A file that is written, and the checksum of what was written to it."""

    sum = 0

    def write(self, data: ReadableBuffer, /) -> int:
        self.sum = zlib.crc32(data, self.sum)
        return super().write(data)


def _create(path: Path) -> BinaryIO:
    """A new directory, locked before another shelf can see it."""
    hidden = path.with_name(f".{path.name}")
    disk.current.mkdir(hidden)
    lock = _locked(hidden / _LOCK)
    assert lock is not None
    disk.current.replace(hidden, path)
    return lock


def _locked(path: Path) -> BinaryIO | None:
    """The file, locked for as long as it is open; None if another process has it."""
    lock = disk.current.open(path, "wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _sweep(path: Path, own: Path) -> None:
    """Remove what no living shelf has a lock on."""
    for left in path.glob("spill-*"):
        if left == own or not (left / _LOCK).exists():
            continue
        with suppress(OSError):
            lock = _locked(left / _LOCK)
            if lock is not None:
                _remove(left, lock)


def _remove(path: Path, lock: BinaryIO) -> None:
    with suppress(OSError):
        disk.current.rmtree(path)
    lock.close()


def _unwritable(path: Path, error: OSError) -> SpillError:
    return SpillError(
        "HR-M102",
        f"state cannot be put on disk: {error.strerror or os.strerror(error.errno or 0) or error}",
        place=str(path),
        hint="free space there or name another directory; nothing was lost, the state is still in memory",
    )


def _unreadable(path: Path, reason: str) -> SpillError:
    return SpillError(
        "HR-M103",
        f"state on disk cannot be read back: {reason}",
        place=str(path),
        hint="start again from the last checkpoint: it contains this state and needs no file from here",
    )
