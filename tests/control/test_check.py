"""A bad command is refused with a clear message, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control import (
    AddQuery,
    Command,
    Heartbeat,
    Pause,
    Punctuate,
    RemoveQuery,
    Resize,
    Resume,
    SetBounds,
    SetBudget,
    SetLevel,
    SetStrategy,
    log_of,
    submit,
)
from headrace.control.apply import punctuation_of, resized
from headrace.errors import HeadraceError
from headrace.runtimes.sending import send
from headrace.time.punctuation import Between, Constant, OneOf
from tests.control.pipelines import TEXT, written

SELECT = "SELECT auction FROM bids"
BAD: dict[str, tuple[Command, str, str]] = {
    "name in use": (AddQuery("hot", SELECT, "x.jsonl"), "HR-L007", "already a query 'hot'"),
    "no name": (AddQuery("9x", SELECT, "x.jsonl"), "HR-F004", "not a valid name"),
    "bad text": (AddQuery("x", "SELECT auctoin FROM bids", "x.jsonl"), "HR-Q011", "'auctoin' does not exist"),
    "unknown stream": (AddQuery("x", "SELECT a FROM bid", "x.jsonl"), "HR-Q010", "bid"),
    "own stream": (
        AddQuery("x", "CREATE STREAM o (a INT); SELECT a FROM o", "x.jsonl"),
        "HR-L008",
        "not in the pipeline file",
    ),
    "bad key": (AddQuery("x", SELECT, {"pth": "x.jsonl"}), "HR-F003", "unknown key 'pth'"),
    "output of another": (AddQuery("x", SELECT, "hot.jsonl"), "HR-F015", "two outputs have the path"),
    "output is an input": (AddQuery("x", SELECT, "bids/x.jsonl"), "HR-F023", "is read from"),
    "output is there": (AddQuery("x", SELECT, "there.jsonl"), "HR-C010", "already exists"),
    "output inside a file": (AddQuery("x", SELECT, "there.jsonl/x.jsonl"), "HR-C012", "cannot write"),
    "nothing to pause": (Pause("hott"), "HR-L006", "no query 'hott'"),
    "nothing to resume": (Resume("hott"), "HR-L006", "no query 'hott'"),
    "no such query": (RemoveQuery("hott"), "HR-L006", "no query 'hott'"),
    "no bounds": (Resize("hot", "2 min"), "HR-L009", "no window or granularity that may change"),
    "too large": (Resize("wide", "2 h"), "HR-L009", "outside of the bounds"),
    "other window": (Resize("wide", "2 min", of="asks"), "HR-L009", "no window 'asks'"),
    "no duration": (Resize("wide", "2 parsec"), "HR-T051", "no unit 'parsec'"),
    "no instant": (Resize("wide", "2 min", since="noon"), "HR-L009", "not an instant"),
    "no budget": (SetBudget("a lot"), "HR-M002", "a lot"),
    "no policy": (SetBudget("1 GB", "pray"), "HR-F004", "'fail' or 'spill'"),
    "no strategy": (SetStrategy("dsf"), "HR-S001", "unknown strategy"),
    "no query to run": (SetStrategy("bfs", "hott"), "HR-L006", "no query 'hott'"),
    "no level": (SetLevel("high"), "HR-S003", "unknown level 'high'"),
    "no stream": (SetBounds("bid", {"latency": 1}), "HR-L008", "no stream 'bid'"),
    "not read": (SetBounds("asks", {"latency": 1}), "HR-L008", "no query reads"),
    "no bound": (SetBounds("bids", {"lateness": 1}), "HR-L009", "no bound 'lateness'"),
    "no bounds at all": (SetBounds("bids", {}), "HR-L009", "no bound is named"),
    "bad bound": (SetBounds("bids", {"latency": "soon"}), "HR-F004", "not a duration"),
    "no column": (Punctuate("bids", {"auct": {"is": 1}}), "HR-L009", "no column 'auct'"),
    "no value": (Punctuate("bids", {"auction": {"is": "x"}}), "HR-L009", "not a value of type int64"),
    "no pattern": (Punctuate("bids", {"auction": {"like": 1}}), "HR-L009", "not a pattern"),
    "nothing promised": (Punctuate("bids"), "HR-L009", "the end of the stream"),
    "no time": (Heartbeat("bids", "soon"), "HR-L009", "not an instant"),
    "out of range": (Heartbeat("bids", 1 << 63), "HR-L009", "out of range"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_command_is_refused_and_not_written(case: str, tmp_path: Path) -> None:
    command, code, words = BAD[case]
    (tmp_path / "there.jsonl").write_text("{}\n")
    pipeline = written(tmp_path)
    with pytest.raises(HeadraceError) as refused:
        submit(pipeline, command)
    assert refused.value.code == code
    assert words in str(refused.value)
    assert log_of(pipeline).read() == []


def test_spark_takes_no_pause(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    pipeline = written(tmp_path, TEXT.replace('runtime = "embedded"', 'runtime = "spark"'))
    assert pipeline.runtime == "spark"
    for command in (Pause("hot"), Resume("hot")):
        with pytest.raises(HeadraceError, match=r"HR-SP38.*embedded runtime only"):
            send(pipeline, command)
    assert log_of(pipeline).read() == []


def test_a_stream_with_internal_time_takes_no_promises(tmp_path: Path) -> None:
    pipeline = written(tmp_path)
    submit(pipeline, AddQuery("ticks", "SELECT v FROM ticks", "ticks.jsonl"))
    with pytest.raises(HeadraceError, match=r"HR-L008.*internal time"):
        submit(pipeline, Heartbeat("ticks", 5))


def test_a_pipeline_without_a_checkpoint_has_no_log(tmp_path: Path) -> None:
    pipeline = written(tmp_path, TEXT.replace('checkpoint = "state"', ""))
    with pytest.raises(HeadraceError, match=r"HR-L001.*no checkpoint"):
        submit(pipeline, RemoveQuery("hot"))


def test_commands_that_are_not_applied_yet_count(tmp_path: Path) -> None:
    pipeline = written(tmp_path)
    submit(pipeline, RemoveQuery("hot"))
    with pytest.raises(HeadraceError, match="HR-L006"):
        submit(pipeline, RemoveQuery("hot"))


def test_values_of_patterns_have_the_types_of_their_columns(tmp_path: Path) -> None:
    pipeline = written(tmp_path)
    patterns = {"auction": {"in": [1, "2"]}, "price": {"to": "2.5"}, "note": {"is": "3"}}
    found = punctuation_of(pipeline, Punctuate("bids", patterns, until="1970-01-01T00:00:01Z"))
    assert found.until == 1_000_000
    assert found.columns == {"auction": OneOf((1, 2)), "price": Between(None, 2.5), "note": Constant("3")}


def test_a_resize_finds_its_window(tmp_path: Path) -> None:
    _, size, at = resized(written(tmp_path), Resize("wide", "2 min", of="bids", since="1970-01-01T00:00:01"))
    assert (size, at) == (120_000_000, 1_000_000)
