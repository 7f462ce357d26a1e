"""A recorded run gives the same bytes when it is run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner, replay
from tests.runtimes.embedded.pipelines import OUTPUTS, PIPELINES


def contents(root: Path) -> dict[str, bytes]:
    files = [path for top in root.iterdir() if top.stem in OUTPUTS for path in [top, *top.rglob("*")]]
    return {str(path.relative_to(root)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("name", PIPELINES)
def test_a_replay_is_equal_byte_for_byte(name: str, tmp_path: Path) -> None:
    pipeline = PIPELINES[name](tmp_path, rows=900, more='record = "record"')
    Runner(load(pipeline)).run()
    result = replay(tmp_path / "record", tmp_path / "again")
    assert result.state == "finished"
    first = contents(tmp_path)
    assert len(first) >= 2
    assert contents(tmp_path / "again") == first


def test_a_run_that_was_stopped_and_went_on_is_recorded_as_one(tmp_path: Path) -> None:
    pipeline = PIPELINES["sliding"](tmp_path, rows=900, more='record = "record"')
    for _ in range(4):
        assert Runner(load(pipeline)).run(max_steps=3).state == "stopped"
    assert Runner(load(pipeline)).run().state == "finished"
    replay(tmp_path / "record", tmp_path / "again")
    first, again = contents(tmp_path), contents(tmp_path / "again")
    assert first.keys() == again.keys()
    for name, data in first.items():
        assert sorted(again[name].splitlines()) == sorted(data.splitlines())


def test_a_directory_without_a_record_says_so(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="HR-D010"):
        replay(tmp_path, tmp_path / "again")
