"""Chain: segments of the lower envelope, the steepest first, and break nodes that follow measurements."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import tuning
from headrace.engine import Engine
from headrace.expressions import col
from headrace.plan.nodes.core import Plan, Select, Source, Union
from headrace.scheduling.chain import slopes

S, T = (Source(name, pa.schema([("v", pa.int64())])) for name in "st")


@given(st.lists(st.floats(0, 3), min_size=1, max_size=8), st.booleans())
def test_slopes_are_those_of_the_lower_envelope(selectivities: list[float], leaves: bool) -> None:
    """They fall along the path, no point of the chart is below them, and both end at the same point."""
    found = slopes(selectivities, leaves)
    assert len(found) == len(selectivities)
    assert all(before >= after for before, after in pairwise(found))
    work, left, envelope = 1.0, 1.0, 1.0
    for i, (selectivity, slope) in enumerate(zip(selectivities, found, strict=True)):
        work, left = left, left * max(selectivity, 1e-6)
        if leaves and i == len(selectivities) - 1:
            left = 0.0
        envelope -= slope * work
        assert envelope <= left + 1e-9 * max(1.0, left, work)
        if i == len(found) - 1 or found[i + 1] < slope:
            assert envelope == pytest.approx(left, abs=1e-6 * max(1.0, work))


@pytest.mark.parametrize(
    ("selectivities", "expected"),
    [
        ([0.2, 1.0, 1.0], [0.8, 0.5, 0.5]),  # the first frees 0.8 rows a step, the rest 1 in two steps
        ([1.0, 0.1, 1.0], [1 / 2.1] * 3),  # to the sink it is steeper than to the selective operator
        ([2.0, 1.0], [1 / 3, 1 / 3]),  # makes more than it takes, which the sink makes up for
    ],
)
def test_paths_that_can_be_computed_by_hand(selectivities: list[float], expected: list[float]) -> None:
    assert slopes(selectivities, leaves=True) == pytest.approx(expected)


def path_of(*limits: int) -> Plan:
    plan: Plan = S
    for limit in limits:
        plan = Select(plan, col("v") < limit)
    return plan


def push(engine: Engine, values: list[int], stream: str = "s") -> None:
    batch = pa.RecordBatch.from_pydict({"v": values}, S.columns)
    begin = engine.graph.sources[stream].admission.rows_in
    engine.push(stream, batch, list(range(begin, begin + len(values))))


def cuts(engine: Engine) -> list[bool]:
    return [engine.scheduling.table.is_cut(node) for node in engine.graph.nodes]


@tuning.using(chart_steps=10, selectivity_rows=5)
def test_break_nodes_follow_the_measured_selectivities() -> None:
    engine = Engine(strategy="chain")
    engine.add("q", path_of(100, 90, 80))
    assert cuts(engine) == [False, False, False], "nothing is measured: one segment"
    push(engine, [500, 500, 500, 500, 1] * 8)
    engine.run()
    assert cuts(engine) == [True, False, False], "the first operator frees most for its work"
    assert [line.split()[1:] for line in engine.scheduling.show().splitlines()[1:]] == [
        ["-", "-", "Chain-Source-Sink"],
        ["-", "select2", "Chain-Source"],
        ["select1", "-", "Chain-Sink"],
    ]
    push(engine, [1] * 300)
    engine.run()
    assert cuts(engine) == [False, False, False], "all rows pass now: the sink is what frees them"


@tuning.using(chart_steps=4, selectivity_rows=4)
def test_the_steepest_segment_of_all_queries_comes_first() -> None:
    """Rows of `s` are nearly all dropped by one operator; those of `t` pass three."""
    engine = Engine(strategy="chain")
    engine.add("few", path_of(10, 10, 10))
    engine.add("all", Select(Select(Select(T, col("v") < 10), col("v") < 9), col("v") < 8))
    for stream, value in (("s", 99), ("t", 1)):
        push(engine, [value] * 40, stream)
    engine.run()
    ran = recorded(engine)
    push(engine, [1] * 5, "t")
    push(engine, [99] * 5, "s")
    engine.run()
    streams = [name for name in ran if name in ("select0", "select3")]
    assert streams == ["select0"] * 5 + ["select3"] * 5


def recorded(engine: Engine) -> list[str]:
    """The names of the operators that run from now on, one after the other."""
    ran: list[str] = []

    def recording(name: str, execute):  # type: ignore[no-untyped-def]
        def run(limit: int) -> int:
            ran.append(name)
            return execute(limit)

        return run

    for node in engine.graph.nodes:
        node.operator.execute = recording(node.name, node.operator.execute)  # type: ignore[method-assign]
    return ran


# --- round robin --------------------------------------------------------------------------------------------


def test_round_robin_cuts_a_graph_into_paths() -> None:
    engine = Engine(strategy="rr", propagation="in_band")
    shared = Select(S, col("v") > 0)
    engine.add("q1", Union((Select(shared, col("v") > 1), Select(T, col("v") > 1))))
    engine.add("q2", Select(shared, col("v") > 2))
    lines = [tuple(line.split()) for line in engine.scheduling.show().splitlines()[1:]]
    assert lines == [
        ("select0", "-", "-", "RR-Source-Sink"),
        ("select1", "-", "-", "RR-Source-Sink"),
        ("select2", "-", "-", "RR-Source-Sink"),
        ("union3", "-", "-", "RR-Source-Sink"),
        ("union3", "-", "-", "RR-Source-Sink"),
        ("select4", "-", "-", "RR-Source-Sink"),
    ]


def test_round_robin_gives_each_path_its_turn() -> None:
    engine = Engine(strategy="rr")
    engine.add("s", path_of(100, 90))
    engine.add("t", Select(T, col("v") < 50))
    ran = recorded(engine)
    for _ in range(2):
        push(engine, [1, 2])
        push(engine, [1, 2], "t")
        engine.run()
    turns = [name for name, after in zip(ran, [*ran[1:], ""], strict=True) if name != after]
    assert turns == ["select0", "select1", "select2", "select0", "select1", "select2"]


# --- forks at a source --------------------------------------------------------------------------------------


def fork(strategy: str) -> Engine:
    engine = Engine(strategy=strategy)
    engine.add("x", Select(S, col("v") > 0))
    engine.add("y", Select(S, col("v") > 1))
    return engine


def test_a_fork_at_a_source_has_a_row_per_branch() -> None:
    lines = [tuple(line.split()) for line in fork("dfs").scheduling.show().splitlines()[1:]]
    assert lines == [
        ("fork-s", "-", "select0", "DFS-Source-Fork"),
        ("fork-s", "-", "select1", "DFS-Source-Fork"),
        ("select0", "fork-s", "-", "DFS-Source-Sink"),
        ("select1", "fork-s", "-", "DFS-Source-Sink"),
    ]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("dfs", ["select0", "select1"] * 3),
        ("dfs(2)", ["select0", "select1"] * 2),
        ("bfs", ["select0"] * 3 + ["select1"] * 3),
    ],
)
def test_the_branches_of_a_source_take_turns(strategy: str, expected: list[str]) -> None:
    """Depth-first, each takes k rows at a time, so that a row leaves the buffer when all have passed it."""
    engine = fork(strategy)
    ran = recorded(engine)
    push(engine, [5, 6, 7])
    engine.run()
    assert ran == expected
