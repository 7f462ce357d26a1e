"""Checkpoints on disk: pieces of state, and one small record that decides.

    LOCK                one run at a time
    state-00000012.bin  a snapshot of the engine, full or an increment
    commit-00000014     the record: which states make the engine, where sources are, what of sinks is safe

Everything that a record names is safe on disk before the record is; the record gets its name by one rename,
and that is the commit. The last two records and what they name are kept, so that one torn file loses nothing.
"""

from __future__ import annotations

import fcntl
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

from headrace.connectors import disk
from headrace.engine.snapshot import Snapshot
from headrace.errors import DurabilityError

FORMAT: Final = 2
LONGEST_CHAIN: Final = 32
"""Increments after which a full snapshot is written, so that a restart reads little."""
KEPT: Final = 2


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
    """What a record says: its number, the states of the engine, and the rest as the runner wrote it."""

    number: int
    states: tuple[Stored, ...]
    body: dict[str, Any] = field(repr=False)


class Store:
    """One directory of checkpoints, held by one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: BinaryIO | None = None
        self._last: list[Checkpoint] = []
        self.bytes_written = 0

    def open(self) -> None:
        """Make the directory and lock it."""
        with self._saying():
            disk.current.mkdir(self.path)
            self._lock = disk.current.open(self.path / "LOCK", "a+b")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise DurabilityError(
                "HR-D001",
                "another run uses this checkpoint",
                place=str(self.path),
                hint="stop it first; one checkpoint belongs to one run at a time",
            ) from None

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # --- reading

    def candidates(self) -> list[Checkpoint]:
        """The checkpoints that are whole, newest first."""
        numbers = sorted(self._numbers("commit-(\\d+)"), reverse=True)
        found = [self._record(number) for number in numbers]
        whole = [each for each in found if each is not None and self._intact(each)]
        if numbers and not whole:
            raise DurabilityError(
                "HR-D002",
                "no checkpoint here is whole: files are torn or missing",
                place=str(self.path),
                hint="put back a copy of this directory, or delete it and the outputs to begin anew",
            )
        self._last = list(reversed(whole[:KEPT]))
        return whole

    @property
    def newest(self) -> int:
        """The greatest number of a record, whole or torn; -1 if there is none."""
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
                hint="go on with the version that wrote it, or delete it and the outputs to begin anew",
            )
        return Checkpoint(number, tuple(Stored(*each) for each in body["states"]), body)

    def _intact(self, checkpoint: Checkpoint) -> bool:
        return all(self._content(state) is not None for state in checkpoint.states)

    def _content(self, state: Stored) -> bytes | None:
        try:
            data = disk.current.read(self.path / state.file)
        except OSError:
            return None
        return data if len(data) == state.size and zlib.crc32(data) == state.crc else None

    def snapshots(self, checkpoint: Checkpoint) -> list[Snapshot]:
        """The engine's states, a full one and its increments."""
        return [Snapshot.decode(self._content(state) or b"") for state in checkpoint.states]

    # --- writing

    def wants_full(self) -> bool:
        """Whether the next snapshot should be complete in itself: a chain is not to grow for ever."""
        if not self._last or not self._last[-1].states:
            return True
        states = self._last[-1].states
        increments = sum(state.size for state in states[1:])
        return len(states) > LONGEST_CHAIN or increments > 2 * states[0].size + (1 << 20)

    def commit(self, snapshot: Snapshot, body: dict[str, Any]) -> Checkpoint:
        """Write a state and then the record that makes it count."""
        number = (self._last[-1].number if self._last else -1) + 1
        with self._saying():
            stored = self._write_state(number, snapshot.encode())
            before = self._last[-1].states if self._last and snapshot.since is not None else ()
            states = (*before, stored)
            body = {"format": FORMAT, **body, "states": [state.json for state in states]}
            text = json.dumps(body).encode()
            self._write(f"commit-{number:08d}", b"%08x\n" % zlib.crc32(text) + text)
        checkpoint = Checkpoint(number, states, body)
        self._last = [*self._last, checkpoint][-KEPT:]
        self.bytes_written += stored.size + len(text)
        return checkpoint

    def _write_state(self, number: int, data: bytes) -> Stored:
        name = f"state-{number:08d}.bin"
        self._write(name, data, sync_names=False)
        return Stored(name, len(data), zlib.crc32(data))

    def _write(self, name: str, data: bytes, *, sync_names: bool = True) -> None:
        """A file that is there whole or not at all; its name is safe with the next names that are synced."""
        draft = self.path / f"{name}.draft"
        with disk.current.open(draft, "wb") as file:
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
        named |= {f"commit-{each.number:08d}" for each in self._last} | {"LOCK"}
        for name in disk.current.names(self.path):
            if re.match(r"(state|commit)-\d+", name) and name not in named:
                disk.current.unlink(self.path / name, missing_ok=True)

    @contextmanager
    def _saying(self) -> Iterator[None]:
        """Errors of the file system, in words."""
        try:
            yield
        except OSError as error:
            raise DurabilityError(
                "HR-D004",
                f"cannot write the checkpoint: {error.strerror or error}",
                place=str(self.path),
                hint="what was committed is safe: make room or repair the place, then run again",
            ) from error
