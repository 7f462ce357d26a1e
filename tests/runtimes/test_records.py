"""What `logging` gets of a run: the same records on both runtimes, as text and as fields."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.engine.reasons import Reason
from headrace.runtimes.records import LOG, JsonLines, RunRecords, ended, telling
from headrace.runtimes.status import QueryStatus, Status, StreamStatus, Wait

AT = 1_700_000_000_000_000
SECOND = 1_000_000


@pytest.fixture
def log() -> Iterator[list[dict[str, Any]]]:
    found: list[dict[str, Any]] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(JsonLines().format(record)))

    handler = Keep()
    LOG.addHandler(handler)
    LOG.setLevel(logging.DEBUG)
    yield found
    LOG.removeHandler(handler)
    LOG.setLevel(logging.NOTSET)


def status(**changed: Any) -> Status:
    silent = StreamStatus(
        5, 5, 0, 0, 0.0, AT, 40 * SECOND, False, 0, 0, arrived=AT, moved=AT, disorder=SECOND, source="clicks"
    )
    known: dict[str, Any] = {
        "state": "running",
        "streams": {"buys": silent},
        "queries": {"joined": QueryStatus(1, 1.0, 10, ("buys",))},
        "written": 100.0,
        "clock_moved": 100.0,
        "begun": AT - 60 * SECOND,
    }
    return Status("shop", clock="system", now=AT + 40 * SECOND, elapsed=40.0, **{**known, **changed})


def test_only_what_is_new_is_told(log: list[dict[str, Any]]) -> None:
    records = RunRecords()
    late = Reason("late", "buys", 3, worst=5 * SECOND)
    records.see(status())
    records.see(status(reasons=(late,)))
    records.see(status(reasons=(replace(late, rows=29),)))
    records.see(status(reasons=(replace(late, rows=30),), messages=("a file was truncated",)))
    records.see(status(reasons=(replace(late, rows=30),), messages=("a file was truncated",), checkpoints=1))
    records.see(status(state="failed", error="[HR-C006] the disk", messages=("a file was truncated",)))
    told = [(each["level"], each["event"], each["message"]) for each in log]
    assert told == [
        ("INFO", "state", "shop: is running"),
        ("WARNING", "late", "shop: 3 rows of buys late by up to 5 s"),
        ("WARNING", "late", "shop: 30 rows of buys late by up to 5 s"),
        ("INFO", "note", "shop: a file was truncated"),
        ("DEBUG", "checkpoint", "shop: checkpoint 1"),
        ("ERROR", "state", "shop: is failed: [HR-C006] the disk"),
    ]
    assert (log[1]["stream"], log[1]["rows"], log[1]["runtime"]) == ("buys", 3, "embedded")
    assert log[0]["at"].endswith("Z")


def test_a_wait_is_told_when_it_begins_and_when_it_ends(log: list[dict[str, Any]]) -> None:
    records = RunRecords()
    wait = Wait("joined", "join1", ("buys",), AT + SECOND, AT, 12, 800)
    records.see(status())
    for _ in range(2):
        records.see(status(waiting=(wait,)))
    records.see(status())
    events = [(each["event"], each.get("cause"), each.get("queries")) for each in log[1:]]
    assert events == [
        ("waiting", "bound not proven", ["joined"]),
        ("resolved", "bound not proven", ["joined"]),
    ]
    assert "Query joined has waited" in log[1]["message"]


def test_nothing_is_made_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LOG, "propagate", False)  # pytest has handlers of its own above
    records = RunRecords()
    records.see(status())
    ended(status())
    assert telling(None) is None
    assert records._before is None


def test_a_run_of_the_command_line_adds_lines_of_json(tmp_path: Path) -> None:
    rows = tmp_path / "bids.csv"
    rows.write_text("item,at\nlamp,2026-01-01T00:00:00Z\ndesk,2026-01-01T00:00:01Z\ndesk,a,b\n")
    made = CliRunner().invoke(app, ["init", str(tmp_path), "--from", str(rows)])
    assert made.exit_code == 0, made.output
    log, file = tmp_path / "run.jsonl", str(tmp_path / "pipeline.toml")
    ran = CliRunner().invoke(app, ["run", file, "--quiet", "--log", str(log)])
    assert ran.exit_code == 0, ran.output
    found = [json.loads(line) for line in log.read_text().splitlines()]
    assert [each["code"] for each in found if each["event"] == "rejected"] == ["HR-R105"]
    assert "finished" in [each["state"] for each in found if each["event"] == "state"]
    assert LOG.handlers == []
    refused = CliRunner().invoke(app, ["run", file, "--log", str(tmp_path / "no" / "run.jsonl")])
    assert refused.exit_code == 1
    assert "the log cannot be written" in refused.stderr
