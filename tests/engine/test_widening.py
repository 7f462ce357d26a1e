"""State goes on under wider columns: what was held as INT is what it would be, had it come as BIGINT."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from headrace.engine import Engine, Snapshot
from headrace.errors import ExpressionError, PlanError
from headrace.flow.batch import Batch
from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import Plan, Source, Table
from headrace.plan.nodes.trees import everywhere
from headrace.schema import Schema
from headrace.sql import StreamDef, query
from headrace.state.part import goes_on, widened
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.engine.driving import engine_for, load_tables
from tests.strategies.plans import Case, cases
from tests.strategies.runs import runs

NARROWER = {pa.int64(): pa.int32(), pa.float64(): pa.float32()}


def narrow(schema: Schema) -> Schema:
    return pa.schema([field.with_type(NARROWER.get(field.type, field.type)) for field in schema])


def narrowed(plan: Plan) -> Plan:
    """The same query over narrower columns; a column that holds times stays as it is."""

    def leaf(node: Plan) -> Plan:
        if not isinstance(node, (Source, Table)) or getattr(node, "stamp", None) is not None:
            return node
        return replace(node, columns=narrow(node.columns))

    return everywhere(plan, leaf)


def as_in(data: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [c.cast(f.type) for c, f in zip(data.columns, schema, strict=True)], schema=schema
    )


def make(engine: Engine, step: tuple) -> None:  # type: ignore[type-arg]
    if step[0] == "push":
        columns = engine.graph.sources[step[1]].schema
        engine.push(step[1], as_in(step[2].data, columns), step[2].start)
    elif step[0] == "advance":
        engine.advance(step[1])
    else:
        engine.streams.end(step[1])


@given(st.data())
def test_state_goes_on_under_wider_columns(data: st.DataObject) -> None:
    """Law: stopped at any step and restored under wider types, the answers are those of one run."""
    case = data.draw(cases())
    run = data.draw(runs(case))
    plan = narrowed(case.plan)
    try:
        check(plan)
    except (
        PlanError,
        ExpressionError,
    ):  # an array or a union of a column with a literal, say, of another type
        assume(False)
    assume(plan != case.plan)
    cut = data.draw(st.integers(0, len(run.steps)))
    loaded = replace(run, load=len(run.steps))
    before, after = engine_for(Case(plan, case.sources), loaded), engine_for(case, loaded)
    tables = {name: table.schema for name, table in before.graph.tables.items()}
    event(f"tables: {len(tables)}")
    load_tables(before, Case(plan, case.sources))
    answers: list[Batch] = []
    for step in run.steps[:cut]:
        make(before, step)
        answers += before.drain("q")
    after.restore([Snapshot.decode(before.snapshot().encode())])
    for step in run.steps[cut:]:
        make(after, step)
        answers += after.drain("q")
    schema = case.plan.schema
    wide = [replace(each, data=as_in(each.data, schema)) for each in answers]
    assert_same_stream(wide, oracle.stream(case.plan, case.sources), schema=schema)


AGGREGATES = """SELECT k, sum(v) AS s, avg(v) AS a, min(v) AS b, max(v) AS c, first(v) AS d, last(v) AS e,
                count(distinct v) AS f, stddev(v) AS g
                FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"""
VALUES = {
    (pa.int8(), pa.int64()): (100, 2**40),
    (pa.int16(), pa.int32()): (30_000, 2**30),
    (pa.float32(), pa.float64()): (1.5, 1e300),
    (pa.decimal128(5, 2), pa.decimal128(17, 2)): (Decimal("123.45"), Decimal("123456789012345.67")),
    (pa.decimal128(20, 2), pa.decimal128(38, 2)): (Decimal("123.45"), Decimal(10**30)),
}


@pytest.mark.parametrize(("old", "new"), VALUES, ids=str)
def test_every_aggregate_and_key_goes_on(old: pa.DataType, new: pa.DataType) -> None:
    """Values that only the new type holds meet state of the old one, as keys and as values."""
    small, great = VALUES[old, new]

    def engine(of: pa.DataType) -> Engine:
        schema = pa.schema([("k", of), ("v", of), ("ts", pa.int64())])
        made = Engine()
        asked = query(AGGREGATES, [StreamDef("s", schema, time_column="ts")])
        made.add("q", asked.plan)
        return made

    def push(into: Engine, value: object, *times: int) -> None:
        schema = into.graph.sources["s"].schema
        rows = [{"k": small, "v": value, "ts": t} for t in times] + [
            {"k": value, "v": small, "ts": times[-1]}
        ]
        into.push("s", pa.RecordBatch.from_pylist(rows, schema), [row["ts"] for row in rows])

    before, after, whole = engine(old), engine(new), engine(new)
    push(before, small, 1, 2)
    push(whole, small, 1, 2)
    after.restore(before.snapshot())
    for each in (after, whole):
        push(each, great, 3, 4)
        each.streams.end("s")
        each.run()
    found, expected = ([b.data for b in each.drain("q")] for each in (after, whole))
    assert pa.Table.from_batches(found).to_pylist() == pa.Table.from_batches(expected).to_pylist()
    assert sum(b.num_rows for b in found) == 2


TYPES = [*NARROWER, *NARROWER.values(), pa.int8(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us")]
TYPES += [
    pa.timestamp("us", "UTC"),
    pa.decimal128(5, 2),
    pa.decimal128(18, 2),
    pa.decimal128(19, 2),
    pa.decimal128(9, 3),
]


@given(st.sampled_from(TYPES), st.sampled_from(TYPES), st.sampled_from(TYPES))
def test_what_goes_on_is_an_order(a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
    assert goes_on(a, a)
    if goes_on(a, b) and goes_on(b, a):
        assert a == b
    if goes_on(a, b) and goes_on(b, c):
        assert goes_on(a, c)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.float64()),
        (pa.int32(), pa.string()),
        (pa.float64(), pa.float32()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.decimal128(5, 2), pa.decimal128(5, 3)),
        (pa.decimal128(18, 2), pa.decimal128(19, 2)),
    ],
)
def test_what_is_not_exact_does_not_go_on(old: pa.DataType, new: pa.DataType) -> None:
    assert not goes_on(old, new)
    rows = pa.RecordBatch.from_arrays([pa.nulls(1, old)], ["v"])
    assert widened(rows, pa.schema([("v", new)])).schema == rows.schema
