"""Random plans in which rewrite rules have something to do (hypothesis strategies)."""

from __future__ import annotations

import operator
from dataclasses import replace
from random import Random

import pyarrow as pa
from hypothesis import note
from hypothesis import strategies as st

from headrace.expressions import Expression, col, lit
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.core import AggregateCall, Plan, Source
from headrace.plan.nodes.top_n import TopN, ascending
from headrace.plan.rewrite import optimize
from headrace.plan.show import show
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.engine.driving import execute
from tests.strategies import legal, plans, schemas
from tests.strategies.plans import Case
from tests.strategies.runs import runs


def assert_optimised_alike(data: st.DataObject, case: Case) -> Plan:
    """The engine gives the oracle's answer by the optimised plan, which is returned."""
    plan = optimize(case.plan)
    note(show(plan))
    better = Case(plan, case.sources)
    answers, _ = execute(better, data.draw(runs(better)))
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)
    return plan


@st.composite
def layered(draw: st.DrawFn) -> Case:
    """A plan in layers, with data."""
    plan = draw(layers())
    count = {0: 24, 1: 16, 2: 10}.get(legal.joins(plan), 7)
    leaves = {each.name: each.columns for each in plans.sources_of(plan) | plans.tables_of(plan)}
    drawn = {name: draw(dense_rows(leaves[name], count)) for name in sorted(leaves)}
    return Case(plan, plans.stamped(plan, drawn))


FEW = {
    schemas.INT: (1, 0, 2, 1),
    schemas.FLOAT: (0.0, 0.5, 1.0),
    schemas.STRING: ("a", "b"),
    schemas.BOOL: (True, False),
}


COMPARED = (operator.ge, operator.le, lambda one, other: one.ne(other), lambda one, other: one.eq(other))


@st.composite
def conditions(draw: st.DrawFn, schema: pa.Schema) -> Expression:
    """Conditions that about half of the rows of `dense_rows` pass; now and then any condition at all."""
    if draw(st.sampled_from([False, False, False, True])):
        return draw(schemas.predicates(schema))
    name = draw(st.sampled_from(schema.names))
    of = schema.field(name).type
    others = [col(other) for other in schemas.names_of(schema, of) if other != name]
    constants = [lit(value, of) for value in FEW[of]]
    one = draw(st.sampled_from(COMPARED))(col(name), draw(st.sampled_from([*constants, *others])))
    another = draw(st.none() | st.sampled_from(schema.names))
    return one if another is None else one & col(another).is_not_null()


@st.composite
def dense_rows(draw: st.DrawFn, schema: pa.Schema, count: int) -> schemas.Rows:
    """So many rows, close in time and much alike: they meet, crowd each other out, pass conditions."""
    seed = Random(draw(st.integers(0, 2**32)))
    nulls = draw(st.sampled_from([0.0, 0.2]))
    rows = [
        (
            seed.randint(0, 10),
            {f.name: None if seed.random() < nulls else seed.choice(FEW[f.type]) for f in schema},
        )
        for _ in range(count)
    ]
    return sorted(rows, key=lambda row: row[0])


@st.composite
def layers(draw: st.DrawFn) -> Plan:
    """Selections and projections above whatever a random relation is, and again above its stream."""
    relation = draw(wrapped() | wrapped() | joined() | plans.relations(3))
    kept = _layers(draw, relation, draw(st.sampled_from([1, 2, 3, 0])))
    tops = [nodes.IStream, nodes.DStream, *([nodes.RStream] if legal.is_finite(kept) else [])]
    return _layers(draw, draw(st.sampled_from(tops))(kept), draw(st.integers(0, 2)))


def _layers(draw: st.DrawFn, plan: Plan, count: int) -> Plan:
    for _ in range(count):
        kind = draw(st.sampled_from(["select", "select", "select", "project", "project", "rename nothing"]))
        if kind == "select":
            plan = nodes.Select(plan, draw(conditions(plan.schema)))
        elif kind == "rename nothing":
            plan = nodes.Project(plan, tuple((name, col(name)) for name in plan.schema.names))
        else:
            drawn = draw(st.lists(schemas.scalars(plan.schema), min_size=1, max_size=3))
            plan = nodes.Project(plan, _named(drawn))
    return plan


