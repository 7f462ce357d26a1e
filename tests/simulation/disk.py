"""A disk that fails, tears what is written, and loses what was not synced.

It works on real files, which stand for the page cache, and knows what of them is safe: the bytes of a file as
of its last sync, and the names in a directory as of its last sync. A loss of power makes of the real files
one of the states that a disk may be in then.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Final, cast

from headrace.disk import DirectoryLock, Disk

SECTOR: Final = 64
"""Bytes that are written whole or not at all. A real sector is larger, but so are real files."""

ERRORS: Final = (errno.ENOSPC, errno.EIO, errno.EACCES)


class SimulatedCrash(BaseException):
    """The process is gone: nothing that it does from here on reaches the disk."""


@dataclass(frozen=True)
class Fault:
    """What goes wrong at an operation: `kill`, `power`, or the number of an error.

    `torn`: part of the bytes are written first. `lasting`: the error comes back at each later operation that
    writes.
    """

    what: str | int
    torn: bool = False
    lasting: bool = False


@dataclass(eq=False)
class Inode:
    """A file or a directory: the bytes that are safe, and those it had when it lost its last name."""

    synced: bytes = b""
    last: bytes | None = None
    is_folder: bool = False


@dataclass
class Change:
    """A change of the names in a directory that may be lost: `old` becomes `new`; None is no name."""

    inode: Inode
    old: str | None
    new: str | None
    replaced: Inode | None = None


@dataclass
class SimulatedDisk(Disk):
    """Counts its operations; `faults` says what happens at which of them."""

    rng: Random
    faults: dict[int, Fault] = field(default_factory=dict)
    watch: Callable[[str, Path], None] | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.life = 0
        """The number of the process; files of an earlier one are closed."""
        self.count = 0
        self.log: list[str] = []
        self.met: list[str] = []
        """The faults that came to pass."""
        self.dead = False
        self.lost_power = False
        self._lasting: Fault | None = None
        self._inodes: dict[Path, Inode] = {}
        self._changes: dict[Path, list[Change]] = {}
        self._files: list[SimulatedFile] = []
        self._folders: dict[Path, Path] = {}
        self.locks: list[DirectoryLock] = []

    # --- processes

    def start(self, faults: dict[int, Fault] | None = None) -> None:
        """Another process begins."""
        self.life += 1
        self.dead = self.lost_power = False
        self.faults, self._lasting = faults or {}, None
        self.count, self.log, self.met = 0, [], []
        self._files, self._folders, self._safe = [], {}, set()

    def die(self) -> None:
        """The process ends, with whatever it has open."""
        self.dead = True
        for file in self._files:
            file.let_go()
        for lock in self.locks:
            lock.release()
        self.locks = []

    def left_open(self) -> list[SimulatedFile]:
        """What the process has not closed."""
        return [file for file in self._files if file.is_open]

    def operation(self, name: str, path: Path, *, writes: bool = True) -> Fault | None:
        """An operation is about to happen: count it, and fail. A torn write is left to the caller."""
        if self.dead:
            raise SimulatedCrash
        if self.watch is not None:
            self.watch(name, path)
        self.count += 1
        self.log.append(f"{name} {path.name}")
        fault = self.faults.get(self.count)
        if fault is None:
            if self._lasting is not None and writes:
                raise self._error(self._lasting, path)
            return None
        if fault.lasting:
            self._lasting = fault
        if isinstance(fault.what, int) and not writes:
            fault = replace(fault, what=errno.EIO, lasting=False)
        self.met.append(f"{fault.what} at operation {self.count}, {self.log[-1]}")
        if fault.torn and name == "write":
            return fault
        self.strike(fault, path)
        return None

    @contextmanager
    def healthy(self) -> Iterator[None]:
        """For a while nothing fails, not even what fails until the life ends."""
        faults, lasting = self.faults, self._lasting
        self.faults, self._lasting = {}, None
        try:
            yield
        finally:
            self.faults, self._lasting = faults, lasting

    def strike(self, fault: Fault, path: Path) -> None:
        if isinstance(fault.what, int):
            raise self._error(fault, path)
        self.lost_power = fault.what == "power"
        self.die()
        raise SimulatedCrash

    def _error(self, fault: Fault, path: Path) -> OSError:
        assert isinstance(fault.what, int)
        return OSError(fault.what, os.strerror(fault.what), str(path))

    # --- operations

    def open(self, path: Path, mode: str, buffering: int = -1, **more: Any) -> BinaryIO:
        path = self._plain(path)
        writes = mode != "rb"
        self.operation(f"open {mode}", path, writes=writes)
        there = path.exists()
        inode = self._known(path) if there and writes else Inode()
        flags = os.O_CLOEXEC | (os.O_RDONLY if not writes else os.O_RDWR)
        flags |= {"rb": 0, "r+": 0, "a+": os.O_CREAT | os.O_APPEND, "ab": os.O_CREAT | os.O_APPEND}.get(
            mode[:2], os.O_CREAT | os.O_TRUNC
        )
        if "x" in mode:
            flags |= os.O_EXCL
        descriptor = os.open(path, flags, 0o600)
        if writes and not there:
            self._inodes[path] = inode
            self._note(path.parent, Change(inode, None, path.name))
        raw = SimulatedFile(self, path, inode, descriptor, writes)
        self._files.append(raw)
        if buffering == 0:
            return cast(BinaryIO, raw)
        size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
        wrap = io.BufferedReader if not writes else io.BufferedRandom if "+" in mode else io.BufferedWriter
        return cast(BinaryIO, wrap(raw, size))

    def flush(self, file: BinaryIO) -> None:
        file.flush()
        raw = cast(SimulatedFile, getattr(file, "raw", file))
        self.operation("flush", raw.path)
        raw.inode.synced = _content(raw.descriptor)

    def sync(self, path: Path) -> None:
        path = self._plain(path)
        self.operation("sync", path)
        if path.is_dir():
            self._changes.pop(path.resolve(), None)
        elif path in self._inodes:
            self._inodes[path].synced = path.read_bytes()
        else:
            os.stat(path)

    def read(self, path: Path) -> bytes:
        self.operation("read", path, writes=False)
        return super().read(path)

    def names(self, path: Path) -> list[str]:
        self.operation("names", path, writes=False)
        return super().names(path)

    def size(self, path: Path) -> int:
        self.operation("size", path, writes=False)
        return super().size(path)

    def replace(self, path: Path, by: Path) -> None:
        path, by = self._plain(path), self._plain(by)
        self.operation("replace", by)
        inode = self._known(path)
        replaced = self._gone(by)
        super().replace(path, by)
        self._inodes.pop(path, None)
        self._moved(path, by)
        self._inodes[by] = inode
        self._note(by.parent, Change(inode, path.name, by.name, replaced))

    def link(self, path: Path, to: Path) -> None:
        path, to = self._plain(path), self._plain(to)
        self.operation("link", to)
        inode = self._known(path)
        super().link(path, to)
        self._inodes[to] = inode
        self._note(to.parent, Change(inode, None, to.name))

    def _moved(self, path: Path, by: Path) -> None:
        """What is known of the files in a directory goes with it."""
        if not by.is_dir():
            return
        for each in [each for each in self._inodes if each.is_relative_to(path)]:
            self._inodes[by / each.relative_to(path)] = self._inodes.pop(each)
        for each in [each for each in self._changes if each.is_relative_to(path)]:
            self._changes[by / each.relative_to(path)] = self._changes.pop(each)
        for file in self._files:
            if file.path.is_relative_to(path):
                file.path = by / file.path.relative_to(path)

    def unlink(self, path: Path, *, missing_ok: bool = False) -> None:
        if self.dead:
            return
        path = self._plain(path)
        self.operation("unlink", path)
        inode = self._gone(path)
        super().unlink(path, missing_ok=missing_ok)
        if inode is not None:
            self._inodes.pop(path, None)
            self._note(path.parent, Change(inode, path.name, None))

    def make(self, path: Path, mode: int) -> None:
        path = self._plain(path)
        self.operation("mkdir", path)
        path.mkdir()
        inode = self._inodes[path] = Inode(is_folder=True)
        self._note(path.parent, Change(inode, None, path.name))

    def rmtree(self, path: Path) -> None:
        if self.dead:
            return
        path = self._plain(path)
        for name in sorted(os.listdir(path)):
            each = path / name
            if each.is_dir() and not each.is_symlink():
                self.rmtree(each)
            else:
                self.unlink(each)
        self.operation("rmdir", path)
        inode = self._gone(path)
        path.rmdir()
        assert inode is not None
        self._inodes.pop(path, None)
        self._note(path.parent, Change(inode, path.name, None))

    def _plain(self, path: Path) -> Path:
        """One spelling for each name: what it is in, without links and dots."""
        if path.name in ("", ".."):
            return path.resolve()
        folder = path.parent
        if folder not in self._folders:
            self._folders[folder] = folder.resolve()
        return self._folders[folder] / path.name

    # --- what is safe

    def _known(self, path: Path) -> Inode:
        """What has this name; what was there before anybody looked is safe."""
        if path not in self._inodes:
            folder = path.is_dir()
            self._inodes[path] = Inode(b"" if folder else path.read_bytes(), is_folder=folder)
        return self._inodes[path]

    def _gone(self, path: Path) -> Inode | None:
        """What has a name that it is about to lose."""
        if not path.exists():
            return None
        inode = self._known(path)
        inode.last = None if inode.is_folder else path.read_bytes()
        return inode

    def _note(self, folder: Path, change: Change) -> None:
        self._changes.setdefault(folder, []).append(change)

    @property
    def unsafe(self) -> int:
        """Changes of names that a loss of power may undo."""
        return sum(map(len, self._changes.values()))

    def lose_power(self) -> None:
        """Make of the files what a disk may hold after power was lost; that is then safe."""
        contents = {inode: path.read_bytes() for path, inode in self._inodes.items() if path.is_file()}
        kept: dict[Inode, bytes] = {}

        def durable(inode: Inode) -> bytes:
            if inode not in kept:
                now = contents.get(inode, inode.last)
                kept[inode] = inode.synced if now is None else self._torn(inode.synced, now)
            return kept[inode]

        for folder in sorted(self._changes, key=lambda each: len(each.parts)):
            if folder.exists():
                self._restore_names(folder, durable)
        for path, inode in self._inodes.items():
            if path.is_file() and not inode.is_folder:
                now, then = contents.get(inode), durable(inode)
                if now != then:
                    path.write_bytes(then)
        self.forget()

    def forget(self) -> None:
        """All is safe as it is."""
        self._inodes, self._changes = {}, {}

    def _restore_names(self, folder: Path, durable: Callable[[Inode], bytes]) -> None:
        changes = self._changes[folder]
        now = {p.name: inode for p, inode in self._inodes.items() if p.parent == folder and p.exists()}
        found = dict(now)
        for change in reversed(changes):
            _undo(found, change)
        for change in self._survivors(changes):
            _redo(found, change)
        touched = {name for change in changes for name in (change.old, change.new) if name is not None}
        for name in sorted(touched):
            inode, path = found.get(name), folder / name
            if inode is now.get(name):
                continue
            if path.exists():
                Disk.rmtree(self, path) if path.is_dir() else path.unlink()
                self._inodes.pop(path, None)
            if inode is not None and inode.is_folder:
                path.mkdir()
            elif inode is not None:
                path.write_bytes(durable(inode))

    def _survivors(self, changes: list[Change]) -> list[Change]:
        """A journal keeps a beginning of what was done; without one, any part of it may be there."""
        if self.rng.random() < 0.7:
            return changes[: self.rng.randint(0, len(changes))]
        return [change for change in changes if self.rng.random() < 0.5]

    def _torn(self, synced: bytes, now: bytes) -> bytes:
        """One of the contents that a file may have that was `synced`, and then changed to `now`."""
        if synced == now:
            return now
        how = self.rng.random()
        if how < 0.3:
            return synced
        if how < 0.5:
            return now
        size = self.rng.randint(min(len(synced), len(now)), max(len(synced), len(now)))
        pieces = []
        for at in range(0, size, SECTOR):
            sources = (synced, now) if at < len(synced) else (now, bytes(len(now)))
            source = self.rng.choice(sources)
            pieces.append(source[at : at + SECTOR].ljust(SECTOR, b"\0"))
        return b"".join(pieces)[:size]


class SimulatedFile(io.RawIOBase):
    """An open file: each read and write of it is an operation of the disk."""

    def __init__(self, disk: SimulatedDisk, path: Path, inode: Inode, descriptor: int, writes: bool) -> None:
        super().__init__()
        self.disk, self.path, self.inode, self.descriptor = disk, path, inode, descriptor
        self._life, self._writes, self.is_open = disk.life, writes, True

    @property
    def _dead(self) -> bool:
        return not self.is_open or self.disk.dead or self.disk.life != self._life

    def fileno(self) -> int:
        return self.descriptor

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return self._writes

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0 if self._dead else os.lseek(self.descriptor, offset, whence)

    def tell(self) -> int:
        return self.seek(0, 1)

    def readinto(self, buffer: Any) -> int:
        self.disk.operation("read", self.path, writes=False)
        data = os.read(self.descriptor, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        data = bytes(data)
        if self._dead:
            return len(data)  # what a dead process had not written yet is gone
        fault = self.disk.operation("write", self.path)
        if fault is not None:
            os.write(self.descriptor, data[: self.disk.rng.randint(0, len(data))])
            self.disk.strike(fault, self.path)
        return os.write(self.descriptor, data)

    def truncate(self, size: int | None = None) -> int:
        size = self.tell() if size is None else size
        if not self._dead:
            self.disk.operation("truncate", self.path)
            os.ftruncate(self.descriptor, size)
        return size

    def let_go(self) -> None:
        """Close what the process had open, without a word."""
        if self.is_open:
            self.is_open = False
            os.close(self.descriptor)

    def close(self) -> None:
        if not self.closed:
            self.let_go()
            super().close()


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _undo(names: dict[str, Inode], change: Change) -> None:
    if change.new is not None:
        names.pop(change.new, None)
        if change.replaced is not None:
            names[change.new] = change.replaced
    if change.old is not None:
        names[change.old] = change.inode


def _redo(names: dict[str, Inode], change: Change) -> None:
    if change.old is not None and names.get(change.old) is change.inode:
        del names[change.old]
    if change.new is not None:
        names[change.new] = change.inode
