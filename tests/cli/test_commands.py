"""The command line: what each command says, and the exit codes that scripts go by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.app import app
from headrace.cli.view import NOTHING_USED
from headrace.engine.reasons import Reason
from tests.runtimes.embedded.pipelines import bags, sliding


def headrace(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_what_init_writes_runs_and_goes_on(tmp_path: Path) -> None:
    assert headrace("init", tmp_path / "new").exit_code == 0
    pipeline = tmp_path / "new" / "pipeline.toml"
    pipeline.write_text(pipeline.read_text().replace("200_000", "20_000"))
    assert headrace("init", tmp_path / "new").exit_code == 1
    assert headrace("check", pipeline).exit_code == 0
    ran = headrace("run", pipeline)
    assert ran.exit_code == 0, ran.output
    assert "auction is finished" in ran.stdout
    assert "query highest" in ran.stdout
    assert "rows/s" not in ran.stdout
    answers = (tmp_path / "new" / "highest.jsonl").read_text().splitlines()
    assert sum(json.loads(line)["bids"] for line in answers) > 18_000
    assert headrace("run", pipeline).exit_code == 0
    assert (tmp_path / "new" / "highest.jsonl").read_text().splitlines() == answers


def test_check_says_what_is_wrong_with_its_line(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=10)
    good = headrace("check", pipeline)
    assert "query hot reads bids" in good.stdout
    assert json.loads(headrace("check", pipeline, "--json").stdout)["queries"]["hot"]["reads"] == ["bids"]
    pipeline.write_text(pipeline.read_text().replace("disorder", "disordr"))
    bad = headrace("check", pipeline)
    assert bad.exit_code == 1
    assert "did you mean disorder?" in bad.stderr
    told = json.loads(headrace("check", pipeline, "--json").stdout)
    assert told["error"]["code"] == "HR-F003"


def test_wrong_usage_is_another_code(tmp_path: Path) -> None:
    assert headrace("replay").exit_code == 2
    assert headrace("run", tmp_path / "none.toml").exit_code == 1


def test_run_tells_scripts_in_json(tmp_path: Path) -> None:
    ran = headrace("run", sliding(tmp_path, rows=300), "--json")
    told = json.loads(ran.stdout)
    assert told["state"] == "finished"
    assert told["streams"]["bids"]["rows_in"] == 300


def test_a_runtime_can_be_named_and_must_be_known(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=100)
    pipeline.write_text(pipeline.read_text().replace('runtime = "embedded"', 'runtime = "spark"'))
    refused = headrace("run", pipeline, "--runtime", "sparc")
    assert refused.exit_code == 1
    assert "--runtime embedded or spark" in refused.stderr
    assert headrace("run", pipeline, "--runtime", "embedded", "--quiet").exit_code == 0


def test_a_run_on_spark_is_told_by_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words around a run; tests/spark has the run itself."""

    @dataclass
    class Account:
        rows: dict[str, int]
        answers: int = 7
        late: int = 1
        rejected: int = 2
        reasons: tuple[Reason, ...] = (
            Reason("rejected", "bids", 2, "HR-R102", "price: 'x' is not a number"),
            Reason("late", "bids", 1, worst=2_500_000),
        )

    @dataclass
    class Result:
        state: str
        queries: dict[str, Account]

    class Runner:
        def __init__(self, pipeline: Any, **restart: Any) -> None:
            self.pipeline = pipeline
            assert (restart["reset"], restart["reload"]) == ((), ())

        def run(self, on_progress: Any) -> Result:
            return Result("stopped", {"hot": Account({"bids": 1_234})})

        def stop(self) -> None: ...

    monkeypatch.setattr("headrace.spark.Runner", Runner, raising=False)
    pipeline = sliding(tmp_path, rows=10)
    told = headrace("run", pipeline, "--runtime", "spark").stdout
    assert "sliding is stopped" in told
    assert "query hot: 1,234 rows of bids; 7 answers, 1 late, 2 rejected" in told
    assert "2 rejected with HR-R102; first: price: 'x' is not a number" in told
    assert "1 late by up to 2.5 s" in told
    assert "run it again" in told
    assert "newest" not in told  # nothing is written yet
    (tmp_path / "hot.jsonl").mkdir()
    for batch in range(2):
        (tmp_path / "hot.jsonl" / f"batch={batch}").mkdir()
        (tmp_path / "hot.jsonl" / f"batch={batch}" / "part-0.txt").write_text(f'{{"auction":{batch}}}\n')
    told = headrace("run", pipeline, "--runtime", "spark").stdout
    assert "newest 2 answers of hot:\n    auction" in told
    assert f"hot: answers in {tmp_path / 'hot.jsonl'}" in told
    scripted = json.loads(headrace("run", pipeline, "--runtime", "spark", "--json").stdout)
    assert scripted["queries"]["hot"]["answers"] == 7


