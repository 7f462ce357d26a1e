"""What an operator holds follows what is live: when everything has expired, nearly nothing is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.aggregate import AggregateOperator
from headrace.operators.contract import Operator, Waiting
from headrace.operators.distinct import DistinctOperator
from headrace.operators.distinct_on import DistinctOnOperator
from headrace.operators.except_ import ExceptOperator
from headrace.operators.join import JoinOperator
from headrace.operators.lag import LagOperator
from headrace.operators.over import OverRangeOperator, OverRowsOperator
from headrace.operators.rows_window import OrderedRowsWindowOperator, RowsWindowOperator
from headrace.operators.session_aggregate import SessionAggregateOperator
from headrace.operators.sliding_aggregate import SlidingAggregateOperator
from headrace.operators.streams import DStreamOperator, IStreamOperator, RStreamOperator
from headrace.operators.top_n import TopNOperator
from headrace.operators.union import UnionOperator
from headrace.operators.window import WindowOperator
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes.core import Plan, Source, Window
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.plan.nodes.over import Over, RangeFrame, RowsFrame
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN, ascending, descending
from headrace.plan.nodes.user_aggregates import user_call
from headrace.plan.nodes.windows import Range, Rows, Sliding
from headrace.state.part import encode
from headrace.time.punctuation import heartbeat
from headrace.time.timestamp import MAX_TIME
from tests.strategies.contracts import Given
from tests.strategies.user_aggregates import MEDIAN, MIXED

COUNT = 6000
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("s", pa.string())])
OTHER = pa.schema([pa.field("l", pa.int64()), pa.field("t", pa.string())])
LEFT, RIGHT, SOURCE = Given("left", SCHEMA), Given("right", OTHER), Source("s", SCHEMA)

CALLS = (nodes.AggregateCall("n", "count"), nodes.AggregateCall("d", "count_distinct", "s"))
MEDIANS, MIXES = (user_call("m", MEDIAN, ("k",)),), (user_call("x", MIXED, ("k", "k")),)
SLIDING = Sliding(100, 10)

Build = Callable[[Any], Operator]
PLANS: dict[str, tuple[Build, Plan]] = {
    "distinct": (DistinctOperator, nodes.Distinct(LEFT)),
    "except": (ExceptOperator, nodes.Except(LEFT, RIGHT)),
    "istream": (IStreamOperator, nodes.IStream(LEFT)),
    "dstream": (DStreamOperator, nodes.DStream(LEFT)),
    "rstream": (RStreamOperator, nodes.RStream(LEFT, 1000)),
    "join": (JoinOperator, nodes.Join(LEFT, RIGHT, ("k",), ("l",))),
    "union": (UnionOperator, nodes.Union((LEFT, RIGHT))),
    "top": (TopNOperator, TopN(LEFT, ("s",), (descending("k"),), 3)),
    "contenders": (TopNOperator, TopN(Window(SOURCE, Range(100)), ("s",), (descending("k"),), 3)),
    "ranks": (TopNOperator, TopN(LEFT, (), (ascending("s"),), 3, "rank")),
    "sessions": (SessionAggregateOperator, SessionAggregate(SOURCE, ("k",), CALLS, 100)),
    "lasting sessions": (SessionAggregateOperator, SessionAggregate(SOURCE, ("s",), CALLS, 10**6)),
    "lag": (LagOperator, Lag(SOURCE, ("s",), (LagCall("before", "k", 2),))),
    "distinct on": (DistinctOnOperator, DistinctOn(SOURCE, ("k",), 100)),
    "over rows": (OverRowsOperator, Over(SOURCE, ("s",), RowsFrame(9), CALLS)),
    "over a range": (OverRangeOperator, Over(SOURCE, ("k",), RangeFrame(99), CALLS)),
    "over a range of a few": (OverRangeOperator, Over(SOURCE, ("s",), RangeFrame(99), CALLS)),
    "rows": (RowsWindowOperator, Window(SOURCE, Rows(10))),
    "kept rows": (AggregateOperator, nodes.Aggregate(LEFT, ("s",), MEDIANS)),
    "kept states": (AggregateOperator, nodes.Aggregate(LEFT, ("s",), MIXES)),
    "rows in panes": (SlidingAggregateOperator, nodes.SlidingAggregate(SOURCE, ("s",), MEDIANS, SLIDING)),
    "states in panes": (SlidingAggregateOperator, nodes.SlidingAggregate(SOURCE, ("s",), MIXES, SLIDING)),
    "states of sessions": (SessionAggregateOperator, SessionAggregate(SOURCE, ("k",), MEDIANS, 100)),
    "partitions": (OrderedRowsWindowOperator, Window(Given("s", SCHEMA, False), Rows(2, ("s",)))),
}


OPEN = (SessionAggregateOperator, SessionAggregate(SOURCE, ("k",), CALLS, 10**6))
OFTEN = SlidingAggregateOperator, nodes.SlidingAggregate(SOURCE, ("k",), MIXES, Sliding(COUNT, 10))
MANY = AggregateOperator, nodes.Aggregate(LEFT, ("k",), MIXES)
WIDE = ("top", "ranks", "sessions", "states of sessions")
"""Those that hold much of each row, so that what they wait with before they forget is more bytes."""


def rows(schema: pa.Schema, contents: Sequence[int], size: int | None) -> Batch:
    columns = [pa.array(contents, pa.int64()), pa.array([f"name {c % 5}" for c in contents])]
    start = np.arange(len(contents), dtype=np.int64)
    end = None if size is None else start + size
    return Batch(pa.RecordBatch.from_arrays(columns, schema=schema), start, end)


def pass_through(build: Build, plan: Plan, size: int, count: int = COUNT) -> tuple[Operator, int, int]:
    """Feed everything in pieces, then end; gives the operator, its greatest state, the size of its input."""
    inputs = [rows(b.schema, range(count), size if b.is_relation else None) for b in plan.inputs]
    operator, arcs = build(plan), [Arc() for _ in inputs]
    operator.connect(arcs)
    peak = 0
    for begin in range(0, count, 50):
        for arc, batch in zip(arcs, inputs, strict=True):
            arc.append(batch.slice(begin, begin + 50))
        operator.execute(1000)
        peak = max(peak, operator.memory.bytes())
    for arc in arcs:
        arc.punctuate(heartbeat(MAX_TIME))
    while operator.more:
        operator.execute(1000)
    operator.execute(1000)
    return operator, peak, sum(batch.bytes() for batch in inputs)


@pytest.mark.parametrize("name", PLANS)
def test_state_follows_what_is_live(name: str) -> None:
    """At no time are more than a few hundred rows valid, and none at the end."""
    operator, peak, whole = pass_through(*PLANS[name], size=100, count=COUNT * (2 if name in WIDE else 1))
    assert peak < whole / 2
    assert operator.memory.bytes() < 50_000


@pytest.mark.parametrize("name", ["distinct", "except", "dstream", "istream", "rstream", "top", "ranks"])
def test_state_is_given_back_after_a_burst(name: str) -> None:
    """Everything is valid at once, then nothing is."""
    operator, peak, whole = pass_through(*PLANS[name], size=COUNT)
    assert peak > whole / 2
    assert operator.memory.bytes() < 50_000


@pytest.mark.parametrize("name", ["distinct", "dstream", "top", "open sessions", "many states", "many panes"])
def test_an_incremental_snapshot_costs_the_change(name: str) -> None:
    build, plan = {**PLANS, "open sessions": OPEN, "many states": MANY, "many panes": OFTEN}[name]
    operator = build(plan)
    assert isinstance(operator, Waiting)
    everything = rows(SCHEMA, range(COUNT), COUNT if plan.inputs[0].is_relation else None)
    feed(operator, everything.slice(0, COUNT - 60))
    full = chunk_sizes(operator, full=True)
    feed(operator, everything.slice(COUNT - 60, COUNT))
    assert chunk_sizes(operator, full=False) <= 0.05 * full


def feed(operator: Waiting, batch: Batch) -> None:
    operator.ingest(0, batch)
    operator.answer(batch.last)


def chunk_sizes(operator: Operator, full: bool) -> int:
    return sum(len(encode(part.changes(full))) for part in operator.state().values())


def test_the_range_of_a_window_is_no_state() -> None:
    """Windows write ends into rows and hold nothing."""
    _, peak, _ = pass_through(WindowOperator, Window(SOURCE, Range(10**6)), size=1)
    assert peak == 0
