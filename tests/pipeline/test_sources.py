"""`sources` in a pipeline file: what it means, runs over restarts with other sources, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.check import describe
from headrace.errors import PipelineError
from headrace.pipeline import Pipeline, load, parse
from headrace.runtimes.embedded import Progress, Runner
from headrace.time.sources import SourceGroups

TEXT = """
[pipeline]
name = "readings"
runtime = "embedded"
checkpoint = "state"

[streams.readings]
source = {{ path = "in/*.jsonl" }}
schema = "device STRING, n BIGINT, at BIGINT, came BIGINT"
time = {{ column = "at", unit = "tick" }}
arrival = "came"
{bounds}

[[queries]]
name = "counted"
sql = "SELECT device, count(*) AS n, window_end FROM readings [RANGE 10 SLIDE 10] GROUP BY device"
sink = "out.jsonl"
late = "late.jsonl"
"""
GROUPED = 'bounds = { disorder = 5 }\nsources = { column = "device", groups = 50, choose = false }'
PLAIN = "bounds = { disorder = 5 }"


def rows(begin: int, end: int) -> list[dict[str, Any]]:
    """Two devices; the clock of one is 60 ticks behind."""
    return [
        {"device": device, "n": now, "at": now - lag, "came": now}
        for now in range(begin, end)
        for device, lag in (("fast", 0), ("slow", 60))
    ]


def run(folder: Path, bounds: str, number: int, begin: int, end: int) -> list[dict[str, Any]]:
    """Run the pipeline over one more file; its late rows so far."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / f"{number}.jsonl").write_text("\n".join(map(json.dumps, rows(begin, end))))
    (folder / "p.toml").write_text(TEXT.format(bounds=bounds))
    Runner(load(folder / "p.toml")).run()
    late = folder / "late.jsonl"
    return [json.loads(line) for line in late.read_text().splitlines()] if late.exists() else []


def run_until_quiet(pipeline: Pipeline) -> Progress:
    """Run until no source has more rows for now."""
    runner = Runner(pipeline, wait=lambda _: runner.stop())
    return runner.run().progress


def counted(folder: Path) -> dict[str, int]:
    found = {"fast": 0, "slow": 0}
    for line in (folder / "out.jsonl").read_text().splitlines():
        row = json.loads(line)
        found[row["device"]] += row["n"]
    return found


def test_a_slow_device_is_late_in_a_plain_stream_and_not_in_its_own_group(tmp_path: Path) -> None:
    for name, bounds, late in (("grouped", GROUPED, 0), ("plain", PLAIN, 99)):
        folder = tmp_path / name
        folder.mkdir()
        assert len(run(folder, bounds, 1, 100, 200)) == late
        assert counted(folder) == {"fast": 100, "slow": 100 - late}


@pytest.mark.parametrize(
    "changed",
    [
        PLAIN,
        GROUPED.replace("50", "7"),
        GROUPED.replace("device", "n"),
        GROUPED.replace("= 5", "= 50"),
        'bounds = { estimate = true }\nsources = "device"',
    ],
    ids=["none", "groups", "column", "bound", "estimate"],
)
@pytest.mark.parametrize("back", [False, True])
def test_a_restart_may_change_the_sources(tmp_path: Path, changed: str, back: bool) -> None:
    """Promises that were made stay; every row is counted or late, once."""
    first, second = (changed, GROUPED) if back else (GROUPED, changed)
    (tmp_path / "in").mkdir()
    for number, (bounds, begin) in enumerate(((first, 100), (second, 150))):
        still_open = 'path = "in/*.jsonl", follow = true' if number == 0 else 'path = "in/*.jsonl"'
        text = TEXT.replace('path = "in/*.jsonl"', still_open)
        written = "".join(json.dumps(row) + "\n" for row in rows(begin, begin + 50))
        (tmp_path / "in" / f"{number}.jsonl").write_text(written)
        (tmp_path / "p.toml").write_text(text.format(bounds=bounds))
        progress = run_until_quiet(load(tmp_path / "p.toml")).streams["readings"]
        assert 100 * number + 50 < progress.rows_in <= 100 * number + 100
        assert progress.rows_in == progress.rows_processed + progress.rows_late
    assert progress.rows_in == 200
    late = (tmp_path / "late.jsonl").read_text().splitlines()
    assert sum(counted(tmp_path).values()) + len(late) == 200
    assert counted(tmp_path)["fast"] >= 99


def test_the_file_says_what_the_engine_is_told() -> None:
    bounds = 'bounds = { disorder = 5, latency = 9 }\nsources = { column = "device", groups = 7, idle = 30 }'
    pipeline = parse(TEXT.format(bounds=bounds))
    promise = pipeline.streams["readings"].lateness.by_source()
    assert promise is not None
    assert (promise.by, promise.disorder, promise.latency) == (SourceGroups("device", 7, 30), 6, 9)
    assert pipeline.heartbeats() is None
    assert "disorder 5, latency 9, for each of 7 groups of sources by device, idle after 30" in describe(
        pipeline
    )
    short = parse(TEXT.format(bounds=PLAIN + '\nsources = "device"')).streams["readings"].lateness.sources
    assert short == SourceGroups("device")


SKEW = '[skew]\ntimeout = 9\nbounds = [{ of = "readings", on = "readings", pairs = [[0, 3]] }]\n'


@pytest.mark.parametrize(
    ("bounds", "code", "line", "hint"),
    [
        (PLAIN + '\nsources = { column = "devise" }', "HR-F150", 13, "did you mean device?"),
        (PLAIN + '\nsources = { column = "device", group = 3 }', "HR-F003", 13, "did you mean groups?"),
        (PLAIN + '\nsources = { column = "device", groups = 0 }', "HR-F004", 13, ""),
        (PLAIN + '\nsources = { column = "device", idle = "soon" }', "HR-F004", 13, ""),
        (PLAIN + "\nsources = { groups = 3 }", "HR-F005", 13, ""),
        ('bounds = { latency = 5 }\nsources = "device"', "HR-F150", 13, "add disorder or estimate"),
        ('bounds = { slack = 5 }\nsources = "device"', "HR-F150", 13, "remove slack"),
        (PLAIN + '\nsources = "device"\n' + SKEW, "HR-F151", 16, "remove the stream from [skew]"),
    ],
)
def test_mistakes_name_the_line_and_have_a_hint(bounds: str, code: str, line: int, hint: str) -> None:
    with pytest.raises(PipelineError) as error:
        parse(TEXT.format(bounds=bounds))
    assert error.value.code == code
    assert f"line {line}" in error.value.place
    assert hint in error.value.hint


def test_streams_without_late_rows_take_no_sources() -> None:
    text = TEXT.replace('{{ column = "at", unit = "tick" }}', '"internal"').replace('arrival = "came"', "")
    with pytest.raises(PipelineError, match="internal time has no late rows"):
        parse(text.format(bounds='sources = "device"'))
