"""State tables as the paper prints them (Bai et al., Tables 1, 2 and 3)."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.engine import Engine, Service
from headrace.errors import ScheduleError
from headrace.expressions import col
from headrace.plan.nodes.core import Select, Source, Union

S = Source("s", pa.schema([("v", pa.int64())]))
PATH = Select(Select(Select(S, col("v") > 0), col("v") > 1), col("v") > 2)


def rows(engine: Engine) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in engine.scheduling.show().splitlines()]


def test_table_1_a_single_path() -> None:
    engine = Engine(strategy="dfs")
    engine.add("q", PATH)
    assert rows(engine) == [
        ("state", "Pred", "Succ", "Transition"),
        ("select0", "-", "select1", "DFS-Source"),
        ("select1", "select0", "select2", "DFS-NOS"),
        ("select2", "select1", "-", "DFS-Sink"),
    ]


def test_table_2_a_break_node_is_a_sink_before_and_a_source_after() -> None:
    engine = Engine(strategy="dfs")
    engine.add("q", PATH)
    engine.scheduling.set_break(engine.graph.nodes[1])
    assert rows(engine)[1:] == [
        ("select0", "-", "select1", "DFS-Source"),
        ("select1", "select0", "-", "DFS-Sink"),
        ("select2", "-", "-", "DFS-Source-Sink"),
    ]
    engine.scheduling.unset_break(engine.graph.nodes[1])
    assert rows(engine)[2] == ("select1", "select0", "select2", "DFS-NOS")


def test_table_3_a_fork_has_a_row_per_branch() -> None:
    engine = Engine(strategy="dfs")
    shared = Select(S, col("v") > 0)
    engine.add("q1", Select(shared, col("v") > 1))
    engine.add("q2", Select(shared, col("v") > 2))
    assert rows(engine)[1:] == [
        ("select0", "-", "fork0", "DFS-Source"),
        ("fork0", "select0", "select1", "DFS-Fork"),
        ("fork0", "select0", "select2", "DFS-Fork"),
        ("select1", "fork0", "-", "DFS-Sink"),
        ("select2", "fork0", "-", "DFS-Sink"),
    ]


def test_parts_of_one_graph_may_run_under_different_strategies() -> None:
    engine = Engine(strategy="bfs")
    other = Source("t", S.columns)
    engine.add("q", Union((Select(S, col("v") > 0), Select(other, col("v") > 0))))
    engine.scheduling.use("dfs(5)", engine.graph.nodes[:1])
    assert [line[-1] for line in rows(engine)[1:]] == [
        "DFS(5)-Source",
        "BFS-Source",
        "BFS-Sink",
        "BFS-Sink",
    ]


def test_a_query_brings_its_strategy_and_its_break_nodes() -> None:
    """Of shared operators, those of the last query count; what is chosen by hand comes first."""
    engine = Engine(strategy="dfs")
    shared = Select(S, col("v") > 0)
    engine.add("plain", Select(shared, col("v") > 1))
    engine.add("own", Select(shared, col("v") > 2), service=Service(strategy="bfs", breaks=("select",)))
    assert rows(engine)[1:] == [
        ("select0", "-", "-", "BFS-Source-Sink"),
        ("select1", "-", "-", "DFS-Source-Sink"),
        ("select2", "-", "-", "BFS-Source-Sink"),
    ]
    engine.scheduling.use("dfs(5)", ["select2"])
    assert rows(engine)[3][-1] == "DFS(5)-Source-Sink"
    engine.scheduling.use("rr")
    assert [line[-1] for line in rows(engine)[1:]] == ["BFS-Source-Sink", "RR-Source-Sink", "BFS-Source-Sink"]
    engine.scheduling.use_for("own", "chain")
    engine.scheduling.use_for("of another host", "rr")
    assert [line[-1] for line in rows(engine)[1:]] == [
        "Chain-Source-Sink",
        "RR-Source-Sink",
        "Chain-Source-Sink",
    ]
    engine.remove("own")
    engine.scheduling.use("dfs")
    assert rows(engine)[1:] == [
        ("select0", "-", "select1", "DFS-Source"),
        ("select1", "select0", "-", "DFS-Sink"),
    ]


@pytest.mark.parametrize(
    ("service", "code"), [(Service(strategy="dfz"), "HR-S001"), (Service(breaks=("selct",)), "HR-S004")]
)
def test_what_a_query_asks_for_must_exist(service: Service, code: str) -> None:
    engine = Engine()
    with pytest.raises(ScheduleError, match=code) as refused:
        engine.add("q", PATH, service=service)
    assert "did you mean" in refused.value.hint
    assert not engine.graph.sinks
