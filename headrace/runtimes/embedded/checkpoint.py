"""Checkpoints on disk: files of state, and one small commit record.

    LOCK                which process runs here; the lock itself is on the directory
    state-00000012.bin  snapshots of the engine: a full one, or two increments
    commit-00000014     the record: the state files, the positions of sources, the durable output of sinks

All files that a record names are durable before the record is. The record gets its name by one rename, and
that rename is the commit. Each file has a checksum.

The last two records are kept, and they share no file: if one file is damaged, a complete checkpoint is left.
Commits extend two chains of states in turn. So each state covers the last two commits, as two increments. The
other chain has the first of them too: every change is written twice.

        chain of even commits    full 0 · 1,2 · 3,4 · 5,6
        chain of odd commits         full 1 · 2,3 · 4,5
"""

from __future__ import annotations

import json
import os
import re
import socket
import zlib
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headrace import disk, tuning
from headrace.disk import LOCK, DirectoryLock
from headrace.engine import Engine
from headrace.engine.snapshot import Snapshot
from headrace.errors import DurabilityError

FORMAT: Final = 3
READABLE: Final = (2, 3)
"""Format 3 says what the state is the state of, so that a changed pipeline can continue with it."""
KEPT: Final = 2
"""The number of records that are kept, and of chains."""


@dataclass(frozen=True)
class Stored:
    """A file of state: its name, size and checksum."""

    file: str
    size: int
    crc: int

    @property
    def json(self) -> list[Any]:
        return [self.file, self.size, self.crc]


@dataclass(frozen=True)
class Checkpoint:
    """The content of a record: its number, the states of the engine, and the rest as the runner wrote it.

    `version` is that of the last snapshot in the states.
    """

    number: int
    states: tuple[Stored, ...]
    version: int
    body: dict[str, Any] = field(repr=False)


