"""`headrace why --answers`: the answers that wait in the newest checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.app import app
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from headrace.time.clock import ManualClock

TEXT = """
[pipeline]
name = "sold"
runtime = "embedded"
checkpoint = "state"
clock = "system"

[streams.sales]
source = { path = "sales.jsonl", follow = true }
schema = "item BIGINT, at TIMESTAMP"
time = "at"
bounds = { disorder = "5 s", latency = "1 minute" }

[[queries]]
name = "per_item"
sql = "SELECT item, count(*) AS n FROM sales [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
sink = "per_item.jsonl"
"""
BEGIN = 1_767_268_800_000_000
"""12:00 on the first of January 2026."""


def headrace(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline that was stopped at 12:00:49, when it had rows up to 12:00:40."""
    rows = [{"item": item, "at": f"2026-01-01T12:00:{at:02}Z"} for item, at in ((3, 10), (3, 20), (5, 40))]
    (tmp_path / "sales.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "pipeline.toml").write_text(TEXT)
    return tmp_path / "pipeline.toml"


def stopped(file: Path) -> None:
    clock = ManualClock(BEGIN + 49_000_000)

    def wait(_: float) -> None:
        clock.advance(1_000_000)
        runner.stop()

    runner = Runner(load(file), clock=clock, wait=wait)
    runner.run()


def test_it_shows_values_so_far_and_what_could_change_them(file: Path) -> None:
    stopped(file)
    assert (file.parent / "per_item.jsonl").read_text() == "", "nothing is final"
    said = headrace("why", "--answers", file)
    assert said.exit_code == 0, said.output
    assert said.stdout.splitlines() == [
        "Query per_item: 2 answers are not final in the checkpoint of 2026-01-01 12:00:49.000Z.",
        "  at 2026-01-01 12:00:59.999Z; could be changed by sales until the clock says 2026-01-01 "
        "12:01:59.999Z or it has a row later than 2026-01-01 12:01:04.999Z",
        '    {"item": 3, "n": 2}',
        '    {"item": 5, "n": 1}',
    ]
    shorter = headrace("why", "--answers", "--most", "1", file).stdout.splitlines()
    assert shorter[2:] == ['    {"item": 3, "n": 2}', "  and 1 more"]


def test_as_data_and_without_changing_anything(file: Path) -> None:
    stopped(file)
    before = {path.name: path.read_bytes() for path in (file.parent / "state").iterdir() if path.is_file()}
    found = json.loads(headrace("why", "--answers", "--json", file).stdout)
    assert found["now"] == BEGIN + 49_000_000
    assert [(each["query"], each["row"]) for each in found["answers"]] == [
        ("per_item", {"item": 3, "n": 2}),
        ("per_item", {"item": 5, "n": 1}),
    ]
    (stream,) = found["answers"][0]["streams"]
    assert stream["stream"] == "sales"
    assert stream["by_clock"] == BEGIN + 119_999_999
    after = {path.name: path.read_bytes() for path in (file.parent / "state").iterdir() if path.is_file()}
    assert after == before


def test_before_a_run_and_on_spark_it_says_why_not(file: Path) -> None:
    said = headrace("why", "--answers", file)
    assert (said.exit_code, "HR-F020" in said.stderr) == (1, True)
    file.write_text(TEXT.replace('"embedded"', '"spark"').replace('clock = "system"\n', ""))
    said = headrace("why", "--answers", file)
    assert (said.exit_code, "HR-F164" in said.stderr) == (1, True)
