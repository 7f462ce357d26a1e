"""`SparkOptions` without Spark: what is refused, what is documented, and shares of an executor's memory."""

from __future__ import annotations

import ast
import random
import re
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import headrace
from headrace.engine.execution import Execution
from headrace.engine.inputs import Inputs
from headrace.errors import BudgetError, HeadraceError, SparkError
from headrace.memory.budget import budget_bytes
from headrace.plan.nodes.core import Source, TimeKind
from headrace.runtimes.spark.driver import options as module
from headrace.runtimes.spark.driver.options import NAMES, SparkOptions, cores_of, executor_bytes, spark_bytes
from headrace.runtimes.spark.worker.answers import LATE
from headrace.time.bounds import Bounds
from headrace.time.ets import NONE, TimerPromise, periodic
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats
from headrace.time.skew import Pair, SkewMatrix
from tests.pipeline.test_options import declarations
from tests.spark.simulated import Cluster, MicroBatch, on_spark

ROOT = Path(__file__).resolve().parent.parent.parent
QUERY = headrace.query("CREATE STREAM s (k INT); SELECT k FROM s")

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt option": ({"boundz": {}}, "did you mean bounds?"),
    "an option of another system": ({"parallelism": 4}, "known: bounds, skew, idle,"),
    "a number as text": ({"shards": "4"}, "expected int or None"),
    "a flag as a number": ({"shards": True}, "expected int or None"),
    "a flag as text": ({"native": "yes"}, "expected bool"),
    "a column for all streams": ({"reached": "timestamp"}, "expected Mapping"),
    "a memory with a fraction": ({"memory": 0.25}, "expected str or int or None"),
    "a timer that is a list": (
        {"timer": ["1 second"]},
        "expected str or int or timedelta or DataFrame or None",
    ),
    "nothing where something is needed": ({"enforce": None}, "expected str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unknown_option_or_a_wrong_type_is_refused(name: str) -> None:
    given, hint = REFUSED[name]
    with pytest.raises(SparkError, match="HR-SP25") as raised:
        SparkOptions(**given)
    assert hint in raised.value.hint
    assert next(iter(given)) in raised.value.message


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, str]] = {
    "an option among the streams": ((), {"bounds": {}}, "HR-SP18", "SparkOptions(bounds=...)"),
    "a misspelt option among them": ((), {"enforcd": "admit"}, "HR-SP18", "did you mean enforce?"),
    "streams that are no mapping": (("rows",), {}, "HR-SP18", '{"bids": bids}'),
    "options that are a mapping": (({}, {"shards": 2}), {}, "HR-SP25", "SparkOptions(**options)"),
    "options that are something else": (({}, 2), {}, "HR-SP25", "SparkOptions(bounds=...)"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("call", ["apply", "outputs"])
def test_what_is_no_stream_is_told_from_an_option(name: str, call: str) -> None:
    given, named, code, hint = CALLS[name]
    with pytest.raises(SparkError, match=code) as raised:
        getattr(headrace.spark, call)(QUERY, *given, **named)
    assert hint in raised.value.hint


def test_an_unknown_policy_is_refused_in_the_driver() -> None:
    with pytest.raises(BudgetError, match=r"HR-M003.*\n.*did you mean spill"):
        SparkOptions(policy="spil")  # type: ignore[arg-type]


def test_options_without_a_name_are_refused() -> None:
    with pytest.raises(SparkError, match="HR-SP25"):
        SparkOptions({"s": {"disorder": 1}})  # type: ignore[misc]


def test_every_option_has_a_docstring_and_a_line_in_the_docs() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    (body,) = [
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SparkOptions"
    ]
    described = {
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    assert described == set(NAMES)
    page = (ROOT / "docs" / "spark" / "index.md").read_text()
    table = page.split("## Options\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(NAMES)


GIB = 1024**3


@pytest.mark.parametrize(
    ("written", "bytes"),
    [("1g", GIB), ("512m", GIB // 2), ("2GB", 2 * GIB), ("64k", 65536), ("1024", GIB), ("4096b", 4096)],
)
def test_sizes_are_read_as_spark_writes_them(written: str, bytes: int) -> None:
    assert spark_bytes(written) == bytes


@pytest.mark.parametrize(
    ("settings", "bytes"),
    [
        ({"spark.master": "spark://host:7077", "spark.executor.memory": "8g"}, 8 * GIB),
        ({"spark.master": "yarn", "spark.executor.memory": "8g", "spark.executor.cores": "4"}, 8 * GIB),
        ({"spark.executor.memory": "8g", "spark.executor.instances": "3"}, 24 * GIB),
        (
            {
                "spark.executor.memory": "8g",
                "spark.executor.instances": "3",
                "spark.dynamicAllocation.enabled": "true",
            },
            8 * GIB,
        ),
        ({"spark.executor.memory": "8g", "spark.executor.pyspark.memory": "2g"}, 2 * GIB),
        ({"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.executor.memory": "9g"}, 2 * GIB),
        ({"spark.master": "local[2, 3]", "spark.driver.memory": "2g"}, 2 * GIB),
        ({"spark.master": "local"}, GIB),
        ({"spark.master": "local[*]", "spark.driver.memory": "4g"}, 4 * GIB),
        ({}, GIB),
    ],
)
def test_a_share_is_of_the_executors_once(settings: dict[str, str], bytes: int) -> None:
    assert executor_bytes(settings.get) == bytes
    assert budget_bytes("25 %", lambda: executor_bytes(settings.get)) == bytes // 4


# Bounds between streams, idle streams and ways to run.

NAMES_READ = ("a", "b", "c")
SOURCES = [Source(name, pa.schema([("k", pa.int64())])) for name in NAMES_READ]


@given(declarations())
def test_bounds_mean_what_they_mean_in_python(
    declared: tuple[dict[str, Any], dict[str, Any], HeartbeatGenerator],
) -> None:
    bounds, skew, expected = declared
    options = SparkOptions(bounds=bounds, skew=skew)
    found = options.inputs_for(SOURCES, None)
    assert isinstance(found.heartbeats, CombinedHeartbeats)
    assert [each.settings for each in found.heartbeats.generators] == [expected.settings]


def test_durations_may_be_timedeltas() -> None:
    second = timedelta(seconds=1)
    bounds = {name: {"disorder": second, "transit": 2 * second, "latency": 5 * second} for name in NAMES_READ}
    skew = {"bounds": [{"of": "a", "on": "b", "pairs": [(second, "3 s")]}], "timeout": 9 * second}
    given = SparkOptions(bounds=bounds, skew=skew, guard=second).inputs_for(SOURCES, 1000)
    assert given.promises == dict.fromkeys(NAMES_READ, TimerPromise(5000))
    (generator,) = given.heartbeats.generators  # type: ignore[union-attr]
    assert (generator.bounds.latency, generator.bounds.timeout) == ((2000,) * 3, 9000)
    assert generator.bounds.skew["a", "b"][0] == Pair(1000, 3000)
    assert generator.bounds.skew["a", "a"][0] == Pair(0, 1001), "less than this"


def test_estimates_and_witnesses_of_a_query() -> None:
    skew = {"estimate": {"horizon": 10, "streams": ["a", "b", "w"]}, "timeout": 3}
    witnesses: Any = {"w": None}
    options = SparkOptions(bounds={"c": {"estimate": {"loss": 0.01}}}, skew=skew, witnesses=witnesses)
    found = options.inputs_for(SOURCES, None)
    assert found.heard_by(["a"]) == {"b", "w"}
    assert found.heard_by(["c"]) == frozenset()


def test_skew_alone_may_say_everything() -> None:
    """Found by the parity suite: without `bounds`, `skew` was refused."""
    found = SparkOptions(skew={"estimate": {"horizon": 10}}).inputs_for(SOURCES, None)
    assert found.heartbeats is not None
    assert found.heartbeats.streams == NAMES_READ


def test_bounds_between_streams_are_about_streams_that_bring_their_times() -> None:
    """An internal stream beside them was learned about too."""
    internal = Source("i", pa.schema([("k", pa.int64())]), TimeKind.INTERNAL)
    found = SparkOptions(skew={"estimate": {"horizon": 10}}).inputs_for([*SOURCES, internal], None)
    assert found.heartbeats is not None
    assert found.heartbeats.streams == NAMES_READ
    named = SparkOptions(skew={"estimate": {"horizon": 10, "streams": ["i"]}})
    with pytest.raises(SparkError, match="does not have external time"):
        named.inputs_for([*SOURCES, internal], None)


def test_a_stream_without_bounds_is_refused_even_if_others_have_skew() -> None:
    skew = {"bounds": [{"of": "a", "on": "b", "pairs": [[0, 1]]}]}
    with pytest.raises(HeadraceError, match="HR-T050") as raised:
        SparkOptions(bounds={"a": {"slack": 3}}, skew=skew).inputs_for(SOURCES, None)
    assert raised.value.place == "c"


def test_idle_streams_for_all_and_by_stream() -> None:
    bounds = {key: {"disorder": "1 s"} for key in NAMES_READ}
    for_all = SparkOptions(bounds=bounds, idle="periodic(2 s)").inputs_for(SOURCES, 10)
    assert for_all.policies == dict.fromkeys(NAMES_READ, periodic(20))
    by_stream = SparkOptions(bounds=bounds, idle={"a": "none"}).inputs_for(SOURCES, 10)
    assert by_stream.policies == {"a": NONE}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "a strategy": ({"strategy": "dffs"}, "HR-S001", "did you mean dfs?"),
    "a level": ({"level": "quer"}, "HR-S003", "did you mean query?"),
    "a propagation": ({"propagation": "dirct"}, "HR-S002", "did you mean direct?"),
    "a policy": ({"idle": "nome"}, "HR-T055", "did you mean none?"),
    "a policy of no stream": ({"idle": {"aa": "none"}}, "HR-SP25", "did you mean a?"),
    "a bound": ({"bounds": {"a": {"slak": 3}}}, "HR-SP13", "did you mean slack?"),
    "a value": ({"bounds": {"a": {"slack": "3 s"}}}, "HR-SP13", "is not a number of rows"),
    "a key of skew": ({"skew": {"timout": 3}}, "HR-SP13", "did you mean timeout?"),
    "a duration": ({"skew": {"timeout": "3 parsecs"}}, "HR-SP13", "units"),
    "a stream": (
        {"skew": {"bounds": [{"of": "a", "on": "bb", "pairs": [[0, 1]]}]}},
        "HR-SP13",
        "did you mean b?",
    ),
    "a promise beside skew": (
        {"bounds": {"a": TimerPromise(3)}, "skew": {}},
        "HR-SP13",
        "cannot be combined",
    ),
    "two kinds of bounds": (
        {"bounds": Bounds.of(SkewMatrix.of(["a"], {("a", "a"): [(0, 0)]})), "skew": {}},
        "HR-SP13",
        "leave one of them out",
    ),
    "inputs and what they replace": ({"inputs": Inputs(), "idle": "none"}, "HR-SP25", "leave one out"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_value_is_refused_with_the_nearest_name(name: str) -> None:
    given, code, said = BAD[name]
    usual = {} if "inputs" in given else {"bounds": {key: {"disorder": 1} for key in NAMES_READ}}
    with pytest.raises(HeadraceError, match=code) as raised:
        SparkOptions(**(usual | given)).inputs_for(SOURCES, None)
    assert said in f"{raised.value.message} {raised.value.hint}"
    assert not raised.value.place.startswith(":")


def test_options_say_how_engines_run() -> None:
    options = SparkOptions(strategy="rr(3)", level="query", propagation="punctuation")
    assert options.execution == Execution("rr(3)", "query", "punctuation")
    assert SparkOptions().execution == Execution()


@pytest.mark.parametrize("more", [{}, {"latency": 1000}, {"sources": "k"}, {"transit": 0}])
def test_a_row_may_be_exactly_its_disorder_behind(more: dict[str, Any]) -> None:
    """The edge is the same as in a pipeline file, however the bound is written."""
    table = {"disorder": 5, **more}
    inputs = SparkOptions(bounds={"a": table}).inputs_for(SOURCES[:1], None)
    batches: list[MicroBatch] = [
        (now, {"a": (pa.RecordBatch.from_pydict({"k": [1]}), np.array([time], object))})
        for now, time in ((101, 100), (102, 95), (103, 94))
    ]
    found = on_spark(SOURCES[0], inputs, batches, {}, 2, Cluster(random.Random(1)), ends=True)
    assert sorted(row[-1] for row in found.answers) == [95, 100]
    assert found.numbers[LATE] == 1


CORES: dict[str, tuple[dict[str, str], int | None]] = {
    "a local master": ({"spark.master": "local[3]"}, 3),
    "tasks of two cores": ({"spark.master": "local[6]", "spark.task.cpus": "2"}, 3),
    "executors": ({"spark.executor.instances": "4", "spark.executor.cores": "8"}, 32),
    "dynamic allocation": (
        {
            "spark.dynamicAllocation.enabled": "true",
            "spark.dynamicAllocation.maxExecutors": "10",
            "spark.executor.cores": "4",
            "spark.default.parallelism": "2",
        },
        40,
    ),
    "dynamic allocation without a limit": (
        {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4"},
        None,
    ),
    "a cluster that does not tell": ({"spark.master": "spark://here:7077"}, None),
}


@pytest.mark.parametrize("name", CORES)
def test_settings_tell_the_cores(name: str) -> None:
    settings, expected = CORES[name]
    assert cores_of(settings.get) == expected


@pytest.mark.parametrize(
    ("asked", "master", "partitions", "expected"),
    [(None, "local[2]", 200, 2), (None, "yarn", 200, 200), (None, "local[8]", 3, 3), (7, "local[2]", 5, 5)],
)
def test_shards_follow_the_cores_and_not_the_partitions(
    asked: int | None, master: str, partitions: int, expected: int
) -> None:
    class Session:
        class conf:
            @staticmethod
            def get(name: str, default: str | None = None) -> str | None:
                return {"spark.master": master}.get(name, default)

    assert SparkOptions(shards=asked).shards_in(Session(), partitions) == expected  # type: ignore[arg-type]
