"""Every wrong query and every wrong file has its message, which says where, what, and how to fix it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wrong.cases import FILES, cases

QUERIES, PIPELINES = cases("queries.txt"), cases("files.txt")


@pytest.mark.parametrize("title", QUERIES)
def test_a_wrong_query_has_its_message(title: str) -> None:
    text, message = QUERIES[title]
    assert FILES["queries.txt"](text) == message


@pytest.mark.parametrize("title", PIPELINES)
def test_a_wrong_file_has_its_message(title: str) -> None:
    text, message = PIPELINES[title]
    assert FILES["files.txt"](text) == message


def test_messages_say_where_what_and_how() -> None:
    assert len(QUERIES) >= 65
    assert len(PIPELINES) >= 40
    for title, (_, message) in {**QUERIES, **PIPELINES}.items():
        assert message != "no error", title
        assert not re.search(r"Input should|pydantic|Traceback|valid string|Field required", message), title
    for title, (_, message) in QUERIES.items():
        assert re.match(r"\[HR-[A-Z]\d{3}\] ", message), title
        assert "^" in message or "hint: " in message, title
    for title, (_, message) in PIPELINES.items():
        for problem in re.split(
            r"\n(?=\[HR-)", message.removeprefix("2 problems\n").removeprefix("3 problems\n")
        ):
            if not problem.startswith("warning: "):
                assert re.search(r"\(at .*pipeline\.toml", problem), (title, problem)
                assert "hint: " in problem or " must be " in problem, (title, problem)


def test_check_has_all_problems_as_data(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(PIPELINES["several at once"][0])
    run = subprocess.run(
        [sys.executable, "-m", "headrace.cli", "check", str(file), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    found = json.loads(run.stdout)["error"]
    assert [(each["code"], each["line"], each["key"]) for each in found["problems"]] == [
        ("HR-F003", 5, "pipeline.chekpoint"),
        ("HR-F004", 11, "streams.bids.bounds.disorder"),
        ("HR-F005", 13, "queries.best.sink"),
    ]
    assert all(each["file"] == "pipeline.toml" and each["hint"] for each in found["problems"])
