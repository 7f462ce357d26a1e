"""Sequences: the figures of the paper row by row, equality with the oracle, state that follows the need."""

from __future__ import annotations

import os

import pyarrow as pa
from hypothesis import given, note, settings
from hypothesis import strategies as st

from headrace.expressions import col
from headrace.plan.nodes import Plan, Source
from headrace.plan.sequence import Step
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.testing.plans import Case
from headrace.testing.runs import runs
from headrace.testing.schemas import rows, schemas
from headrace.testing.sequence_plans import sequence_of
from tests.engine.driving import execute

CASES = Source("cases", pa.schema([("line", pa.int64()), ("case", pa.string())]))
PRODUCTS = Source("products", pa.schema([("belt", pa.int64()), ("product", pa.string())]))
STOPS = Source("stops", pa.schema([("at", pa.int64())]))
ONE, OTHER = Step(("line",)), Step(("belt",))


@st.composite
def sequences(draw: st.DrawFn) -> Case:
    """A sequence of two to four streams, some of which may be one stream read twice."""
    sources = [Source(f"s{i}", draw(schemas())) for i in range(draw(st.integers(1, 4)))]
    streams: list[Plan] = []
    for i in range(draw(st.sampled_from([2, 2, 3, 4]))):
        streams.append(_named(draw(st.sampled_from(sources)), i))
    plan = sequence_of(draw, tuple(streams))
    used = sorted({s.input.name for s in streams})  # type: ignore[attr-defined]
    most = 30 if len(streams) == 2 else 12
    return Case(plan, {s.name: draw(rows(s.columns, most)) for s in sources if s.name in used})


def _named(source: Source, index: int) -> Plan:
    from headrace.plan.nodes import Project

    return Project(source, tuple((f"{name}{index}", col(name)) for name in source.columns.names))


@settings(max_examples=int(os.environ.get("HEADRACE_EXAMPLES", "100")))
@given(st.data())
def test_a_sequence_is_what_the_oracle_says_whatever_the_way_of_execution(data: st.DataObject) -> None:
    case = data.draw(sequences())
    run = data.draw(runs(case))
    expected = oracle.stream(case.plan, case.sources)
    note(f"expected {expected}")
    assert_same_stream(execute(case, run), expected, schema=case.plan.schema)
