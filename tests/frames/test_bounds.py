"""`headrace.bounds` and `headrace bounds`: what bounds cost, of tables, files, recorded runs and statuses."""

from __future__ import annotations

import datetime as dt
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner, Result

import headrace
from headrace.cli.app import app
from headrace.errors import HeadraceError

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


ROWS = [(0, 0, 10.0), (20, 21, 20.0), (5, 30, 30.0), (70, 71, 40.0), (50, 75, 50.0), (200, 201, 60.0)]
"""Rows as (seconds of the time, of the arrival, value): two are behind, by 15 and by 20 seconds."""


def table() -> pa.Table:
    times, arrivals, values = zip(*ROWS, strict=True)
    return pa.table({"at": [at(s) for s in times], "came": [at(s) for s in arrivals], "v": list(values)})


def cli(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["bounds", *map(str, words)])


def test_each_bound_is_a_row_with_its_cost() -> None:
    found = headrace.bounds(
        table(), "at", arrival="came", value="v", bounds=["1 s", "16 s", "21 s"], window="1 minute"
    )
    assert [cost.late for cost in found] == [2, 1, 0]
    costs = found.table().to_pylist()
    assert [each["bound"] for each in costs] == [1_000_000, 16_000_000, 21_000_000]
    # The first window has 10, 20, 30 and 50; the two that are behind are lost under the first bound.
    assert costs[0]["count_error_worst"] == pytest.approx(0.5)
    assert costs[0]["sum_error_worst"] == pytest.approx(80 / 110)
    assert costs[0]["avg_error_worst"] == pytest.approx(abs(15 - 27.5) / 27.5)
    assert costs[2]["count_error"] == costs[2]["sum_error"] == costs[2]["avg_error"] == 0
    assert found.least == {0.0: 20_000_001, 0.001: 20_000_001, 0.01: 20_000_001}
    assert "20 s loses no row" in str(found)


def test_the_delay_is_when_the_answer_comes_after_its_window() -> None:
    found = headrace.bounds(table(), "at", arrival="came", bounds="11 s")
    # 60 s is reached by the row of 70 s only with a bound below 10 s; the row of 200 s comes at 201 s.
    assert found.costs[0].delay == pytest.approx((201 - 60 + 201 - 120) / 2 * 1e6, abs=2)
    by_clock = headrace.bounds(table(), "at", arrival="came", bounds="30 s", against="clock")
    assert by_clock.costs[0].late == 0
    assert by_clock.costs[0].delay == pytest.approx(30e6)


def test_numbers_are_times_if_a_unit_says_so_and_sequence_numbers_otherwise() -> None:
    rows = {"t": [0, 20_000, 5_000, 70_000]}
    assert headrace.bounds(rows, "t", unit="ms", bounds="16 s").costs[0].late == 0
    assert headrace.bounds(rows, "t", unit="ms").ticks_per_second == 1_000_000
    plain = headrace.bounds(rows, "t", bounds=15_000)
    assert (plain.ticks_per_second, plain.costs[0].late) == (None, 1)
    assert "ticks" in str(plain)


def test_the_plot_is_valid_and_has_a_point_for_each_bound() -> None:
    found = headrace.bounds(table(), "at", arrival="came", value="v", bounds=["1 s", "16 s", "21 s"])
    drawn = ET.fromstring(found.svg())
    circles = [each for each in drawn.iter() if each.tag.endswith("circle")]
    assert len(circles) == 3 + 2 * 3 + 3 * 3
    assert found._repr_html_().startswith("<div><svg")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"time": "at", "value": "w"}, "HR-I084"),
        ({"time": "at", "value": "at"}, "HR-I084"),
        ({"time": "at", "arrival": "v"}, "HR-I079"),
        ({"time": "at", "unit": "weeks"}, "HR-T060"),
        ({"time": "at", "late": "never"}, "HR-T060"),
        ({"time": "at", "bounds": "soon"}, "HR-T051"),
        ({"time": "at", "stream": "other"}, "HR-I083"),
    ],
)
def test_wrong_questions_have_a_code(given: dict[str, Any], code: str) -> None:
    with pytest.raises(HeadraceError) as told:
        headrace.bounds(table(), **given)
    assert told.value.code == code


# --- the command, recorded runs, and the histogram of a run --------------------------------------------


def test_the_command_prints_a_table_and_writes_a_plot(tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    pa.csv.write_csv(table(), data)
    said = cli(
        data,
        "--time",
        "at",
        "--arrival",
        "came",
        "--value",
        "v",
        "--bound",
        "16 s",
        "--svg",
        tmp_path / "b.svg",
    )
    assert said.exit_code == 0, said.output
    assert "16 s" in said.stdout
    assert "rows: 6 rows, bounds behind the newest row, windows of 60 s" in said.stdout
    assert (tmp_path / "b.svg").read_text().startswith("<svg")
    plain = json.loads(cli(data, "--time", "at", "--arrival", "came", "--bound", "16 s", "--json").stdout)
    assert [(each["bound"], each["late"]) for each in plain[0]["bounds"]] == [(16_000_000, 1)]
    assert cli(data, "--time", "when").exit_code == 1


PIPELINE = """
[pipeline]
name = "p"
runtime = "embedded"
checkpoint = "state"
record = "record"

[streams.rows]
source = "rows.csv"
schema = "at TIMESTAMP, came TIMESTAMP, v DOUBLE"
time = "at"
arrival = "came"
bounds = { disorder = "17 s" }

[[queries]]
name = "q"
sql = "SELECT count(*) AS n FROM rows [RANGE 1 MINUTE SLIDE 1 MINUTE]"
sink = "q.jsonl"
"""


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    pa.csv.write_csv(table(), tmp_path / "rows.csv")
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(PIPELINE)
    done = CliRunner().invoke(app, ["run", str(pipeline), "--quiet"])
    assert done.exit_code == 0, done.output
    return pipeline


def test_a_recorded_run_costs_what_its_rows_cost(ran: Path) -> None:
    of_rows = headrace.bounds(table(), "at", arrival="came", value="v")
    recorded = headrace.bounds(ran.parent / "record", value="v")
    assert recorded.name == "rows"
    assert recorded.costs == of_rows.costs
    assert recorded.least == of_rows.least


def test_a_run_keeps_a_histogram_that_bounds_are_judged_by(ran: Path) -> None:
    found = headrace.bounds(ran, bounds=["1 s", "17 s", "23 s"])
    assert [cost.late for cost in found] == [2, 1, 0]
    assert found.least[0.0] == pytest.approx(20e6, rel=0.13)
    said = cli(ran)
    assert said.exit_code == 0, said.output
    assert "rows: 6 rows of a run" in said.stdout
    assert cli(ran, "--stream", "row").exit_code == 1