@pytest.mark.parametrize("lines", ['{"auction": "x", "price": 1, "at": 1}\n' * 3, "no JSON\n" * 3])
def test_a_run_that_rejects_every_row_says_why_and_ends_with_a_code_of_its_own(
    tmp_path: Path, lines: str
) -> None:
    pipeline = sliding(tmp_path, rows=1)
    (tmp_path / "bids.jsonl").write_text(lines)
    for _ in ("first", "again"):  # the account is of all runs from the first start on
        ran = headrace("run", pipeline, "--quiet")
        assert ran.exit_code == NOTHING_USED
        assert "3 rows in = 0 processed, 0 late, 3 rejected" in ran.stdout
        assert "3 rejected with HR-R10" in ran.stdout
        assert "no row of bids was processed" in ran.stderr
    assert headrace("run", pipeline, "--json").exit_code == NOTHING_USED
    assert "rejected with" in headrace("top", pipeline, "--once").stdout


def test_a_run_that_sets_some_rows_apart_says_why_and_ends_well(tmp_path: Path) -> None:
    ran = headrace("run", sliding(tmp_path, rows=2_000))
    assert ran.exit_code == 0
    assert "rejected with HR-R101; first:" in ran.stdout
    assert "late by up to" in ran.stdout
    told = json.loads(headrace("run", tmp_path / "pipeline.toml", "--json").stdout)
    account = told["streams"]["bids"]
    by_kind = {
        kind: sum(r["rows"] for r in told["reasons"] if r["kind"] == kind) for kind in ("late", "rejected")
    }
    assert by_kind == {"late": account["rows_late"], "rejected": account["rows_rejected"]}
    assert all(by_kind.values())


def test_explain_shows_plan_and_graph(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=10)
    shown = headrace("explain", pipeline).stdout
    assert "== hot ==" in shown
    assert "scheduling" in shown
    assert not [word for word in ("ETS", "EQG", "NOS", "idle-waiting") if word in shown]
    assert headrace("explain", pipeline, "hot", "--format", "mermaid").stdout.startswith("flowchart")
    assert headrace("explain", pipeline, "cold").exit_code == 1


def test_replay_gives_the_same_bytes(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300, more='record = "record"')
    headrace("run", pipeline)
    assert headrace("replay", tmp_path / "record", tmp_path / "again").exit_code == 0
    assert (tmp_path / "again" / "hot.jsonl").read_bytes() == (tmp_path / "hot.jsonl").read_bytes()


def test_why_and_top_read_what_a_run_left(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    assert headrace("why", pipeline).exit_code == 1
    headrace("run", pipeline)
    assert "finished" in headrace("why", pipeline).stdout
    assert "bids" in headrace("top", pipeline, "--once").stdout
    assert "bids" in headrace("status", pipeline).stdout
    why = json.loads(headrace("why", pipeline, "--json").stdout)
    assert (why["runtime"], [each["cause"] for each in why["causes"]]) == ("embedded", ["finished"])
    assert json.loads(headrace("status", pipeline, "--json").stdout)["streams"]["bids"]["rows_in"] == 300


def test_a_run_that_was_killed_is_not_watched_for_ever(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    headrace("run", pipeline)
    left = tmp_path / "state" / "status.json"
    left.write_text(json.dumps({**json.loads(left.read_text()), "state": "running"}))
    assert "killed" in headrace("top", pipeline).stdout
    assert "The run was killed" in headrace("why", pipeline).stdout


def test_a_directory_is_not_a_file_but_may_hold_one(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=300)
    told = headrace("check", tmp_path)
    assert told.exit_code == 1
    assert f"try {pipeline}" in told.stderr


def test_doctor_finds_what_is_here() -> None:
    told = headrace("doctor")
    assert told.exit_code == 0
    assert "embedded pipelines can run on this machine" in told.stdout
    assert "on Spark" in told.stdout.splitlines()[-1]
    found = {each["what"]: each for each in json.loads(headrace("doctor", "--json").stdout)}
    assert found["pyarrow"]["well"]


def test_ctrl_c_stops_with_a_checkpoint_and_the_next_run_goes_on(tmp_path: Path) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    for root in (whole, stopped):
        root.mkdir()
        sliding(root)
    headrace("run", whole / "pipeline.toml", "--quiet")
    command = [sys.executable, "-m", "headrace.cli", "run", str(stopped / "pipeline.toml"), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert json.loads(out)["state"] in ("stopped", "finished")
    assert headrace("run", stopped / "pipeline.toml", "--quiet").exit_code == 0
    assert bags(stopped) == bags(whole)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_on_a_terminal_a_table_is_shown(tmp_path: Path) -> None:
    main, other = os.openpty()
    command = [sys.executable, "-m", "headrace.cli", "run", str(sliding(tmp_path))]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=other, env=environment)
    os.close(other)
    shown = b""
    try:
        while chunk := os.read(main, 65_536):
            shown += chunk
    except OSError:  # the other end is closed
        pass
    os.close(main)
    assert process.wait() == 0
    assert b"heartbeat" in shown


def test_bench_lists_the_benchmarks_and_knows_what_they_take() -> None:
    listed = headrace("bench").stdout
    assert "nexmark    NEXMark: " in listed
    assert "peers      Take the turns" in listed
    unknown = headrace("bench", "nexmrk")
    assert unknown.exit_code == 1
    assert "HR-F053" in unknown.stderr
    assert "try nexmark" in unknown.stderr
    assert "HR-F054" in headrace("bench", "engine", "--runtime", "spark").stderr
