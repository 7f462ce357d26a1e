"""Two generations of checkpoints: no file belongs to both, and a run goes on from either, exactly."""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk, tuning
from headrace.disk import DirectoryLock, is_held
from headrace.engine import Engine
from headrace.errors import HeadraceError
from headrace.flow.batch import Batch
from headrace.pipeline import load
from headrace.plan.nodes.core import Aggregate, AggregateCall, IStream, Source, Window
from headrace.plan.nodes.windows import Unbounded
from headrace.runtimes.embedded import Runner
from headrace.runtimes.embedded.checkpoint import Store
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.engine.driving import engine_for, load_tables
from tests.runtimes.embedded.pipelines import PIPELINES, bags, sliding
from tests.strategies.plans import Case, cases
from tests.strategies.runs import Run, runs


class Hasty(disk.Disk):
    """A disk that does not wait for what it writes."""

    def flush(self, file: BinaryIO) -> None:
        file.flush()

    def sync(self, path: Path) -> None:
        return None


def restarted(place: Path, case: Case, run: Run) -> tuple[Store, Engine]:
    """What a new process has."""
    kept = Store(place)
    kept.open()
    engine = engine_for(case, run)
    (newest, *_) = kept.candidates()
    kept.go_back_to(newest)
    engine.restore(kept.snapshots(newest))
    return kept, engine


def run_with_losses(case: Case, run: Run, losses: list[str], place: Path) -> list[Batch]:
    """The answers of steps with a commit after each; after some there is a restart, or a commit is lost."""
    plain = Run(**{**vars(run), "load": len(run.steps)})
    kept, engine = Store(place), engine_for(case, plain)
    kept.open()
    load_tables(engine, case)
    kept.commit(engine, {})
    answers: list[list[Batch]] = []
    at = 0
    for loss in [*losses, *["none"] * len(run.steps)]:
        if at == len(run.steps):
            break
        step = run.steps[at]
        if step[0] == "push":
            engine.push(step[1], step[2].data, step[2].start)
        elif step[0] == "advance":
            engine.advance(step[1])
        else:
            engine.streams.end(step[1])
        answers.append(engine.drain("q"))
        at += 1
        kept.commit(engine, {})
        kept.sweep()
        if loss == "none":
            continue
        kept.close()
        if loss == "newest":
            max(place.glob("commit-*")).unlink()
            at -= 1
            answers.pop()
        kept, engine = restarted(place, case, plain)
    kept.close()
    return [batch for each in answers for batch in each]


@given(st.data())
def test_a_run_goes_on_from_either_generation_exactly(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = data.draw(runs(case))
    losses = data.draw(st.lists(st.sampled_from(["none", "none", "none", "restart", "newest"]), max_size=12))
    longest = data.draw(st.integers(1, 3))
    with (
        TemporaryDirectory() as place,
        disk.using(Hasty()),
        tuning.using(checkpoint_chain=longest),
    ):
        answers = run_with_losses(case, run, losses, Path(place) / "state")
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)


def named(record: Path) -> set[str]:
    return {state[0] for state in json.loads(record.read_bytes().partition(b"\n")[2])["states"]}


@pytest.mark.parametrize("steps", [1, 2, 3, 25, 80])
def test_16_no_file_is_needed_by_both_generations(tmp_path: Path, steps: int) -> None:
    pipeline = sliding(tmp_path, rows=6_000)
    Runner(load(pipeline)).run(max_steps=steps)
    older, newer = sorted((tmp_path / "state").glob("commit-*"))
    assert named(older) & named(newer) == set()
    kept = {path.name for path in (tmp_path / "state").glob("state-*")}
    assert kept == named(older) | named(newer)


