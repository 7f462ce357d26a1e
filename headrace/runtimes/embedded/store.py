"""Checkpoints on disk: pieces of state, and one small record that decides.

    LOCK                which process runs here; the lock itself is on the directory
    state-00000012.bin  snapshots of the engine: a full one, or two increments
    commit-00000014     the record: which states make the engine, where sources are, what of sinks is safe

Everything that a record names is safe on disk before the record is; the record gets its name by one rename,
and that is the commit. Each file has a checksum.

The last two records are kept, and no file is named by both: one damaged file leaves a whole checkpoint. There
are two chains of states, which commits extend in turn. So each state says what changed since the last commit
but one, in two increments, the first of which the state before has too: what changed is written twice.

        chain of even commits    full 0 · 1,2 · 3,4 · 5,6
        chain of odd commits         full 1 · 2,3 · 4,5
"""

from __future__ import annotations

import json
import os
import re
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from headrace.connectors import disk
from headrace.connectors.locking import LOCK, DirectoryLock
from headrace.engine import Engine
from headrace.engine.snapshot import Snapshot
from headrace.errors import DurabilityError

FORMAT: Final = 2
LONGEST_CHAIN: Final = 32
"""Files with increments after which a chain begins again, so that a restart reads little."""
KEPT: Final = 2
"""Records that are kept, and chains."""


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
    """What a record says: its number, the states of the engine, and the rest as the runner wrote it.

    `version` is that of the last snapshot in the states.
    """

    number: int
    states: tuple[Stored, ...]
    version: int
    body: dict[str, Any] = field(repr=False)


