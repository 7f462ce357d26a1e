"""Where RSTREAM remembers nothing, each row is valid at one tick only."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace import Engine, StreamDef, query
from headrace.expressions import col
from headrace.operators.streams import RStreamOperator
from headrace.plan.analysis.istream_state import ticks_of
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.windows import Range, Sliding, Ticks
from headrace.plan.rewrite import optimize
from tests.laws import effort
from tests.plan.rewriting import assert_optimised_alike
from tests.strategies.plans import Case

INT = pa.int64()
S, R = Source("s", pa.schema([("k", INT), ("v", INT)])), Source("r", pa.schema([("j", INT), ("w", INT)]))
SIDE = Table("d", pa.schema([("id", INT)]))


def counted(source: Source = S, size: int = 4, slide: int = 2) -> Plan:
    key = source.schema.names[0]
    return SlidingAggregate(
        source, (key,), (AggregateCall(f"n_{key}", "count"),), Sliding(size, slide), (f"b_{key}", f"e_{key}")
    )


ONCE = {
    "sliding": (counted(), 2),
    "tumbling": (counted(slide=4), 4),
    "less than its slide": (counted(size=1, slide=3), 3, 1),
    "not a multiple of its slide": (counted(size=5, slide=3), 3, 2),
    "having": (Select(counted(), col("n_k") > 1), 2),
    "projected": (Project(counted(), (("x", col("n_k")),)), 2),
    "union": (Union((counted(), counted(R))), 2),
    "join": (Join(counted(), counted(R), ("k",), ("j",)), 2),
    "table": (Join(counted(), SIDE, ("k",), ("id",)), 2),
    "sessions": (SessionAggregate(S, ("k",), (AggregateCall("n", "count"),), 3), 1),
}
OFTEN = {
    "window": Window(S, Sliding(4, 2)),
    "range": Window(S, Range(4)),
    "other slides": Union((counted(), counted(R, slide=4))),
    "other ends": Union((counted(), counted(R, size=5))),
    "window joined": Join(counted(), Window(R, Range(3)), ("k",), ("j",)),
    "aggregate above": Aggregate(counted(), (), (AggregateCall("m", "max", "n_k"),)),
    "distinct": Distinct(Project(counted(), (("x", col("n_k")),))),
}


@pytest.mark.parametrize("name", ONCE)
def test_a_row_is_valid_at_one_tick(name: str) -> None:
    plan, *ticks = ONCE[name]
    slide, phase = Ticks(*ticks).slide, Ticks(*ticks).phase
    assert ticks_of(plan) == Ticks(*ticks)
    assert optimize(RStream(plan, slide, phase)) == RStream(optimize(plan), slide, phase, once=True)
    assert optimize(RStream(plan, slide + 1, phase)) == RStream(optimize(plan), slide + 1, phase)
    if slide > 1:
        other = (phase + 1) % slide
        assert optimize(RStream(plan, slide, other)) == RStream(optimize(plan), slide, other)


@pytest.mark.parametrize("name", OFTEN)
def test_a_row_may_be_valid_at_several_ticks(name: str) -> None:
    assert ticks_of(OFTEN[name]) is None


@st.composite
def cases(draw: st.DrawFn) -> Case:
    sized = st.tuples(st.integers(1, 5), st.integers(1, 3))
    plans = [
        counted(S, *draw(sized)),
        Union((counted(S, *draw(sized)), counted(R, *draw(sized)))),
        Join(counted(S, *draw(sized)), counted(R, *draw(sized)), ("k",), ("j",)),
        Join(counted(S, *draw(sized)), SIDE, ("k",), ("id",)),
        SessionAggregate(S, ("k",), (AggregateCall("n", "count"),), draw(st.integers(1, 4))),
    ]
    rows = st.lists(st.tuples(st.integers(-3, 12), st.integers(0, 2), st.integers(0, 2)), max_size=14)
    sources = {
        name: sorted(((t, {k: a, v: b}) for t, a, b in draw(rows)), key=lambda each: each[0])
        for name, k, v in (("s", "k", "v"), ("r", "j", "w"))
    }
    sources["d"] = [(0, {"id": each}) for each in draw(st.sets(st.integers(0, 2)))]
    slide = draw(st.integers(1, 3))
    return Case(RStream(draw(st.sampled_from(plans)), slide, draw(st.integers(0, slide - 1))), sources)


@effort(4, "few of the plans report at one tick only")
@given(st.data())
def test_the_answer_is_that_of_the_oracle(data: st.DataObject) -> None:
    plan = assert_optimised_alike(data, data.draw(cases()))
    assert isinstance(plan, RStream)
    event(f"once: {plan.once}")


def test_a_sliding_query_remembers_panes_only() -> None:
    stream = StreamDef("s", S.schema, ticks_per_second=None)
    asked = query(
        "SELECT k, count(*) AS n FROM s [RANGE 4 SLIDE 2] GROUP BY k", [stream], ticks_per_second=None
    )
    assert "each row once" in str(asked.explain())
    engine = Engine()
    engine.add("q", asked)
    engine.push("s", pa.RecordBatch.from_pydict({"k": [1, 1], "v": [0, 0]}, schema=S.schema), [1, 2])
    engine.streams.end("s")
    assert [(b.start.tolist(), b.data.column("n").to_pylist()) for b in engine.drain()] == [
        ([1, 3, 5], [1, 2, 1])
    ]
    assert not any(isinstance(node.operator, RStreamOperator) for node in engine.graph.nodes)
