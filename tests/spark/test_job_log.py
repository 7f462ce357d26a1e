"""The control log of a job in Python: what shards see, and what a start finds out. On Spark: `test_job`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.control import Heartbeat, Log, Punctuate, RemoveQuery, Resize, SetBounds, SetBudget, SetLevel
from headrace.control.commands import Command
from headrace.engine.inputs import Inputs
from headrace.errors import HeadraceError
from headrace.graph.admission import Rules
from headrace.runtimes.spark.driver.continuing import Start, outlet_of
from headrace.runtimes.spark.driver.job_log import (
    append,
    as_shards_see,
    changed_options,
    command_of,
    pipeline_of,
    with_commands,
)
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.topology import World, topology
from headrace.runtimes.spark.driver.writing import JobQuery
from headrace.runtimes.spark.worker.answers import LATE, RESULT
from headrace.time.ets import DisorderPromise

S = headrace.StreamDef(
    "s", pa.schema([("k", pa.int64()), ("v", pa.int64()), ("t", pa.timestamp("us", "UTC"))]), time_column="t"
)
U = headrace.StreamDef("u", S.schema, time_column="t")
COUNTED = "SELECT k, count(*) AS n FROM s [RANGE MIN 5 SECONDS, MAX 10 SECONDS] GROUP BY k"
INPUTS = Inputs(promises={"s": DisorderPromise(0)}, rules={"s": Rules(disordered=True, enforce="strict")})


def asked(text: str, *kinds: str) -> JobQuery:
    sinks = dict.fromkeys((RESULT, *kinds), lambda rows, batch: None)
    return JobQuery(headrace.query(text, [S, U]), sinks)


def test_shards_see_the_query_that_the_program_has() -> None:
    pipeline = pipeline_of({"counted": asked(COUNTED)})
    for text in (COUNTED, "SELECT k, v FROM s WHERE v > 2", "SELECT max(v) AS v FROM s [RANGE 1 HOUR]"):
        new = asked(text, LATE)
        seen = as_shards_see("new", new, pipeline)
        assert seen is not None
        assert seen.query.plan == new.query.plan
        assert seen.spec.late is not None
        assert seen.spec.rejected is None


def test_what_shards_do_not_know_needs_another_start() -> None:
    pipeline = pipeline_of({"counted": asked(COUNTED)})
    assert as_shards_see("new", asked("SELECT k FROM u"), pipeline) is None
    narrow = replace(S, schema=pa.schema([("k", pa.int32()), ("t", S.schema.field("t").type)]))
    other = JobQuery(headrace.query("SELECT k FROM s", [narrow]), {})
    assert as_shards_see("new", other, pipeline) is None
    assert as_shards_see("a name with spaces", asked(COUNTED), pipeline) is None


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (Resize("counted", "7 seconds"), None),
        (Resize("counted", "1 hour"), "HR-L009"),
        (Resize("other", "7 seconds"), "HR-L006"),
        (Heartbeat("s", "2026-01-01T00:00:00Z"), None),
        (Heartbeat("u", 3), "HR-L008"),
        (Punctuate("s", {"k": {"is": 7}}), None),
        (Punctuate("s", {"x": {"is": 7}}), "HR-L009"),
        (RemoveQuery("counted"), None),
        (SetLevel("query"), None),
    ],
)
def test_a_command_is_checked_before_it_is_written(
    tmp_path: Path, command: Command, code: str | None
) -> None:
    pipeline, log = pipeline_of({"counted": asked(COUNTED)}), Log(tmp_path / "control")
    if code is None:
        append(log, command, pipeline)
    else:
        with pytest.raises(HeadraceError, match=code):
            append(log, command, pipeline)
    assert len(log.read()) == (code is None)


def test_a_start_finds_what_shards_did_since_the_last_one(tmp_path: Path) -> None:
    first = {"stays": asked(COUNTED), "goes": asked(COUNTED)}
    start = Start.of(first, None, frozenset())
    placed = topology(start.plans, World(INPUTS, 2), outlet_of(first)).placed
    record, log = Record(partitions=2, placed=placed, shards=2), Log(tmp_path / "control")
    comes = asked("SELECT k, max(v) AS v FROM s [RANGE 2 SECONDS] GROUP BY k")
    log.append(command_of("comes", comes))
    log.append(command_of("changed", comes))
    log.append(command_of("short", comes))
    log.append(RemoveQuery("goes"))
    log.append(RemoveQuery("short"))
    now = {"stays": first["stays"], "comes": comes, "changed": asked(COUNTED), "short": comes}
    assert with_commands(record, log, now, INPUTS).queries == {"stays", "comes"}
    assert with_commands(record, log, {**first, "comes": comes}, INPUTS).queries == {"stays", "comes"}
    later = replace(record, position=5)
    assert with_commands(later, log, now, INPUTS).queries == {"stays", "goes"}


def test_commands_change_the_options_of_the_next_start() -> None:
    before = headrace.spark.SparkOptions(bounds={"s": {"disorder": "5 s", "latency": "1 minute"}})
    after = changed_options(before, SetBounds("s", {"disorder": "9 s", "latency": None}))
    assert after.bounds == {"s": {"disorder": "9 s"}}
    assert changed_options(before, SetBudget("1 MB", "spill")).memory == "1 MB"
    assert changed_options(before, Heartbeat("s", 3)) is before
    for bad in (SetBounds("s", {"guard": "1 s"}), SetLevel("highest")):
        with pytest.raises(HeadraceError):
            changed_options(before, bad)
