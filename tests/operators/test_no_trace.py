"""What has left leaves no trace: sums, means and spreads are those of the rows at hand, to the last bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.sql import Catalog, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

FUNCTIONS = ("sum", "avg", "variance", "var_pop", "stddev", "stddev_pop")
WINDOWS = (
    "[RANGE 3]",
    "[ROWS 2]",
    "[RANGE 4 SLIDE 2]",
    "[RANGE 3 SLIDE 2]",
    "[SESSION 1]",
    "[RANGE 9 SLIDE 1]",
)
HUGE = (
    1e308,
    -1e308,
    1.7976931348623157e308,
    1e17,
    1e33,
    1e300,
    1e154,
    5e-324,
    math.inf,
    -math.inf,
    math.nan,
)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.float64(): st.floats() | st.sampled_from(HUGE) | st.sampled_from([0.1, 0.2, 1.0, 3.0]),
    pa.float32(): st.floats(width=32),
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3),
    pa.uint64(): st.integers(0, 2**64 - 1) | st.integers(0, 3),
    pa.decimal128(38, 5): st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-5)),
}
BY_BITS = {pa.float64(): FUNCTIONS, pa.float32(): FUNCTIONS}
"""Of whole numbers and decimals, means are rounded twice and sums may overflow: spreads are compared."""


def asked(text: str, of: pa.DataType, rows: Sequence[tuple[int, Any]], chunk: int) -> None:
    """The engine's answer, for rows that come in pieces, is that of the oracle, to the last bit."""
    found = query(text, Catalog({"s": pa.schema([("v", of)])}, ticks_per_second=None))
    engine = Engine(now=-1)
    engine.add("q", found.plan)
    for i in range(0, len(rows), chunk):
        piece = rows[i : i + chunk]
        batch = pa.record_batch([pa.array([v for _, v in piece], of)], schema=pa.schema([("v", of)]))
        engine.push("s", batch, [t for t, _ in piece])
        engine.run()
    engine.streams.end("s")
    expected = oracle.stream(found.plan, {"s": [(t, {"v": v}) for t, v in rows]})
    assert_same_stream(engine.drain("q"), expected, relative=0.0, absolute=0.0)


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[pa.DataType, list[tuple[int, Any]]]:
    of = draw(st.sampled_from(list(VALUES)))
    values = draw(st.lists(VALUES[of] | st.none(), min_size=1, max_size=12))
    gaps = draw(st.lists(st.integers(0, 3), min_size=len(values), max_size=len(values)))
    return of, [(sum(gaps[: i + 1]), value) for i, value in enumerate(values)]


@given(arrivals(), st.sampled_from(WINDOWS), st.integers(1, 4), st.data())
def test_an_answer_is_that_of_the_rows_in_the_window(
    given: tuple[pa.DataType, list[tuple[int, Any]]], window: str, chunk: int, data: st.DataObject
) -> None:
    of, rows = given
    function = data.draw(st.sampled_from(BY_BITS.get(of, FUNCTIONS[2:])))
    asked(f"SELECT {function}(v) AS x FROM s {window}", of, rows, chunk)


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("big", [10**16, 1e17, 1e33, 1e300, 1.7e308, math.inf, math.nan])
def test_a_huge_value_that_has_left_is_forgotten(window: str, function: str, big: float) -> None:
    """The variance of small numbers was 0 or 13.8 instead of 4.3, for as long as the group was not empty."""
    rows = [(0, float(big)), (0, float(big)), *((t, float(t * 7 % 9)) for t in range(1, 30))]
    asked(f"SELECT {function}(v) AS x FROM s {window}", pa.float64(), rows, 5)


def test_a_limb_that_only_forgotten_rows_had_takes_no_memory() -> None:
    def held(values: list[float]) -> int:
        engine = Engine(now=-1)
        schema = pa.schema([("k", pa.int64()), ("v", pa.float64())])
        text = "SELECT k, variance(v) AS x FROM s {} GROUP BY k"
        for name, window in (("panes", "[RANGE 4 SLIDE 2]"), ("instants", "[RANGE 4]")):
            engine.add(name, query(text.format(window), Catalog({"s": schema}, ticks_per_second=None)).plan)
        for t, v in enumerate(values):
            columns = [pa.array(range(t % 8, 2000, 8)), pa.array([v] * len(range(t % 8, 2000, 8)))]
            engine.push("s", pa.record_batch(columns, schema=schema), [t] * len(columns[0]))
            engine.run()
        return engine.metrics().memory.state

    tame = [1.5] * 60
    wild = [10.0**e for e in range(-300, 300, 60)] + tame[10:]
    assert held(wild) < 1.1 * held(tame)
