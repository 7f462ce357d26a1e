"""Rows that are staged until their commit is decided reach their target once, wherever the run stops."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.staged import StagedSink
from headrace.errors import ConnectorError
from headrace.schema import Schema

SCHEMA = pa.schema([("k", pa.int64())])


class Killed(Exception):
    """The process ends here."""


@dataclass
class MemoryTarget:
    """A database in memory that can die before or after a transaction."""

    rows: list[int] = field(default_factory=list)
    commits: dict[str, int] = field(default_factory=dict)
    place: str = "memory"
    dies: str = ""

    def begin(self) -> None:
        return None

    def open(self, schema: Schema, run: str) -> None:
        self.commits.setdefault(run, 0)

    def last(self, run: str) -> int | None:
        return self.commits[run]

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        if self.dies == "before":
            raise Killed
        self.rows += rows.column(0).to_pylist()
        self.commits[run] = number
        if self.dies == "after":
            raise Killed

    def close(self) -> None:
        return None


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], schema=SCHEMA)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "prepare", "before", "after"])), max_size=8)
)
def test_each_row_arrives_once_wherever_a_run_is_killed(
    tmp_path_factory: pytest.TempPathFactory, commits: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("staged") / "q.sink"
    target = MemoryTarget()
    sink = StagedSink(target, folder)
    commit: dict[str, Any] = sink.begin()
    sink.open(SCHEMA, commit)
    done, expected = 0, list[int]()
    for size, dies in commits:
        rows = list(range(done, done + size))
        target.dies = dies
        try:
            for each in rows:
                sink.write(batch(each))
            prepared = sink.prepare()
            if dies == "prepare":
                raise Killed
            commit = prepared  # the checkpoint is written
            expected, done = expected + rows, done + size
            sink.publish(commit)
        except Killed:
            sink.close()
            target.dies = ""
            sink = StagedSink(target, folder)
            sink.open(SCHEMA, commit)
    assert target.rows == expected
    assert len(list(folder.iterdir())) <= 2


def test_without_checkpoints_rows_are_staged_in_memory() -> None:
    target = MemoryTarget()
    sink = StagedSink(target, None)
    sink.open(SCHEMA, sink.begin())
    sink.write(batch(1, 2))
    assert target.rows == []
    sink.publish(sink.prepare())
    sink.publish(sink.prepare())
    assert target.rows == [1, 2]


def test_a_target_that_is_ahead_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    target = MemoryTarget()
    sink = StagedSink(target, tmp_path / "s")
    begun = sink.begin()
    sink.open(SCHEMA, begun)
    sink.write(batch(1))
    sink.publish(sink.prepare())
    with pytest.raises(ConnectorError, match="HR-C015"):
        StagedSink(target, tmp_path / "s").open(SCHEMA, begun)


def test_a_target_that_lost_commits_is_refused(tmp_path: Path) -> None:
    sink = StagedSink(MemoryTarget(), tmp_path / "s")
    commit = sink.begin()
    sink.open(SCHEMA, commit)
    for value in (1, 2, 3):
        sink.write(batch(value))
        commit = sink.prepare()
        sink.publish(commit)
    with pytest.raises(ConnectorError, match="HR-C011"):
        StagedSink(MemoryTarget(), tmp_path / "s").open(SCHEMA, commit)


def test_a_commit_that_was_applied_is_not_repeated_after_a_clean_stop(tmp_path: Path) -> None:
    class Forgetful(MemoryTarget):
        def last(self, run: str) -> int | None:
            return None

    target = Forgetful()
    sink = StagedSink(target, tmp_path / "s")
    sink.open(SCHEMA, sink.begin())
    sink.write(batch(1))
    commit = sink.prepare()
    sink.publish(commit)
    sink.close()
    StagedSink(target, tmp_path / "s").open(SCHEMA, commit)
    assert target.rows == [1]


def test_damaged_staged_rows_are_an_error(tmp_path: Path) -> None:
    sink = StagedSink(MemoryTarget(), tmp_path / "s")
    sink.open(SCHEMA, sink.begin())
    sink.write(batch(1))
    commit = sink.prepare()
    (tmp_path / "s" / "00000001.arrow").write_bytes(b"damaged")
    with pytest.raises(ConnectorError, match="HR-C011"):
        sink.publish(commit)
