"""EXPLAIN says where rows are put in order, and where disorder is left."""

from __future__ import annotations

import pyarrow as pa

from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.admission import Rules
from headrace.operators.table import OPERATORS
from headrace.plan.nodes.core import AggregateCall, RStream, Select, SlidingAggregate, Source, Union
from headrace.plan.nodes.windows import Sliding
from headrace.plan.show import LINES
from headrace.time.ets import TimerPromise

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
A, B = Source("a", SCHEMA), Source("b", SCHEMA)
UNION = Union((Select(A, col("v") < 8), B))


def explained(enforce: str, function: str = "count", size: int = 10) -> str:
    engine = Engine(strategy="dfs")
    for source in (A, B):
        engine.streams.declare(source, promise=TimerPromise(5), rules=Rules(True, enforce))
    calls = (AggregateCall("n", function, "v"),)
    engine.add("q", RStream(SlidingAggregate(UNION, ("k",), calls, Sliding(size, 10)), 10))
    return engine.explain("q")


def test_strict_streams_are_ordered_before_an_order_preserving_union() -> None:
    assert explained("strict", "first").splitlines()[:8] == [
        "plan",
        "rstream each 10",
        "  aggregate first(v) AS n by k from panes [RANGE 10 SLIDE 10]",
        "    union, in order of time",
        "      order: rows wait here until no earlier row can arrive",
        "        select v < 8",
        "          stream a (external time)",
        "      order: rows wait here until no earlier row can arrive",
    ]


def test_what_takes_rows_in_any_order_needs_no_sort() -> None:
    assert explained("strict").splitlines()[:5] == [
        "plan",
        "rstream each 10",
        "  aggregate count(v) AS n by k from panes [RANGE 10 SLIDE 10], in any order",
        "    merge: in any order, bounded by heartbeats",
        "      select v < 8",
    ]
    assert "order: rows wait" not in explained("strict")


def test_admitted_streams_are_merged_in_disorder_and_copied_by_window() -> None:
    text = explained("admit", size=20)
    places = [text.index(each) for each in ("in any order", "copy each row for every window", "merge:")]
    assert places == sorted(places)
    assert "order: rows wait" not in text


def test_scheduling_and_heartbeat_arcs_are_shown_in_plain_words() -> None:
    text = explained("strict", "first")
    assert ["order1", "select0", "union3", "dfs"] in [line.split() for line in text.splitlines()]
    assert "a -> order1, input 0" in text
    assert not [word for word in ("ETS", "DFS-Source", "state table") if word in text]


def test_every_plan_node_that_runs_can_be_shown() -> None:
    assert set(OPERATORS) <= set(LINES)