class Store:
    """One directory of checkpoints, used by one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = DirectoryLock(path)
        self._last: list[Checkpoint] = []
        self._between: Snapshot | None = None
        """The changes between the last two checkpoints, if they are known."""
        self.damaged: list[int] = []
        """The numbers of incomplete records in the directory."""
        self.bytes_written = 0

    def open(self) -> None:
        """Create the directory and lock it."""
        with self._saying():
            disk.current.mkdir(self.path, private=True)
            if self._lock.take():
                with disk.current.open(self.path / LOCK, "wb", private=True) as note:
                    note.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                # A run that failed may have left names that exist but are not durable yet.
                disk.current.sync(self.path)
                return
            raise DurabilityError(
                "HR-D001",
                f"another run uses this checkpoint: {self._holder()}",
                place=str(self.path),
                hint="stop that run first; only one run can use a checkpoint",
            )

    def _holder(self) -> str:
        """The text of the lock file, which names the process that holds the checkpoint."""
        try:
            return disk.current.read(self.path / LOCK).decode(errors="replace")
        except OSError:
            return "an unknown process"

    def close(self) -> None:
        self._lock.release()

    def _check_ours(self) -> None:
        """An error if the directory or its lock was replaced: another run may use it now."""
        if not self._lock.holds():
            raise DurabilityError(
                "HR-D006",
                "the checkpoint directory was removed or replaced while this run used it",
                place=str(self.path),
                hint="nothing more was written; check that no other run uses the directory, then run again",
            )

    # --- reading

    def candidates(self) -> list[Checkpoint]:
        """The complete checkpoints, newest first."""
        with self._saying("read"):
            numbers = sorted(self._numbers("commit-(\\d+)"), reverse=True)
        found = [self._record(number) for number in numbers]
        whole = [each for each in found if each is not None and self._intact(each)]
        if numbers and not whole:
            raise self._not_whole()
        self.damaged = sorted(set(numbers) - {each.number for each in whole})
        self._last = [each for each in reversed(whole) if whole[0].number - each.number < KEPT]
        return whole

    def _not_whole(self) -> DurabilityError:
        """The error for a directory in which every checkpoint is damaged."""
        return DurabilityError(
            "HR-D002",
            "no checkpoint in the directory is complete: files are damaged or missing",
            place=str(self.path),
            hint="restore the directory from a copy, or delete it and the outputs to start over",
        )

    @property
    def newest(self) -> int:
        """The highest number of a record, complete or not; -1 if there is none."""
        with self._saying("read"):
            return max(self._numbers("commit-(\\d+)"), default=-1)

    @property
    def oldest(self) -> Checkpoint:
        """The oldest checkpoint that is kept."""
        return self._last[0]

    def _numbers(self, pattern: str) -> list[int]:
        """The numbers in the names of the files that match the pattern."""
        matches = (re.fullmatch(pattern, name) for name in disk.current.names(self.path))
        return [int(match[1]) for match in matches if match]

    def _record(self, number: int) -> Checkpoint | None:
        """The checkpoint with this number, or None if its record is missing or damaged."""
        try:
            crc, _, text = disk.current.read(self.path / f"commit-{number:08d}").partition(b"\n")
            if int(crc, 16) != zlib.crc32(text):
                return None
            body = json.loads(text)
        except (OSError, ValueError):
            return None
        if body.get("format") not in READABLE:
            raise DurabilityError(
                "HR-D003",
                f"the checkpoint has format {body.get('format')}; this version of Headrace reads {FORMAT}",
                place=str(self.path),
                hint="continue with the version that wrote it, or delete it and the outputs to start over",
            )
        return Checkpoint(number, tuple(Stored(*each) for each in body["states"]), body["version"], body)

    def _intact(self, checkpoint: Checkpoint) -> bool:
        """True if every state file of the checkpoint has its recorded size and checksum."""
        return all(self._content(state) is not None for state in checkpoint.states)

    def _content(self, state: Stored) -> bytes | None:
        """The bytes of a state file, or None if the file is missing or damaged."""
        try:
            data = disk.current.read(self.path / state.file)
        except OSError:
            return None
        return data if len(data) == state.size and zlib.crc32(data) == state.crc else None

    def snapshots(self, checkpoint: Checkpoint) -> list[Snapshot]:
        """The engine's states: a full snapshot and its increments. The next commit continues from them."""
        contents = [self._content(state) for state in checkpoint.states]
        if None in contents:
            raise self._not_whole()
        found = [snapshot for content in contents for snapshot in Snapshot.decode_all(content or b"")]
        self._between = found[-1] if found[-1].since is not None else None
        return found

    # --- writing

    def commit(self, engine: Engine, body: dict[str, Any]) -> Checkpoint:
        """Write a state, and then the record that commits it."""
        number = (self._last[-1].number if self._last else -1) + 1
        chain, snapshots = self._next_state(engine)
        data = b"".join(snapshot.encode() for snapshot in snapshots)
        stored = Stored(f"state-{number:08d}.bin", len(data), zlib.crc32(data))
        states = (*chain, stored)
        version = snapshots[-1].version
        body = {"format": FORMAT, **body, "states": [state.json for state in states], "version": version}
        text = json.dumps(body).encode()
        with self._saying():
            self._check_ours()
            # Before the first record, the name of the state must be durable: there is no older record to go
            # back to.
            self._write(stored.file, data, sync_names=not self._last)
            self._check_ours()
            self._write(f"commit-{number:08d}", b"%08x\n" % zlib.crc32(text) + text)
        checkpoint = Checkpoint(number, states, version, body)
        self._last = [*self._last, checkpoint][-KEPT:]
        self.bytes_written += stored.size + len(text)
        return checkpoint

    def _next_state(self, engine: Engine) -> tuple[tuple[Stored, ...], list[Snapshot]]:
        """The chain that this commit extends, and its new content: two increments, or a new chain.

        After a change of the queries both chains begin again: increments are about the same queries.
        Otherwise an increment is taken in any case, for the other chain. If a new chain begins, the same
        state has two versions, that of the increment and that of the full snapshot; a chain is linked when it
        is written.
        """
        before, self._between = self._between, None
        if engine.needs_full_snapshot:
            return (), [engine.snapshot()]
        if self._last:
            self._between = engine.snapshot(engine.version)
        other = self._last[0] if len(self._last) == KEPT else None
        if before is None or self._between is None or other is None or _long(other.states):
            return (), [engine.snapshot()]
        first = replace(before, since=other.version)
        return other.states, [first, replace(self._between, since=first.version)]

    def _write(self, name: str, data: bytes, *, sync_names: bool = True) -> None:
        """Write a file atomically; its name is durable after the next sync of the directory."""
        draft = self.path / f"{name}.draft"
        with disk.current.open(draft, "wb", private=True) as file:
            file.write(data)
            disk.current.flush(file)
        disk.current.replace(draft, self.path / name)
        if sync_names:
            disk.current.sync(self.path)

    def go_back_to(self, checkpoint: Checkpoint) -> None:
        """Remove the records after a checkpoint: incomplete ones must not be used later."""
        with self._saying():
            for number in self._numbers("commit-(\\d+)"):
                if number > checkpoint.number:
                    disk.current.unlink(self.path / f"commit-{number:08d}")
            disk.current.sync(self.path)
        self._last = [each for each in self._last if each.number <= checkpoint.number]

    def sweep(self) -> None:
        """Remove files that no kept record refers to."""
        named = {state.file for each in self._last for state in each.states}
        named |= {f"commit-{each.number:08d}" for each in self._last}
        with self._saying():
            for name in disk.current.names(self.path):
                if re.match(r"(state|commit)-\d+", name) and name not in named:
                    disk.current.unlink(self.path / name, missing_ok=True)

    def _saying(self, doing: str = "write") -> AbstractContextManager[None]:
        """Turn an OSError into HR-D004."""
        return disk.coded(DurabilityError, "HR-D004", f"{doing} the checkpoint", self.path)


def _long(chain: tuple[Stored, ...]) -> bool:
    """Whether a chain is so long that a new one should begin."""
    increments = sum(state.size for state in chain[1:])
    return len(chain) > tuning.current.checkpoint_chain or increments > 2 * chain[0].size + (1 << 20)