def _named(columns: list[tuple[str, Expression]]) -> tuple[tuple[str, Expression], ...]:
    return tuple((f"{name}{i}", expression) for i, (name, expression) in enumerate(columns))


S_COLUMNS = pa.schema([("a", schemas.INT), ("b", schemas.INT), ("c", schemas.STRING)])
CALLS = (AggregateCall("count", "count"), AggregateCall("sum", "sum", "b"))
SPECS: list[windows.WindowSpec] = [
    windows.Now(),
    windows.Range(5),
    windows.Range(2),
    windows.Rows(2),
    windows.Unbounded(),
    windows.Sliding(4, 2),
]


@st.composite
def wrapped(draw: st.DrawFn) -> Plan:
    """One node of any kind over windows."""
    specs = st.sampled_from(SPECS)
    one, other = (nodes.Window(Source(name, S_COLUMNS), draw(specs)) for name in ("s0", "s1"))
    timed = nodes.Window(Source("s0", S_COLUMNS), draw(st.sampled_from([windows.Range(5), windows.Now()])))
    sliding = nodes.Window(Source("s0", S_COLUMNS), windows.Sliding(draw(st.integers(1, 6)), 2))
    kinds: list[Plan] = [
        one,
        *[nodes.Distinct(one)] * 2,
        *[nodes.Except(one, other, draw(st.booleans()))] * 2,
        *[nodes.Union((one, other))] * 3,
        nodes.Granularity(timed, 2),
        nodes.Aggregate(one, ("a", "c"), CALLS),
        nodes.Aggregate(_layers(draw, sliding, 1), (), CALLS[:1]),
        nodes.Aggregate(sliding, ("c",), CALLS),
        nodes.SlidingAggregate(sliding.input, ("a",), CALLS, windows.Sliding(4, 2), ("w_start", "w_end")),
        nodes.Window(sliding.input, windows.Rows(2, ("a", "b"))),
        TopN(one, ("a",), (ascending("b"),), 2, draw(st.sampled_from(["n", None]))),
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def joined(draw: st.DrawFn) -> Plan:
    """Three or four windows joined in a chain, or in a bush, with keys, residuals and equalities above."""
    count = draw(st.integers(3, 4))
    leaves = [_leaf(draw, i) for i in range(count)]
    if count == 4 and draw(st.booleans()):
        tree = _join(draw, _join(draw, leaves[0], leaves[1]), _join(draw, leaves[2], leaves[3]))
    else:
        tree = leaves[0]
        for leaf in leaves[1:]:
            tree = _join(draw, tree, leaf)
    names = schemas.names_of(tree.schema, schemas.INT)
    pairs = st.tuples(st.sampled_from(names), st.sampled_from(names))
    for one, other in draw(st.lists(pairs, max_size=2)):
        tree = nodes.Select(tree, col(one).eq(col(other)))
    return tree


def _leaf(draw: st.DrawFn, index: int) -> Plan:
    source = Source(draw(st.sampled_from(["s0", "s1"])), S_COLUMNS)
    plan: Plan = nodes.Window(source, draw(st.sampled_from(SPECS)))
    if draw(st.booleans()):
        plan = nodes.Select(plan, draw(conditions(plan.schema)))
    return nodes.Project(plan, tuple((f"{name}{index}", col(name)) for name in plan.schema.names))


def _join(draw: st.DrawFn, left: Plan, right: Plan) -> Plan:
    if draw(st.booleans()) and left.inputs and isinstance(left, nodes.Join):
        own = tuple((name, col(name)) for name in left.schema.names)
        first = left.schema.names[0]
        left = nodes.Project(left, (*own, (f"sum{len(own)}", col(first) + 1)))
    keys = [
        (draw(st.sampled_from(schemas.names_of(left.schema, schemas.INT))), name)
        for name in draw(
            st.lists(st.sampled_from(schemas.names_of(right.schema, schemas.INT)), max_size=2, unique=True)
        )
    ]
    plan = nodes.joined(left, right, [nodes.Equality(a, b, draw(st.booleans())) for a, b in keys])
    return replace(plan, residual=draw(conditions(plan.schema))) if draw(st.booleans()) else plan
