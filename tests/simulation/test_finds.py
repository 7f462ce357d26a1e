"""That the simulator can fail: known bugs are put back, one by one, and it has to find each."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO, cast
from unittest import mock

import pytest

from headrace.connectors.files import FilesSource
from headrace.connectors.identity import Names
from headrace.connectors.rotation import Changes, Watch
from headrace.connectors.sinks import FileSink
from tests.simulation.disk import SimulatedDisk, SimulatedFile
from tests.simulation.world import Violation, World, simulate

MOST = 300


class NothingFlushed(SimulatedDisk):
    """For a store that does not sync its files."""

    def flush(self, file: BinaryIO) -> None:
        raw = cast(SimulatedFile, getattr(file, "raw", file))
        file.flush()
        self.operation("flush", raw.path)
        if "state" not in raw.path.parts:
            raw.inode.synced = raw.path.read_bytes()


class NoNamesSynced(SimulatedDisk):
    """For outputs whose directory is not synced."""

    def sync(self, path: Path) -> None:
        if "out" in path.parts:
            self.operation("sync", path)
        else:
            super().sync(path)


def seeds_until_found(story: Callable[[World], None], first: int, **how: Any) -> int:
    for seed in range(first, first + MOST):
        try:
            simulate(seed, story, **how)
        except Violation:
            return seed
    pytest.fail(f"not found within {MOST} seeds")


@pytest.mark.parametrize("disk", [NothingFlushed, NoNamesSynced])
def test_what_is_not_synced_is_missed(disk: type[SimulatedDisk]) -> None:
    seeds_until_found(World.still, 0, make_disk=disk, dials=frozenset({"power"}))


def test_a_commit_before_its_rows_are_written_is_found() -> None:
    with mock.patch.object(FileSink, "prepare", lambda sink: {"length": sink._length}):
        seeds_until_found(World.still, 0, dials=frozenset({"kill"}))


def as_spelled() -> AbstractContextManager[Any]:
    """Script 00: files are called by their path as it was written."""
    return mock.patch.object(Names, "of", lambda names, path: str(path))


def without_the_file() -> AbstractContextManager[Any]:
    """Script 01: a position says how many rows of the block were taken, but not of which file."""
    seek = FilesSource.seek
    return mock.patch.object(
        FilesSource, "seek", lambda source, position, span=None: seek(source, {**position, "in": None})
    )


def without_the_end() -> AbstractContextManager[Any]:
    """Script 03: the block that is read again is as large as the file is now."""
    read_on = FilesSource._read_on
    return mock.patch.object(FilesSource, "_read_on", lambda source, name, stop=None: read_on(source, name))


def unnoticed() -> AbstractContextManager[Any]:
    """Script 08: nobody looks whether a followed file was replaced."""
    return mock.patch.object(Watch, "changes", return_value=Changes())


@pytest.mark.parametrize(
    ("bug", "story", "dials", "first"),
    [
        (as_spelled, World.still, {"kill", "respell"}, 0),
        (without_the_file, World.changing, {"kill", "arrive"}, 60),
        (without_the_end, World.changing, {"kill", "grow"}, 0),
        (unnoticed, World.live, {"kill", "tail", "rotate"}, 0),
    ],
    ids=["00", "01", "03", "08"],
)
def test_a_known_bug_is_found(
    bug: Callable[[], AbstractContextManager[Any]],
    story: Callable[[World], None],
    dials: set[str],
    first: int,
) -> None:
    with bug():
        seeds_until_found(story, first, dials=frozenset(dials))
