"""Spilled state on a disk: what was put is what is read, or an error; nothing outlives its process."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import SpillError
from headrace.spill.directory import DirectorySpillStore, _sweep

ROWS = pa.RecordBatch.from_pydict({"k": list(range(5000)), "s": [f"name {i}" for i in range(5000)]})


def test_what_is_put_is_what_is_read_until_it_is_dropped(tmp_path: Path) -> None:
    spill_store = DirectorySpillStore(tmp_path)
    handles = [spill_store.put(ROWS.slice(i, 100)) for i in range(3)]
    assert [spill_store.get(h).equals(ROWS.slice(i, 100)) for i, h in enumerate(handles)] == [True] * 3
    assert spill_store.bytes() == sum(h.bytes for h in handles) > 0
    spill_store.drop(handles[1])
    assert len(list(spill_store.path.glob("*.arrow"))) == 2
    assert spill_store.get(handles[2]).equals(ROWS.slice(2, 100))
    spill_store.close()
    assert list(tmp_path.iterdir()) == []


def test_reading_takes_no_memory_from_arrow(tmp_path: Path) -> None:
    spill_store = DirectorySpillStore(tmp_path)
    handle = spill_store.put(ROWS)
    before = pa.total_allocated_bytes()
    found = spill_store.get(handle)
    assert pa.total_allocated_bytes() - before < found.nbytes / 20


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def swap(path: Path) -> None:
    other = next(p for p in path.parent.glob("*.arrow") if p != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("harm", [Path.unlink, overwrite, swap, lambda p: os.truncate(p, 100)])
def test_a_file_that_is_not_what_was_written_is_an_error(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    spill_store = DirectorySpillStore(tmp_path)
    handle = spill_store.put(ROWS)
    spill_store.put(ROWS)
    harm(spill_store.path / handle.name)
    with pytest.raises(SpillError, match="HR-M103") as caught:
        spill_store.get(handle)
    assert "checkpoint" in caught.value.hint


def test_a_full_disk_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    spill_store = DirectorySpillStore(tmp_path)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
    try:
        with pytest.raises(SpillError, match="HR-M102"):
            spill_store.put(ROWS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(spill_store.path.glob("*.arrow")) == []
    assert spill_store.get(spill_store.put(ROWS)).equals(ROWS)


def test_a_directory_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpillError, match="HR-M102"):
        DirectorySpillStore(tmp_path / "file")


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    living = DirectorySpillStore(tmp_path)
    kept = living.put(ROWS)
    script = (
        "import os, signal, sys, pyarrow as pa; from headrace.spill.directory import DirectorySpillStore;"
        "store = DirectorySpillStore(sys.argv[1]); store.put(pa.RecordBatch.from_pydict({'a': [1]}));"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2
    own = DirectorySpillStore(tmp_path)
    assert set(tmp_path.iterdir()) == {living.path, own.path}
    assert living.get(kept).equals(ROWS)


def test_12_the_sweep_follows_no_link_and_touches_nothing_of_others(tmp_path: Path) -> None:
    shared, victim = tmp_path / "shared", tmp_path / "victim"
    shared.mkdir()
    victim.mkdir()
    (victim / "file").write_text("precious")
    name = "headrace-spill-" + "0" * 31
    (shared / f"{name}1").symlink_to(victim)
    (shared / f"{name}2").mkdir()
    for lock in ("lock", "LOCK"):
        (shared / f"{name}2" / lock).symlink_to(victim / "file")
    (shared / "spill-evil").mkdir()
    (shared / "spill-evil" / "lock").symlink_to(victim / "file")
    spill_store = DirectorySpillStore(shared)
    assert (victim / "file").read_text() == "precious"
    assert {path.name for path in shared.iterdir()} == {f"{name}1", "spill-evil", spill_store.path.name}
    spill_store.close()


def test_12_what_belongs_to_another_user_is_not_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / ("headrace-spill-" + "0" * 32)
    left.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    _sweep(tmp_path)
    assert left.exists()
    monkeypatch.undo()
    _sweep(tmp_path)
    assert not left.exists()


def test_12_only_its_user_can_read_what_is_spilled(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        spill_store = DirectorySpillStore(tmp_path / "spill")
        handle = spill_store.put(ROWS)
    finally:
        os.umask(before)
    assert [
        path.stat().st_mode & 0o077
        for path in (tmp_path / "spill", spill_store.path, spill_store.path / handle.name)
    ] == [0] * 3


def test_a_bit_that_flips_after_the_first_reading_is_noticed_too(tmp_path: Path) -> None:
    spill_store = DirectorySpillStore(tmp_path)
    handle = spill_store.put(ROWS)
    assert spill_store.get(handle).equals(ROWS)
    path = spill_store.path / handle.name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(SpillError, match="HR-M103"):
        spill_store.get(handle)
