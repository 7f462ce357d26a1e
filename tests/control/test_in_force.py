"""What is in force: the file, then the log; the file wins once it says something new."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control import (
    AddQuery,
    Command,
    RemoveQuery,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    in_force,
    log_of,
    submit,
)
from headrace.engine.execution import Execution
from headrace.errors import ControlError
from headrace.pipeline import Pipeline
from tests.control.pipelines import TEXT, written

NEW = AddQuery("new", "SELECT note FROM bids", "new.jsonl")


def queries(pipeline: Pipeline) -> dict[str, tuple[str, int]]:
    """By name: where a query comes from, and since which command."""
    return {query.name: (query.origin, query.since) for query in pipeline.queries}


def after(root: Path, *commands: Command, text: str = TEXT) -> Pipeline:
    """What is in force after these commands; the file then has another text."""
    pipeline = written(root)
    for command in commands:
        submit(pipeline, command)
    return in_force(written(root, text), log_of(pipeline).read())


def test_without_commands_it_is_the_file(tmp_path: Path) -> None:
    assert after(tmp_path) == written(tmp_path)


def test_queries_are_those_of_the_file_and_then_those_of_the_log(tmp_path: Path) -> None:
    found = after(tmp_path, NEW, RemoveQuery("hot"))
    assert queries(found) == {"wide": ("file", 0), "new": ("log", 1)}
    assert [query.name for query in found.queries] == [query["name"] for query in found.tables()["queries"]]


def test_a_query_that_is_added_again_begins_again(tmp_path: Path) -> None:
    commands = (NEW, RemoveQuery("new"), AddQuery("new", "SELECT price FROM bids", "new2.jsonl"))
    found = after(tmp_path, *commands)
    assert queries(found)["new"] == ("log", 3)
    assert found.queries[-1].query.text == "SELECT price FROM bids"


def test_the_streams_of_a_removed_query_are_still_read(tmp_path: Path) -> None:
    ask = AddQuery("ask", "SELECT auction FROM asks", "ask.jsonl")
    assert set(after(tmp_path).read) == {"bids"}
    assert set(after(tmp_path, ask, RemoveQuery("ask")).read) == {"bids", "asks"}


def test_a_removed_query_of_the_file_stays_removed_until_its_text_changes(tmp_path: Path) -> None:
    assert "hot" not in queries(after(tmp_path, RemoveQuery("hot")))
    other_query = TEXT.replace("count(*)", "sum(price)")
    assert "hot" not in queries(in_force(written(tmp_path, other_query), log_of(written(tmp_path)).read()))
    changed = TEXT.replace("price > 10", "price > 20")
    assert queries(in_force(written(tmp_path, changed), log_of(written(tmp_path)).read()))["hot"] == (
        "file",
        0,
    )


def test_a_query_of_the_file_can_be_replaced_by_one_of_the_log(tmp_path: Path) -> None:
    other = AddQuery("hot", "SELECT note FROM bids", "hot2.jsonl")
    assert queries(after(tmp_path, RemoveQuery("hot"), other))["hot"] == ("log", 2)


def test_a_query_that_moves_from_the_log_to_the_file_keeps_its_generation(tmp_path: Path) -> None:
    query = '[[queries]]\nname = "new"\nsql = "SELECT note FROM bids"\nsink = "new.jsonl"\n'
    assert queries(after(tmp_path, NEW, text=TEXT + query))["new"] == ("file", 1)


def test_settings_hold_until_the_file_says_something_new(tmp_path: Path) -> None:
    commands = (
        SetBudget("64 MB", "spill"),
        SetStrategy("bfs"),
        SetStrategy("edf", "wide"),
        SetLevel("query"),
        SetBounds("bids", {"disorder": "1 s", "latency": "1 min"}),
        SetBounds("bids", {"guard": "1 h", "latency": None}),
    )
    found = after(tmp_path, *commands)
    assert (found.spec.memory.budget, found.spec.memory.policy) == ("64 MB", "spill")
    assert (found.execution.strategy, found.execution.level) == ("bfs", "query")
    assert [query.query.service.strategy for query in found.queries] == [None, "edf"]
    assert (found.streams["bids"].lateness.disorder, found.streams["bids"].lateness.latency) == (10**6, None)
    assert found.streams["bids"].rules.guard == 3600 * 10**6
    ways = 'strategy = "rr"\nlevel = "memory"\n'
    newer = TEXT.replace('"5 s"', '"7 s"').replace("checkpoint =", f"{ways}checkpoint =")
    newer += '[memory]\nbudget = "1 GB"\n'
    found = in_force(written(tmp_path, newer), log_of(found).read())
    assert (found.spec.memory.budget, found.execution) == ("1 GB", Execution("rr", "memory"))
    assert found.queries[1].query.service.strategy == "edf", "about which the file says nothing new"
    assert found.streams["bids"].lateness.disorder == 7 * 10**6


def test_a_command_that_no_longer_fits_the_file_is_named_and_can_be_removed(tmp_path: Path) -> None:
    submit(written(tmp_path), NEW)
    pipeline = written(tmp_path, TEXT.replace("note STRING, ", ""))
    with pytest.raises(ControlError) as outdated:
        in_force(pipeline, log_of(pipeline).read())
    assert outdated.value.code == "HR-L011"
    assert "command 1 (add query: name = 'new'" in outdated.value.message
    submit(pipeline, RemoveQuery("new"))
    assert queries(in_force(pipeline, log_of(pipeline).read())) == {"hot": ("file", 0), "wide": ("file", 0)}
