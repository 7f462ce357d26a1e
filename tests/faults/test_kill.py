"""kill -9 at any moment: nothing is lost, nothing is repeated."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.faults.killing import run_with_kills
from tests.runtimes.embedded.pipelines import OUTPUTS, PIPELINES, bags

KILLS = int(os.environ.get("HEADRACE_KILLS", "12"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PIPELINES)
def test_outputs_of_killed_runs_equal_those_of_one_run(name: str, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for root in (whole, killed):
        root.mkdir()
        PIPELINES[name](root)
    Runner(load(whole / "pipeline.toml")).run()
    expected = bags(whole)
    assert all(expected.values())

    def look_and_clear() -> None:
        assert bags(killed) == expected
        for path in killed.iterdir():
            if path.stem in OUTPUTS or path.name == "state":
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    run_with_kills(killed / "pipeline.toml", -(-KILLS // len(PIPELINES)), KILLS, look_and_clear)
