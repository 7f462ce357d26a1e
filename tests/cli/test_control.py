"""`headrace query` and `headrace control`: what they say, and what they write."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace import tuning
from headrace.cli.app import app
from headrace.cli.control import punctuate_command
from headrace.control import (
    AddQuery,
    Heartbeat,
    Resize,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    Stop,
    log_of,
)
from headrace.control.commands import Command
from headrace.pipeline import load
from headrace.runtimes.embedded import Progress, Runner
from tests.control.pipelines import TEXT, written
from tests.runtimes.embedded.pipelines import sliding


def headrace(*words: str | Path, input: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words], input=input)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    written(tmp_path)
    return tmp_path / "pipeline.toml"


def last(file: Path) -> Command:
    return log_of(load(file)).read()[-1].command


def test_a_query_is_added_listed_and_removed(file: Path) -> None:
    said = headrace("query", "add", file, "new", "SELECT note FROM bids", "--sink", "new.jsonl")
    assert said.exit_code == 0, said.output
    words = "added query 'new' as command 1; it starts with the next run: the pipeline is not running\n"
    assert said.stdout == words
    assert headrace("query", "list", file).stdout.splitlines() == [
        "query  sink        since                       from",
        "hot    hot.jsonl   the start                   the file",
        "wide   wide.jsonl  the start                   the file",
        "new    new.jsonl   command 1, not applied yet  the log",
    ]
    assert "removed query 'hot' as command 2; it ends" in headrace("query", "remove", file, "hot").stdout
    listed = json.loads(headrace("query", "list", file, "--json").stdout)
    assert [each["name"] for each in listed] == ["wide", "new"]


def test_a_query_can_come_from_a_file_or_from_standard_input(file: Path) -> None:
    (file.parent / "q.sql").write_text("SELECT note FROM bids")
    options = ("--sink", "o.jsonl", "--late", "l.jsonl", "--existing", "append", "--time", "t")
    assert headrace("query", "add", file, "one", "--sql-file", file.parent / "q.sql", *options).exit_code == 0
    late = {"path": "l.jsonl", "existing": "append"}
    sink = {"path": "o.jsonl", "existing": "append", "time": "t"}
    assert last(file) == AddQuery("one", "SELECT note FROM bids", sink, late)
    table = '{path = "two.csv", existing = "replace"}'
    assert (
        headrace("query", "add", file, "two", "-", "--sink", table, input="SELECT note FROM bids").exit_code
        == 0
    )
    assert last(file) == AddQuery("two", "SELECT note FROM bids", {"path": "two.csv", "existing": "replace"})


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("budget", "64 MB", "--policy", "spill"), SetBudget("64 MB", "spill")),
        (("budget", "none"), SetBudget(None)),
        (("strategy", "bfs"), SetStrategy("bfs")),
        (("strategy", "chain", "--query", "hot"), SetStrategy("chain", "hot")),
        (("level", "memory"), SetLevel("memory")),
        (("bounds", "bids", "--latency", "1 min", "--disorder", "none"), None),
        (
            ("bounds", "bids", "--slack", "3 rows", "--transit", "1 s"),
            SetBounds("bids", {"slack": "3 rows", "transit": "1 s"}),
        ),
        (("resize", "wide", "2 min", "--of", "bids", "--since", "5"), Resize("wide", "2 min", "bids", "5")),
        (("heartbeat", "bids", "2024-05-01T12:00:00Z"), Heartbeat("bids", "2024-05-01T12:00:00Z")),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_every_command_is_written(file: Path, words: tuple[str, ...], command: Command | None) -> None:
    said = headrace("control", file, *words)
    assert said.exit_code == 0, said.output
    assert said.stdout.startswith("written as command 1; it takes effect with the next run")
    assert last(file) == (command or SetBounds("bids", {"disorder": None, "latency": "1 min"}))


def test_punctuations_are_written_as_people_write_them(file: Path) -> None:
    words = ("auction=7,8", "price=..2.5", 'note="a,b"')
    assert headrace("control", file, "punctuate", "bids", *words, "--until", "12").exit_code == 0
    patterns = {"auction": {"in": ["7", "8"]}, "price": {"to": "2.5"}, "note": {"is": "a,b"}}
    assert last(file) == punctuate_command("bids", words, "12")
    assert getattr(last(file), "patterns") == patterns  # noqa: B009
    assert headrace("control", file, "punctuate", "bids", "auction").exit_code == 1


def test_a_bad_command_has_a_code_a_place_and_a_hint(file: Path) -> None:
    said = headrace("query", "add", file, "new", "SELECT nota FROM bids", "--sink", "new.jsonl")
    assert said.exit_code == 1
    assert "[HR-Q011] the column 'nota' does not exist (at line 1, column 8)" in said.stderr
    assert "       ^^^^" in said.stderr
    told = json.loads(headrace("query", "remove", file, "nix", "--json").stdout)["error"]
    assert (told["code"], told["hint"]) == ("HR-L006", "queries in force: hot, wide")
    no_format = headrace("query", "add", file, "new", "SELECT note FROM bids", "--sink", "new.xlsx")
    assert "[HR-F018] cannot tell the format of 'new.xlsx'" in no_format.stderr
    for words in ((), ("SELECT note FROM bids", "--sql-file", "q.sql")):
        assert "[HR-L009]" in headrace("query", "add", file, "new", *words, "--sink", "n.jsonl").stderr
    assert "[HR-L009]" in headrace("query", "add", file, "n", "SELECT", "--sink", "{path").stderr
    assert log_of(load(file)).read() == []


def test_a_pipeline_without_a_checkpoint_says_what_to_set(tmp_path: Path) -> None:
    written(tmp_path, TEXT.replace('checkpoint = "state"', ""))
    said = headrace("query", "list", tmp_path / "pipeline.toml")
    assert (said.exit_code, "[HR-L001]" in said.stderr) == (1, True)
    assert 'set checkpoint = "state" under [pipeline]' in said.stderr


def test_only_a_running_pipeline_can_be_stopped(tmp_path: Path) -> None:
    file = sliding(tmp_path)
    assert "[HR-L012] the pipeline is not running" in headrace("control", file, "stop").stderr
    said: list[str] = []

    def stop_once(progress: Progress) -> None:
        if not said:
            said.append(headrace("control", file, "stop").stdout)

    with tuning.using(control_seconds=0):
        result = Runner(load(file)).run(on_progress=stop_once, every=0)
        assert result.state == "stopped"
        assert said == ["written as command 1; it takes effect with the next step\n"]
        assert Runner(load(file)).run().state == "finished"  # the command is for the run that it stopped


def test_a_stop_that_came_too_late_does_not_stop_the_next_run(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=500)
    log_of(load(file)).append(Stop())
    assert Runner(load(file)).run().state == "finished"


def test_the_history_says_what_became_of_each_command(tmp_path: Path) -> None:
    file = sliding(tmp_path, rows=500)
    assert headrace("control", file, "history").stdout == "there are no commands\n"
    headrace("query", "add", file, "more", "SELECT price FROM bids", "--sink", "more.jsonl")
    headrace("control", file, "level", "query")
    (tmp_path / "more.jsonl").write_text("somebody was faster\n")
    before = states(headrace("control", file, "history", "--json"))
    assert before == ["not applied yet", "not applied yet"]
    ran = headrace("run", file)
    assert (
        "note: command 1 (add query: name = 'more', sink = 'more.jsonl') was refused: [HR-C010]" in ran.stdout
    )
    assert states(headrace("control", file, "history", "--json")) == [
        "refused: [HR-C010] the output already exists",
        "applied",
    ]
    assert "refused: [HR-C010]" in headrace("control", file, "history").stdout
    assert "more" not in headrace("query", "list", file).stdout


def states(said: Result) -> list[Any]:
    return [each["state"] for each in json.loads(said.stdout)]


def test_commands_for_spark_are_written_to_the_same_place(tmp_path: Path) -> None:
    text = TEXT.replace('"embedded"', '"spark"')
    written(tmp_path, text)
    table = '{type = "spark", format = "console"}'
    file = tmp_path / "pipeline.toml"
    said = headrace("query", "add", file, "new", "SELECT note FROM bids", "--sink", table)
    assert said.stdout == (
        "added query 'new' as command 1; it starts with the next micro-batch, or with the next run\n"
    )
    assert (tmp_path / "state" / "control" / "00000001.json").exists()
    assert "new    spark" in headrace("query", "list", file).stdout
    assert "written" in headrace("control", file, "history").stdout


PAGE = Path(__file__).resolve().parents[2] / "docs" / "control.md"


def test_the_page_about_control_shows_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    (toml,) = re.findall(r"^```toml\n(.*?)^```", page, re.M | re.S)
    Path("pipeline.toml").write_text(toml)
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    examples = [each for block in blocks for each in re.split(r"^\$ headrace ", block, flags=re.M)[1:]]
    assert len(examples) > 10
    for example in examples:
        words, _, wanted = example.partition("\n")
        said = headrace(*shlex.split(words))
        assert dateless(said.stdout + said.stderr) == dateless(wanted)
    assert headrace("run", "pipeline.toml", "--quiet").exit_code == 0
    assert set(states(headrace("control", "pipeline.toml", "history", "--json"))) == {"applied"}


def dateless(text: str) -> list[str]:
    """The lines, without the times at which commands were written."""
    return [re.sub(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00", "…", line).rstrip() for line in text.splitlines()]
