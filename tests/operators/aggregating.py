"""Wider rows than `tests.strategies.schemas` draws: more types, NaN, infinities, large numbers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.aggregates import library
from headrace.operators.contract import Operator
from headrace.plan.nodes.core import AggregateCall, Plan, Source
from headrace.plan.nodes.user_aggregates import UserCall, user_call
from headrace.schema import DataType, Schema
from headrace.testing.compare import canonical_row
from headrace.testing.oracle import Element
from headrace.time.timestamp import MAX_TIME
from tests.strategies.contracts import Case, Given, Signed, Trial, assert_means, batch_of
from tests.strategies.user_aggregates import calls_on

FLOATS = st.floats() | st.sampled_from(
    [0.0, 0.1, 0.2, -0.3, 1e16, -1e16, 1.0, math.nan, math.inf, -math.inf, 123456.789, 1e308, 5e-324]
)
VALUES: dict[DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-3, 3) | st.sampled_from([2**57, 2**57 + 1, -(2**57)]),
    pa.float64(): FLOATS,
    pa.string(): st.sampled_from(["a", "b", "", "ab", "aa", "ä", "z"]),
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 5) | st.just(2**63 + 7),
    pa.float32(): st.sampled_from([0.5, -0.25, math.nan, 1.0, math.inf]),
    pa.decimal128(9, 2): st.integers(-500, 500).map(lambda n: Decimal(n).scaleb(-2)),
    pa.decimal128(38, 3): st.sampled_from([-1, 0, 10**24, -(10**24) + 1, 7]).map(
        lambda n: Decimal(n).scaleb(-3)
    ),
    pa.binary(): st.sampled_from([b"", b"x", b"xy"]),
}
NUMBERS = ("sum", "avg")
SPREADS = ("variance", "var_pop", "stddev", "stddev_pop")
COMPARED = ("count", "count_distinct", "min", "max")
PLACED = ("first", "last")


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """A key and a value, or more."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=2, max_size=3))
    return pa.schema(list(zip("abc", types, strict=False)))


@st.composite
def calls(draw: st.DrawFn, schema: Schema, placed: bool) -> tuple[AggregateCall, ...]:
    """Some aggregates, each over a column that it takes."""
    legal: list[tuple[str, str | None]] = [(f, n) for f in COMPARED + PLACED * placed for n in schema.names]
    numeric = [f.name for f in schema if not (pa.types.is_boolean(f.type) or _is_text(f.type))]
    legal += [(f, n) for f in NUMBERS for n in numeric if (f, schema.field(n).type) != ("sum", pa.uint64())]
    legal += [(f, n) for f in SPREADS for n in numeric]
    known = [AggregateCall("", f, name) for f, name in [("count", None), *legal]]
    known += [*calls_on(schema, placed), *library_calls(schema, numeric, placed)]
    drawn = draw(st.lists(st.sampled_from(known), min_size=1, max_size=4))
    return tuple(replace(call, name=f"{call.function}_{i}") for i, call in enumerate(drawn))


def library_calls(schema: Schema, numeric: list[str], placed: bool) -> list[UserCall]:
    """The aggregates of the library over columns that they take."""
    names = schema.names
    found = [(each, (x, y)) for each in (library.MAX_BY, library.MIN_BY) for x in names for y in names]
    shares = (library.MEDIAN, library.percentile(0.3), library.percentile(1.0))
    found += [(each, (x,)) for each in shares for x in numeric]
    found += [(library.COLLECT_SET, (x,)) for x in names]
    found += [(library.nearest_rank(share), (x,)) for share in (0.0, 0.3, 1.0) for x in numeric]
    found += [(library.greatest(2, distinct), (x,)) for distinct in (False, True) for x in names]
    whole = [x for x in numeric if pa.types.is_int64(schema.field(x).type)]
    found += [(each, (x,)) for each in (library.BIT_AND, library.BIT_OR, library.BIT_XOR) for x in whole]
    reals = [field.name for field in schema if field.type == pa.float64()]
    pairs = (library.CORR, library.COVAR_POP, library.COVAR_SAMP)
    found += [(each, (x, y)) for each in pairs for x in reals for y in reals]
    if placed:
        texts = [field.name for field in schema if field.type == pa.string()]
        found += [(library.COLLECT_LIST, (x,)) for x in names]
        found += [(library.listagg(delimiter), (x,)) for delimiter in ("", ", ") for x in texts]
    return [user_call(each.name, each, columns) for each, columns in found]


def _is_text(type: DataType) -> bool:
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


@st.composite
def keys(draw: st.DrawFn, schema: Schema) -> tuple[str, ...]:
    return tuple(draw(st.lists(st.sampled_from(schema.names), max_size=2, unique=True)))


@st.composite
def happenings(draw: st.DrawFn, schema: Schema, most: int = 30) -> list[tuple[int, tuple[Any, ...]]]:
    """Rows with times, in order, many of them simultaneous, some far apart."""
    nullable = draw(st.booleans())
    columns = [VALUES[f.type] | st.none() if nullable else VALUES[f.type] for f in schema]
    times = st.integers(-6, 12) | st.sampled_from([-1000, 10**6, 10**15])
    drawn = draw(st.lists(st.tuples(times, st.tuples(*columns)), min_size=1, max_size=most))
    return [(t, canonical_row(row)) for t, row in sorted(drawn, key=lambda e: e[0])]


@st.composite
def streams(draw: st.DrawFn, schema: Schema) -> tuple[Plan, Any, Any]:
    """A source, or another stream, whose simultaneous rows then go by content."""
    happened = draw(happenings(schema))
    batch = batch_of([Signed(row, t) for t, row in happened], schema)
    if draw(st.booleans()):
        return Given("s", schema, relation=False), batch, [Element(row, t, t) for t, row in happened]
    return Source("s", schema), batch, [(t, dict(zip(schema.names, row, strict=True))) for t, row in happened]


@st.composite
def relations(draw: st.DrawFn, schema: Schema, withdraws: bool) -> tuple[Plan, Any, Any]:
    """A relation: ends declared at the start, or later by a withdrawal, or never."""
    elements: list[Element] = []
    signed: list[Signed] = []
    kinds = ["declared", "open", *["withdrawn", "cut"] * withdraws]
    for time, row in draw(happenings(schema)):
        end, kind = time + draw(st.integers(1, 9)), draw(st.sampled_from(kinds))
        told = {"declared": end, "cut": end + draw(st.integers(1, 5))}.get(kind, MAX_TIME)
        signed.append(Signed(row, time, told))
        if kind in ("withdrawn", "cut"):
            signed.append(Signed(row, end, told, -1))
        elements.append(Element(row, time, MAX_TIME if kind == "open" else end))
    return Given("r", schema), batch_of(signed, schema), elements


def check(build: Callable[[Any], Operator], plan: Plan, below: tuple[Plan, Any, Any], seed: int) -> Trial:
    """Run the operator in some way and compare with the oracle."""
    case = Case(plan, (below[1],), {below[0].name: below[2]})  # type: ignore[attr-defined]
    trial = Trial(build, case, random.Random(seed).randrange)
    assert_means(trial.run(), case)
    return trial