class Store:
    """One directory of checkpoints, held by one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = DirectoryLock(path)
        self._last: list[Checkpoint] = []
        self._between: Snapshot | None = None
        """What changed from the last checkpoint but one to the last, if that is known."""
        self.damaged: list[int] = []
        """The records that were found here and are not whole."""
        self.bytes_written = 0

    def open(self) -> None:
        """Make the directory and lock it."""
        with self._saying():
            disk.current.mkdir(self.path, private=True)
            if self._lock.take():
                with disk.current.open(self.path / LOCK, "wb", private=True) as note:
                    note.write(f"process {os.getpid()} on {socket.gethostname()}".encode())
                return
            raise DurabilityError(
                "HR-D001",
                f"another run uses this checkpoint: {self._holder()}",
                place=str(self.path),
                hint="stop it first; one checkpoint belongs to one run at a time",
            )

    def _holder(self) -> str:
        try:
            return disk.current.read(self.path / LOCK).decode(errors="replace")
        except OSError:
            return "it is not known which"

    def close(self) -> None:
        self._lock.release()

    def _check_ours(self) -> None:
        """Whoever replaced the directory, or its lock, may run another run there."""
        if not self._lock.holds():
            raise DurabilityError(
                "HR-D006",
                "the checkpoint was removed or replaced while this run used it",
                place=str(self.path),
                hint="this run wrote nothing more; see that no other run uses the place, then run again",
            )

    # --- reading

    def candidates(self) -> list[Checkpoint]:
        """The checkpoints that are whole, newest first."""
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
        return DurabilityError(
            "HR-D002",
            "no checkpoint here is whole: files are damaged or missing",
            place=str(self.path),
            hint="put back a copy of this directory, or delete it and the outputs to start over",
        )

    @property
    def newest(self) -> int:
        """The greatest number of a record, whole or torn; -1 if there is none."""
        with self._saying("read"):
            return max(self._numbers("commit-(\\d+)"), default=-1)

    @property
    def oldest(self) -> Checkpoint:
        """The oldest checkpoint that is kept."""
        return self._last[0]

    def _numbers(self, pattern: str) -> list[int]:
        matches = (re.fullmatch(pattern, name) for name in disk.current.names(self.path))
        return [int(match[1]) for match in matches if match]

    def _record(self, number: int) -> Checkpoint | None:
        try:
            crc, _, text = disk.current.read(self.path / f"commit-{number:08d}").partition(b"\n")
            if int(crc, 16) != zlib.crc32(text):
                return None
            body = json.loads(text)
        except (OSError, ValueError):
            return None
        if body.get("format") != FORMAT:
            raise DurabilityError(
                "HR-D003",
                f"a checkpoint of format {body.get('format')}, and this version writes {FORMAT}",
                place=str(self.path),
                hint="go on with the version that wrote it, or delete it and the outputs to start over",
            )
        return Checkpoint(number, tuple(Stored(*each) for each in body["states"]), body["version"], body)

    def _intact(self, checkpoint: Checkpoint) -> bool:
        return all(self._content(state) is not None for state in checkpoint.states)

    def _content(self, state: Stored) -> bytes | None:
        try:
            data = disk.current.read(self.path / state.file)
        except OSError:
            return None
        return data if len(data) == state.size and zlib.crc32(data) == state.crc else None

    def snapshots(self, checkpoint: Checkpoint) -> list[Snapshot]:
        """The engine's states, a full one and its increments. The next commit counts from them."""
        contents = [self._content(state) for state in checkpoint.states]
        if None in contents:
            raise self._not_whole()
        found = [snapshot for content in contents for snapshot in Snapshot.decode_all(content or b"")]
        self._between = found[-1] if found[-1].since is not None else None
        return found

    # --- writing

    def commit(self, engine: Engine, body: dict[str, Any]) -> Checkpoint:
        """Write a state and then the record that makes it count."""
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
            # Of the first record, the state's name must be safe before it: there is no other to go back to.
            self._write(stored.file, data, sync_names=not self._last)
            self._check_ours()
            self._write(f"commit-{number:08d}", b"%08x\n" % zlib.crc32(text) + text)
        checkpoint = Checkpoint(number, states, version, body)
        self._last = [*self._last, checkpoint][-KEPT:]
        self.bytes_written += stored.size + len(text)
        return checkpoint

    def _next_state(self, engine: Engine) -> tuple[tuple[Stored, ...], list[Snapshot]]:
        """The chain whose turn it is, and what makes it the state of now: two increments, or a new chain.

        An increment is taken even so, for the other chain. Of one and the same state there are then two
        versions, that of the increment and that of the full snapshot; a chain is linked when it is written.
        """
        before, self._between = self._between, None
        if self._last:
            self._between = engine.snapshot(engine.version)
        other = self._last[0] if len(self._last) == KEPT else None
        if before is None or self._between is None or other is None or _long(other.states):
            return (), [engine.snapshot()]
        first = replace(before, since=other.version)
        return other.states, [first, replace(self._between, since=first.version)]

    def _write(self, name: str, data: bytes, *, sync_names: bool = True) -> None:
        """A file that is there whole or not at all; its name is safe with the next names that are synced."""
        draft = self.path / f"{name}.draft"
        with disk.current.open(draft, "wb", private=True) as file:
            file.write(data)
            disk.current.flush(file)
        disk.current.replace(draft, self.path / name)
        if sync_names:
            disk.current.sync(self.path)

    def go_back_to(self, checkpoint: Checkpoint) -> None:
        """Forget what came after a checkpoint: records that are torn must not count later."""
        with self._saying():
            for number in self._numbers("commit-(\\d+)"):
                if number > checkpoint.number:
                    disk.current.unlink(self.path / f"commit-{number:08d}")
            disk.current.sync(self.path)
        self._last = [each for each in self._last if each.number <= checkpoint.number]

    def sweep(self) -> None:
        """Remove what no kept record names."""
        named = {state.file for each in self._last for state in each.states}
        named |= {f"commit-{each.number:08d}" for each in self._last}
        with self._saying():
            for name in disk.current.names(self.path):
                if re.match(r"(state|commit)-\d+", name) and name not in named:
                    disk.current.unlink(self.path / name, missing_ok=True)

    @contextmanager
    def _saying(self, doing: str = "write") -> Iterator[None]:
        """Errors of the file system, in words."""
        try:
            yield
        except OSError as error:
            raise DurabilityError(
                "HR-D004",
                f"cannot {doing} the checkpoint: {error.strerror or error}",
                place=str(self.path),
                hint="what was committed is safe: make room or repair the place, then run again",
            ) from error


def _long(chain: tuple[Stored, ...]) -> bool:
    """Whether a chain should begin again: it is not to grow without end."""
    increments = sum(state.size for state in chain[1:])
    return len(chain) > LONGEST_CHAIN or increments > 2 * chain[0].size + (1 << 20)
