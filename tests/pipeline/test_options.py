"""Bounds and ways to run, as keys of a file: they mean what the same objects mean in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Service
from headrace.engine.execution import Execution
from headrace.errors import HeadraceError
from headrace.pipeline import Pipeline
from headrace.pipeline.changing import with_bounds
from headrace.pipeline.load import from_tables, parse
from headrace.time.bounds import NEVER, Bounds
from headrace.time.estimation import Adaptivity, Adjusting, SkewEstimator
from headrace.time.ets import NONE, SkewPromise, StrongestPromise, TimerPromise, periodic
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import LearnedHeartbeats
from headrace.time.skew import Pair, SkewMatrix

NAMES = ("a", "b", "c")
SECOND = 1_000_000


def tables(
    bounds: Mapping[str, Any], skew: Mapping[str, Any] | None = None, unit: str = "tick", **pipeline: Any
) -> dict[str, Any]:
    """A file of a union of streams, as data."""
    streams = {
        name: {
            "source": f"{name}.csv",
            "schema": "k BIGINT, at BIGINT",
            "time": {"column": "at", "unit": unit},
            "bounds": bounds.get(name, {}),
        }
        for name in NAMES
    }
    sql = " UNION ALL ".join(f"SELECT k FROM {name}" for name in NAMES)
    return {
        "pipeline": {"name": "p", "runtime": "embedded", **pipeline},
        "streams": streams,
        "skew": skew or {},
        "queries": [{"name": "q", "sql": sql, "sink": "q.jsonl"}],
    }


def made(*args: Any, **more: Any) -> Pipeline:
    return from_tables(tables(*args, **more))


counts = st.integers(0, 4)
lengths = st.integers(0, 9)


@st.composite
def declarations(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], HeartbeatGenerator]:
    """Bounds as tables of a file, and the generator over the same bounds as Python builds it."""
    bounds: dict[str, Any] = {}
    entries: dict[tuple[str, str], list[Pair]] = {}
    for name in NAMES:
        table = bounds[name] = {"transit": draw(lengths)}
        entries[name, name] = []
        if draw(st.booleans()):
            table["slack"] = draw(counts)
            entries[name, name].append(Pair.tuples(table["slack"], 1))
        if "slack" not in table or draw(st.booleans()):
            table["disorder"] = draw(lengths)
            entries[name, name].append(Pair(0, table["disorder"] + 1))
    between = []
    for of, on in draw(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=4)):
        counted, wait, delta = draw(st.booleans()), draw(lengths), draw(lengths)
        between.append({"of": of, "on": on, "pairs": [[f"{wait} rows" if counted else wait, delta]]})
        entries.setdefault((of, on), []).append(Pair.tuples(wait, delta) if counted else Pair(wait, delta))
    timeout, tick, closure = draw(st.none() | lengths), draw(st.integers(1, 4)), draw(st.booleans())
    skew = {"bounds": between, "tick": tick, "closure": closure}
    skew |= {} if timeout is None else {"timeout": timeout}
    latency = {name: table["transit"] for name, table in bounds.items()}
    matrix = Bounds.of(SkewMatrix.of(NAMES, entries), latency, NEVER if timeout is None else timeout)
    in_order = {name for name in NAMES if draw(st.booleans())}
    for name in in_order:
        bounds[name]["fifo"] = True
    matrix = replace(matrix, fifo=frozenset(map(NAMES.index, in_order)))
    ordered = not matrix.skew.n.any()
    return bounds, skew, HeartbeatGenerator(matrix, tick=tick, close=closure, ordered=ordered)


arrivals = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 3)), max_size=20)


@given(declarations(), arrivals)
def test_declared_bounds_make_the_heartbeats_of_the_same_bounds_in_python(
    declared: tuple[dict[str, Any], dict[str, Any], HeartbeatGenerator], came: list[tuple[int, int, int]]
) -> None:
    bounds, skew, expected = declared
    found = made(bounds, skew).heartbeats()
    assert found is not None
    assert [each.settings for each in found.generators] == [expected.settings]
    now = 0
    for stream, time, pause in came:
        now += pause
        found.arrive([stream], [time], now)
        expected.arrive([stream], [time], now)
        if pause:
            now += 1
            assert found.heartbeats(now).tolist() == expected.heartbeats(now).tolist()


@pytest.mark.parametrize(
    ("table", "adaptivity"),
    [
        ({}, None),
        ({"window": 5}, Adaptivity(5, 0.5)),
        ({"window": 5, "alpha": 0.9, "adjust": True}, Adaptivity(5, 0.9, Adjusting())),
        ({"window": 5, "adjust": {"least": 2, "most": 9}}, Adaptivity(5, 0.5, Adjusting(least=2, most=9))),
        ({"window": 5, "adjust": False}, Adaptivity(5, 0.5)),
        ({"window": "5 rows"}, Adaptivity(5, 0.5)),
        ({"window": "40 ticks", "alpha": 0.1}, Adaptivity(40, 0.1, in_time=True)),
    ],
)
def test_an_estimate_between_streams_is_the_estimator_of_the_paper(
    table: dict[str, Any], adaptivity: Adaptivity | None
) -> None:
    bounds = {"c": {"disorder": 3}}
    found = made(bounds, {"timeout": 7, "estimate": {"horizon": 20, "tick": 4, **table}}).heartbeats()
    assert found is not None
    declared, learned = found.generators
    assert declared.streams == ("c",)
    expected = LearnedHeartbeats(SkewEstimator(("a", "b"), 5, tick=4, adaptivity=adaptivity), 7)
    assert learned.settings == expected.settings
    rng = np.random.default_rng(3)
    for now in range(1, 60):
        row = (rng.integers(0, 2, 1), rng.integers(now - 9, now + 1, 1), now)
        found.arrive(*row)
        expected.arrive(*row)
        assert found.heartbeats(now)[:2].tolist() == expected.heartbeats(now).tolist()


def test_an_estimate_is_divided_into_ten_steps_and_may_name_its_streams() -> None:
    skew = {"estimate": {"horizon": "20 s", "streams": ["b"]}}
    learned = made({"b": {"latency": "1 s"}}, skew, "us").skew.learned
    assert learned is not None
    assert (learned.streams, learned.horizon, learned.tick) == (("b",), 20 * SECOND, 2 * SECOND)


def test_the_clock_bounds_a_stream_in_two_ways() -> None:
    found = made({"a": {"latency": "1 s"}, "b": {"skew": "2 s"}, "c": {"skew": 3, "latency": 4}}, unit="us")
    assert found.promises() == {
        "a": TimerPromise(SECOND),
        "b": SkewPromise(2 * SECOND),
        "c": StrongestPromise((TimerPromise(4), SkewPromise(3))),
    }


def test_how_engines_run_and_when_idle_streams_speak() -> None:
    given = tables({}, unit="ms", strategy="bfs(7)", level="memory", propagation="in_band")
    given["streams"]["a"]["idle"] = "periodic(5 seconds)"
    given["streams"]["b"]["idle"] = "none"
    found = from_tables(given)
    assert found.execution == Execution("bfs(7)", "memory", "in_band")
    assert found.policies() == {"a": periodic(5 * SECOND), "b": NONE}
    engine = found.execution.engine()
    assert (engine.scheduling.level, engine.scheduling.propagation) == ("memory", "in_band")
    assert engine.scheduling.table.default.name == "bfs(7)"
    assert Execution(propagation="eqg").engine().scheduling.propagation == "direct"


def test_the_data_of_a_pipeline_makes_the_same_pipeline() -> None:
    skew = {"bounds": [{"of": "a", "on": "b", "pairs": [["3 rows", "2 s"]]}], "tick": "1 s"}
    skew |= {"estimate": {"horizon": "10 s", "window": 9, "adjust": True}}
    bounds = {"a": {"slack": "3 rows", "transit": "1 s"}, "b": {"skew": "1 s"}}
    first = made(bounds, skew, "us", strategy="rr", level="query")
    again = from_tables(json.loads(json.dumps(first.tables())))
    assert (again.spec, again.skew, again.execution) == (first.spec, first.skew, first.execution)


REFUSED: dict[str, tuple[str, str, str, str]] = {
    "an unknown strategy": ("[pipeline]", 'strategy = "dffs"', "HR-S001", "did you mean dfs?"),
    "an unknown level": ("[pipeline]", 'level = "oprator"', "HR-S003", "did you mean operator?"),
    "an unknown propagation": ("[pipeline]", 'propagation = "inband"', "HR-S002", "did you mean in_band?"),
    "a misspelt key": ("[pipeline]", 'levl = "query"', "HR-F003", "did you mean level?"),
    "an unknown policy": ("[streams.a]", 'idle = "ondemand"', "HR-T055", "did you mean on_demand?"),
    "a policy without a unit": ("[streams.a]", 'idle = "periodic(5)"', "HR-T051", 'write "5 seconds"'),
    "no period": ("[streams.a]", 'idle = "periodic(0 s)"', "HR-T001", "ticks"),
    "a misspelt bound": ("[streams.a]", "bounds = { slak = 3 }", "HR-F003", "did you mean slack?"),
    "a slack in time": ("[streams.a]", 'bounds = { slack = "3 s" }', "HR-F004", ""),
    "a slack below 0": ("[streams.a]", "bounds = { slack = -1 }", "HR-F004", ""),
    "slack and an estimate": (
        "[streams.a]",
        "bounds = { slack = 3, estimate = true }",
        "HR-F012",
        "remove one",
    ),
    "a transit without a unit": ("[streams.a]", 'bounds = { transit = "3" }', "HR-T051", 'write "3 seconds"'),
    "a tick of 0": ("[skew]", "tick = 0", "HR-F004", "leave it out"),
    "a pair of an unknown unit": (
        "[skew]",
        'bounds = [{ of = "a", on = "a", pairs = [["3 tuples", 1]] }]',
        "HR-F004",
        "",
    ),
    "an estimate without a horizon": ("[skew]", "estimate = { window = 3 }", "HR-F005", ""),
    "an estimate of a stream with bounds": (
        "[skew]",
        'estimate = { horizon = "1 s", streams = ["z"] }',
        "HR-F012",
        "remove it from streams",
    ),
    "an estimate of no stream": (
        "[skew]",
        'estimate = { horizon = "1 s", streams = ["aa"] }',
        "HR-F016",
        "did you mean a?",
    ),
    "α without W": ("[skew]", 'estimate = { horizon = "1 s", alpha = 0.1 }', "HR-F005", "set window"),
    "W in time that adjusts itself": (
        "[skew]",
        'estimate = { horizon = "1 s", window = "1 minute", adjust = true }',
        "HR-T030",
        "count rows",
    ),
    "α above 1": ("[skew]", 'estimate = { horizon = "1 s", window = 3, alpha = 2 }', "HR-F004", ""),
    "a misspelt estimate": (
        "[skew]",
        'estimate = { horizn = "1 s" }',
        "HR-F003",
        "did you mean horizon?",
    ),
    "a misspelt adjustment": (
        "[skew]",
        'estimate = { horizon = "1 s", window = 3, adjust = { leest = 1 } }',
        "HR-F003",
        "did you mean least?",
    ),
}
TEXT = """
[pipeline]
name = "p"
runtime = "embedded"
[streams.a]
source = "a.csv"
schema = "k BIGINT, at TIMESTAMP"
time = "at"
[streams.z]
source = "z.csv"
schema = "k BIGINT, at TIMESTAMP"
time = "at"
bounds = { disorder = "1 s" }
[skew]
closure = true
[[queries]]
name = "q"
sql = "SELECT k FROM a UNION ALL SELECT k FROM z"
sink = "q.jsonl"
"""


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_value_is_refused_where_it_is(name: str) -> None:
    table, line, code, hint = REFUSED[name]
    text = TEXT.replace(f"{table}\n", f"{table}\n{line}\n")
    with pytest.raises(HeadraceError) as raised:
        parse(text)
    assert raised.value.code == code
    assert hint in raised.value.hint + raised.value.message
    where = text.splitlines().index(line) + 1
    assert f"line {where}: {table[1:-1]}.{line.split(' = ')[0]}" in raised.value.place


def test_a_command_may_not_bound_a_stream_whose_bounds_are_learned() -> None:
    by_name = made({}, {"estimate": {"horizon": 9, "streams": ["a"]}})
    with pytest.raises(HeadraceError, match="HR-F012"):
        with_bounds(by_name, "a", {"disorder": 3})
    by_default = with_bounds(made({}, {"estimate": {"horizon": 9}}), "a", {"slack": 3, "transit": 1})
    assert by_default.skew.learned is not None
    assert by_default.skew.learned.streams == ("b", "c")
    assert by_default.streams["a"].lateness.slack == 3


def test_a_query_may_say_what_it_expects_of_the_scheduler() -> None:
    said = tables({}, unit="us")
    said["queries"][0] |= {"deadline": "2 s", "share": 2.5, "priority": 1}
    assert from_tables(said).queries[0].query.service == Service(2 * SECOND, 2.5, 1)
    said["queries"][0] |= {"strategy": "bfs(9)", "breaks": ["select", "join"]}
    assert from_tables(said).queries[0].query.service == Service(
        2 * SECOND, 2.5, 1, "bfs(9)", ("select", "join")
    )
    assert made({}).queries[0].query.service == Service()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("deadline", "soon"),
        ("deadline", 0),
        ("share", 0),
        ("share", -1),
        ("priority", "x"),
        ("strategy", "dfz"),
        ("breaks", ["selct"]),
    ],
)
def test_what_is_wrong_with_it_has_a_place(key: str, value: Any) -> None:
    said = tables({}, unit="us")
    said["queries"][0][key] = value
    with pytest.raises(HeadraceError, match=key):
        from_tables(said)
