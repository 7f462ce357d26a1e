"""A benchmark's file holds one run, and a broken bound is never called ok."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks import report
from benchmarks.report import Result


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Result(name="a", value=0.5, unit="×", floor=0.5), "ok"),
        (Result(name="a", value=0.49, unit="×", floor=0.5), "BELOW FLOOR"),
        (Result(name="a", value=1.25, unit="×", ceiling=1.25), "ok"),
        (Result(name="a", value=1.26, unit="×", ceiling=1.25), "ABOVE CEILING"),
        (Result(name="a", value=math.nan, unit="×", floor=0.5), "BELOW FLOOR"),
        (Result(name="a", value=math.nan, unit="×", ceiling=0.5), "ABOVE CEILING"),
        (Result(name="a", value=7, unit="rows/s"), ""),
    ],
)
def test_verdict(result: Result, verdict: str) -> None:
    assert report.verdict(result) == verdict


def test_a_file_holds_the_last_run_only(tmp_path: Path) -> None:
    path = tmp_path / "out" / "engine.json"
    assert report.write(path, [Result(name="old", value=1, unit="s")])
    assert not report.write(path, [Result(name="new", value=1, unit="s", floor=2)])
    run = json.loads(path.read_text())
    assert set(run) == {"machine", "versions", "results"}
    assert run["results"] == [{"name": "new", "value": 1, "unit": "s", "floor": 2}]
    assert run["versions"]["pyarrow"]
    assert run["machine"]["cores"] >= 1
    assert [p.name for p in path.parent.iterdir()] == ["engine.json"]


def test_a_name_is_used_once(tmp_path: Path) -> None:
    twice = [Result(name="a", value=1, unit="s"), Result(name="a", value=2, unit="s")]
    with pytest.raises(ValueError, match="twice"):
        report.write(tmp_path / "x.json", twice)


def test_the_summary_fails_when_any_file_breaks_a_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report.main(tmp_path) == 0
    report.write(tmp_path / "a.json", [Result(name="slow", value=1, unit="×", floor=2)])
    report.write(tmp_path / "b.json", [Result(name="fine", value=3, unit="×", floor=2)])
    capsys.readouterr()
    assert report.main(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "a.json" in printed
    assert "BELOW FLOOR" in printed
    assert "b.json" in printed