@pytest.mark.parametrize("name", PIPELINES)
def test_16_one_flipped_bit_anywhere_in_a_state_leaves_a_checkpoint(name: str, tmp_path: Path) -> None:
    """Whichever file it is in: the base of a chain, or an increment that later ones rest on."""
    (tmp_path / "whole").mkdir()
    Runner(load(PIPELINES[name](tmp_path / "whole", rows=600))).run()
    expected = bags(tmp_path / "whole")
    begun = tmp_path / "begun"
    begun.mkdir()
    Runner(load(PIPELINES[name](begun, rows=600))).run(max_steps=90 if name == "replayed" else 9)
    shutil.copytree(begun, tmp_path / "kept")
    files = sorted(path.name for path in (begun / "state").glob("state-*"))
    rng = random.Random(16)
    for file in (files[0], files[-1], *rng.sample(files, 3)):
        shutil.rmtree(begun)
        shutil.copytree(tmp_path / "kept", begun)
        data = bytearray((begun / "state" / file).read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (begun / "state" / file).write_bytes(data)
        assert Runner(load(begun / "pipeline.toml")).run().state == "finished"
        assert bags(begun) == expected, file


def test_after_a_damaged_generation_there_are_two_again(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=6_000)
    Runner(load(pipeline)).run(max_steps=20)
    older, newer = sorted((tmp_path / "state").glob("commit-*"))
    for victim in (min(named(older)), min(named(newer))):
        path = tmp_path / "state" / victim
        path.write_bytes(path.read_bytes()[:-1])
        messages = Runner(load(pipeline)).run(max_steps=2).progress.messages
        assert any("checkpoint is" in message for message in messages)
        older, newer = sorted((tmp_path / "state").glob("commit-*"))
        assert named(older) & named(newer) == set()
        assert victim not in named(older) | named(newer)


def test_what_the_second_generation_costs_follows_the_change(tmp_path: Path) -> None:
    """Of a large state that hardly changes, a commit writes little: its changes twice, and no more."""
    schema = pa.schema([("k", pa.int64())])
    groups = Aggregate(Window(Source("s", schema), Unbounded()), ("k",), (AggregateCall("n", "count"),))
    engine, kept = Engine(), Store(tmp_path / "state")
    engine.add("q", IStream(groups))
    kept.open()

    def push(keys: list[int], at: int) -> None:
        engine.push("s", pa.RecordBatch.from_pydict({"k": keys}), [at] * len(keys))
        engine.streams.heartbeat("s", at)
        engine.run()
        engine.drain("q")

    push(list(range(100_000)), 0)
    sizes = []
    for at in range(1, 9):
        before = kept.bytes_written
        kept.commit(engine, {})
        sizes.append(kept.bytes_written - before)
        push([at], at)
    assert min(sizes[:2]) > 1_000_000, "each chain has a full state of its own"
    assert max(sizes[3:]) < 20_000, sizes
    kept.close()


# --- the lock


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Store]:
    kept = Store(tmp_path / "state")
    kept.open()
    engine = Engine()
    kept.commit(engine, {})
    yield kept
    kept.close()


def test_20_deleting_the_file_lock_does_not_let_a_second_run_in(running: Store) -> None:
    (running.path / "LOCK").unlink()
    with pytest.raises(HeadraceError, match="HR-D001"):
        Store(running.path).open()
    running.commit(Engine(), {})


def test_20_a_run_whose_directory_was_replaced_writes_nothing_more(running: Store) -> None:
    shutil.rmtree(running.path)
    other = Store(running.path)
    other.open()
    other.commit(Engine(), {})
    before = {path.name: path.read_bytes() for path in running.path.iterdir()}
    with pytest.raises(HeadraceError, match="HR-D006"):
        running.commit(Engine(), {})
    assert {path.name: path.read_bytes() for path in running.path.iterdir()} == before
    other.close()


def test_20_where_directories_cannot_be_locked_a_deleted_lock_file_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: the lock is on a file, which the first run misses before it writes again."""
    real = fcntl.flock

    def flock(descriptor: int, kind: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(9, "Bad file descriptor")
        real(descriptor, kind)

    monkeypatch.setattr(fcntl, "flock", flock)
    first = Store(tmp_path / "state")
    first.open()
    with pytest.raises(HeadraceError, match=r"HR-D001.*process \d+"):
        Store(tmp_path / "state").open()
    (tmp_path / "state" / "LOCK").unlink()
    second = Store(tmp_path / "state")
    second.open()
    second.commit(Engine(), {})
    with pytest.raises(HeadraceError, match="HR-D006"):
        first.commit(Engine(), {})
    first.close()
    second.close()


def test_a_lock_is_seen_from_outside_and_goes_with_its_holder(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    assert lock.take()
    assert is_held(tmp_path)
    lock.release()
    assert not is_held(tmp_path)


def test_a_checkpoint_is_private(tmp_path: Path) -> None:
    more = 'record = "recorded"'
    pipeline = sliding(tmp_path, rows=300, more=more)
    before = os.umask(0o022)
    try:
        Runner(load(pipeline)).run()
    finally:
        os.umask(before)
    for place in ("state", "recorded"):
        assert (tmp_path / place).stat().st_mode & 0o777 == 0o700
        for path in (tmp_path / place).iterdir():
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_name_of_the_first_state_is_safe_before_its_record(tmp_path: Path) -> None:
    """A loss of power left the record and not its state, and there was no checkpoint before it to serve."""
    done: list[str] = []

    class Watched(disk.Disk):
        def sync(self, path: Path) -> None:
            done.append(f"sync {path.name}")
            super().sync(path)

        def replace(self, path: Path, by: Path) -> None:
            done.append(by.name)
            super().replace(path, by)

    kept = Store(tmp_path / "state")
    kept.open()
    with mock.patch.object(disk, "current", Watched()):
        kept.commit(Engine(), {})
    kept.close()
    assert done == ["state-00000000.bin", "sync state", "commit-00000000", "sync state"]
