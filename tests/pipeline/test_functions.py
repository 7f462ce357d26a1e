"""Python objects that a pipeline file names, and secrets of the environment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from headrace.errors import HeadraceError, PipelineError
from headrace.pipeline import load, parse
from headrace.pipeline.changing import with_query
from headrace.pipeline.secrets import revealed
from headrace.runtimes.embedded import Runner, replay

CODE = """
import pyarrow.compute as pc

WRITTEN = []

def numbers(position, count=4):
    for i in range(position or 0, count):
        yield {"k": i % 2, "at": i}, i + 1

def twice(values):
    return pc.multiply(values, 2)

class Largest:
    arguments = ("bigint",)
    result = "bigint"
    def initialize(self):
        return 0
    def iterate(self, state, values):
        return max(state, pc.max(values).as_py())
    def terminate(self, state):
        return state

def write(rows, commit):
    WRITTEN.append((commit, rows.to_pylist()))
"""
TEXT = """
[pipeline]
name = "x"
runtime = "embedded"
{more}
[streams.s]
source = {{ type = "python", function = "{module}:numbers", bounded = true, options = {{ count = 6 }} }}
schema = "k BIGINT, at BIGINT"
time = {{ column = "at", unit = "s" }}
[functions.twice]
function = "{module}:twice"
arguments = ["bigint"]
result = "bigint"
[aggregates]
largest = "{module}:Largest"
[[queries]]
name = "q"
sql = "SELECT largest(twice(at)) AS m FROM s [RANGE 3 SECONDS SLIDE 3 SECONDS]"
sink = {{ type = "python", function = "{module}:write" }}
"""


def write(root: Path, module: str, more: str = "") -> Path:
    (root / f"{module}.py").write_text(CODE)
    path = root / "pipeline.toml"
    path.write_text(TEXT.format(module=module, more=more))
    return path


def test_a_file_names_functions_next_to_it(tmp_path: Path) -> None:
    result = Runner(load(write(tmp_path, "named_functions"))).run()
    assert result.state == "finished"
    rows = [row["m"] for _, rows in sys.modules["named_functions"].WRITTEN for row in rows]
    assert rows == [4, 10]


def test_two_pipelines_may_have_modules_of_one_name(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path = write(tmp_path / folder, "same_name")
        Runner(load(path)).run()
        assert str(tmp_path / folder) in str(sys.modules["same_name"].__file__)


def test_functions_may_be_given_in_python() -> None:
    written: list[Any] = []
    text = TEXT.format(module="m", more="").replace('"m:', '"')
    given = {
        "numbers": lambda count: iter([[{"k": 0, "at": i} for i in range(count)]]),
        "twice": lambda values: pc.multiply(values, 2),
        "write": written.append,
    }
    text = text.replace('largest = "Largest"\n', "").replace("largest(", "max(")
    Runner(parse(text, functions=given)).run()
    assert [row for each in written for row in each.to_pylist()] == [{"m": 4}, {"m": 10}]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("NAME:twice", "NAME:thrice", r"HR-F160.*no 'thrice'.*line \d+: functions.twice"),
        ("NAME:numbers", "absent:numbers", "HR-F160.*No module named 'absent'.*streams.s"),
        ("NAME:write", "write", "HR-F160.*no function 'write'.*queries"),
    ],
)
def test_what_cannot_be_imported_is_an_error_with_its_line(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    path = write(tmp_path, "wrong_names")
    text = path.read_text().replace(
        before.replace("NAME", "wrong_names"), after.replace("NAME", "wrong_names")
    )
    path.write_text(text)
    with pytest.raises(PipelineError, match=message):
        load(path)


def test_commands_do_not_import(tmp_path: Path) -> None:
    pipeline = load(write(tmp_path, "by_command"))
    table = {"name": "p", "sql": "SELECT k FROM s"}
    known = with_query(pipeline, {**table, "sink": {"type": "python", "function": "by_command:write"}})
    assert known.queries[-1].name == "p"
    with pytest.raises(PipelineError, match="HR-F161"):
        with_query(pipeline, {**table, "sink": {"type": "python", "function": "os:remove"}})


def test_recorded_runs_do_not_import(tmp_path: Path) -> None:
    path = write(tmp_path, "recorded_functions", 'record = "record"')
    pipeline = load(path)
    Runner(pipeline).run()
    with pytest.raises(HeadraceError, match="HR-F161"):
        replay(tmp_path / "record", tmp_path / "again")
    replay(tmp_path / "record", tmp_path / "again", functions=pipeline.functions.found)
    assert (tmp_path / "again" / "q.sink.jsonl").read_text() == '{"m":4}\n{"m":10}\n'


def test_a_sink_that_the_file_no_longer_names_is_not_imported(tmp_path: Path) -> None:
    path = write(tmp_path, "sink_of_before", 'checkpoint = "state"')
    Runner(load(path)).run()
    sink = '{ type = "python", function = "sink_of_before:write" }'
    path.write_text(path.read_text().replace(sink, '"out.jsonl"'))
    (tmp_path / "sink_of_before.py").write_text(CODE.replace("WRITTEN = []", "WRITTEN = ['again']"))
    result = Runner(load(path)).run()
    assert any("sink_of_before:write" in each for each in result.progress.messages)


# --- secrets


def test_a_secret_comes_from_the_environment_and_no_error_shows_it() -> None:
    found = revealed("user:${SECRET_OF_TEST}@host", "here", {"SECRET_OF_TEST": "hunter2!"})
    assert found == "user:hunter2!@host"
    error = PipelineError("HR-F004", f"cannot connect to {found}", hint=f"try {found}", place=found)
    assert "hunter2!" not in str(error)
    assert "${SECRET_OF_TEST}" in str(error)


def test_a_variable_that_is_not_set_is_an_error() -> None:
    with pytest.raises(PipelineError, match=r"HR-F162.*NOT_SET_ANYWHERE"):
        revealed("${NOT_SET_ANYWHERE}", "queries.q.sink.url", {})
