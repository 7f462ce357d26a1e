"""What a newcomer types first: a query over a file, `--version`, `init --from`, `run` without a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace import __version__
from headrace.cli.app import app
from headrace.pipeline import load

CLICKS = """item,price,at
lamp,2,2026-01-01T00:00:05Z
desk,7,2026-01-01T00:00:50Z
lamp,4,2026-01-01T00:00:59Z
lamp,1,2026-01-01T00:01:10Z
lamp,1,and,more
"""
PER_MINUTE = "SELECT item, sum(price) AS total FROM clicks [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"


def headrace(*words: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    return tmp_path


def test_a_query_over_a_file_is_answered_at_once(here: Path) -> None:
    asked = headrace("query", PER_MINUTE, "clicks.csv")
    assert asked.exit_code == 0, asked.output
    assert asked.stdout.splitlines() == [
        "item  total",
        "────  ─────",
        "lamp      6",
        "desk      7",
        "lamp      1",
        "3 rows; 1 rejected",
        "  clicks: the line has 4 values for 3 columns (HR-R105)",
    ]
    assert headrace("query", "ask", PER_MINUTE, "clicks.csv").stdout == asked.stdout
    assert headrace("query", "-", "clicks.csv", stdin=PER_MINUTE).stdout == asked.stdout


def test_files_have_names_and_rows_are_json(here: Path) -> None:
    (here / "shelf.jsonl").write_text('{"item": "lamp", "colour": "red"}\n')
    text = "SELECT c.price, s.colour FROM c [NOW] AS c, s WHERE c.item = s.item"
    asked = headrace("query", text, "c=clicks.csv", "s=shelf.jsonl", "--json")
    assert [json.loads(line) for line in asked.stdout.splitlines()] == [
        {"price": price, "colour": "red"} for price in (2, 4, 1)
    ]
    assert "HR-R105" in asked.stderr
    assert headrace("query", text, "c=clicks.csv", "s=shelf.jsonl", "--time", "c=at").exit_code == 0
    assert headrace("query", "SELECT item FROM clicks WHERE price > 99", "clicks.csv", "--json").stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["SELECT a FROM click", "clicks.csv"], "did you mean 'clicks'?"),
        ([PER_MINUTE, "none.csv"], "HR-I021"),
        ([PER_MINUTE, "clicks.csv", "--time", "when"], "hint: columns: item, price, at"),
        ([PER_MINUTE], "name the files of its streams after it"),
        (["SELECT a FROM plain", "plain.csv"], "--time COLUMN; columns: a, b"),
        (["SELECT a FROM two", "two.csv"], "--time two=begin"),
        ([PER_MINUTE, "clicks.csv", "--time", "a", "--time", "b"], "--time NAME=a"),
        ([PER_MINUTE, "clicks.csv", "x/clicks.csv"], "two files are named 'clicks'"),
    ],
)
def test_mistakes_are_explained(words: list[str], said: str, here: Path) -> None:
    (here / "plain.csv").write_text("a,b\n1,2\n")
    (here / "two.csv").write_text("begin,end\n2026-01-01T00:00:00Z,2026-01-01T00:00:01Z\n")
    asked = headrace("query", *words)
    assert asked.exit_code == 1
    assert said in asked.stderr


def test_a_query_after_its_files_is_explained(here: Path) -> None:
    asked = headrace("query", "clicks.csv", PER_MINUTE)
    assert asked.exit_code == 2
    assert "the query comes before its files" in asked.stderr


def test_a_finished_pipeline_says_how_to_start_over(here: Path) -> None:
    assert headrace("init", "--from", "clicks.csv").exit_code == 0
    assert "start over" not in headrace("run").stdout
    assert "an earlier run has read all rows; to start over, remove" in headrace("run").stdout


def test_a_mistyped_command_is_not_taken_for_a_query(here: Path) -> None:
    asked = headrace("query", "lst", "pipeline.toml")
    assert asked.exit_code == 2
    assert "No such command" in asked.stderr


def test_version() -> None:
    asked = headrace("--version")
    assert (asked.exit_code, asked.stdout) == (0, f"headrace {__version__}\n")


def test_init_from_a_file_writes_a_pipeline_that_runs_here(here: Path) -> None:
    made = headrace("init", "--from", "clicks.csv")
    assert made.exit_code == 0, made.output
    stream = load(here / "pipeline.toml").streams["clicks"]
    assert [str(field.type) for field in stream.schema] == ["string", "int64", "timestamp[us, tz=UTC]"]
    assert stream.definition.time_column == "at"
    assert headrace("check").exit_code == 0
    ran = headrace("run")
    assert ran.exit_code == 0, ran.output
    assert "first 2 answers of per_minute:" in ran.stdout
    assert "2026-01-01 00:00:00+00:00  3" in ran.stdout
    assert "answers in per_minute.jsonl" in ran.stdout
    assert "first: the line has 4 values for 3 columns" in ran.stdout
    again = headrace("run")
    assert again.exit_code == 0, again.output
    assert "first 2 answers" not in again.stdout


def test_init_from_a_file_elsewhere_and_with_odd_columns(here: Path) -> None:
    rows = [{"a b": "x", "from": 1.5, "at": "2026-01-01 00:00:00", "seen": "2026-01-02 00:00:00", "l": [1]}]
    (here / "my rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert headrace("init", "new", "--from", "my rows.jsonl", "--time", "seen").exit_code == 0
    pipeline = load(here / "new" / "pipeline.toml")
    assert pipeline.streams["my_rows"].schema.names == ["a b", "from", "at", "seen"]
    assert pipeline.streams["my_rows"].definition.time_column == "seen"
    ran = headrace("run", "new/pipeline.toml")
    assert ran.exit_code == 0, ran.output


def test_init_from_a_file_without_times(here: Path) -> None:
    (here / "plain.csv").write_text("a,b\n1,2\n")
    made = headrace("init", "new", "--from", "plain.csv")
    assert made.exit_code == 1
    assert "--time COLUMN" in made.stderr
    assert not (here / "new").exists()


def test_run_without_a_file_and_without_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = headrace("run")
    assert ran.exit_code == 1
    assert "pipeline.toml" in ran.stderr
    assert "headrace init" in ran.stderr
