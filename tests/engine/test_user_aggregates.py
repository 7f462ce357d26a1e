"""User-defined aggregates under every way of executing them: mergeable or not, expiring or not, restarted."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.expressions import col
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.core import Plan, Source
from headrace.plan.nodes.session import SessionAggregate
from tests.engine.driving import assert_oracles_answer
from tests.laws import effort
from tests.strategies.plans import Case
from tests.strategies.runs import runs
from tests.strategies.schemas import rows
from tests.strategies.user_aggregates import calls_on

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("s", pa.string())])
BOTH = (Source("a", SCHEMA), Source("b", SCHEMA))
KEYS = ((), ("k",), ("s",), ("k", "s"))


def windowed(draw: st.DrawFn, stream: Plan) -> Plan:
    spec = draw(
        st.sampled_from(
            [
                windows.Range(draw(st.integers(1, 9))),
                windows.Sliding(draw(st.integers(1, 9)), draw(st.integers(1, 5))),
                windows.Unbounded(),
                windows.Rows(draw(st.integers(1, 5))),
                windows.Rows(draw(st.integers(1, 3)), ("s",)),
                windows.Now(),
            ]
        )
    )
    return nodes.Window(stream, spec)


def joined(draw: st.DrawFn, stream: Plan) -> Plan:
    """Pairs: they begin and end with either of their parts."""
    right = nodes.Project(windowed(draw, BOTH[1]), (("k2", col("k")), ("w", col("v"))))
    return nodes.Join(windowed(draw, stream), right, ("k",), ("k2",))


def counted(draw: st.DrawFn, stream: Plan) -> Plan:
    """Rows that are withdrawn, because they are aggregates themselves."""
    calls = (nodes.AggregateCall("v", "max", "v"), nodes.AggregateCall("n", "count"))
    return nodes.Aggregate(windowed(draw, stream), ("k", "s"), calls)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    stream: Plan = draw(st.sampled_from([BOTH[0], nodes.Union(BOTH)]))
    kind = draw(st.sampled_from(["sliding", "session", "instants", "instants", "joined", "counted"]))
    keys = draw(st.sampled_from(KEYS))
    below = {"instants": windowed, "joined": joined, "counted": counted}.get(kind, lambda _, same: same)(
        draw, stream
    )
    legal = calls_on(below.schema, ordered=kind not in ("joined", "counted"))
    drawn = draw(st.lists(st.sampled_from(legal), min_size=1, max_size=3))
    calls = tuple(replace(call, name=f"{call.function}_{i}") for i, call in enumerate(drawn))
    if kind == "sliding":
        window = windows.Sliding(draw(st.integers(1, 12)), draw(st.integers(1, 4)))
        plan: Plan = nodes.SlidingAggregate(below, keys, calls, window)
    elif kind == "session":
        plan = SessionAggregate(below, keys, calls, draw(st.integers(1, 4)))
    else:
        plan = nodes.Aggregate(below, keys, calls)
    most = 12 if kind == "joined" else 40
    return Case(nodes.IStream(plan), {source.name: draw(rows(SCHEMA, most)) for source in BOTH})


@effort(2, "any plan with any aggregate")
@given(st.data())
def test_a_users_aggregate_is_the_oracles_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(cases())
    assert_oracles_answer(case, data.draw(runs(case)))
