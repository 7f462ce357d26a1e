"""Clauses that the language may not know yet: what it makes of the text, it makes of the builder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace import Catalog, HeadraceError, Query, query, stream
from headrace.builder import Builder, missing, repeated, sequence
from headrace.plan.nodes import Plan
from headrace.sql import Code
from tests.sql.running import STREAMS

CATALOG = Catalog(STREAMS)
bids, items = stream("bids", CATALOG), stream("items", CATALOG)
x, y, z = (bids.alias(name) for name in "xyz")
CASES: dict[str, tuple[str, Callable[[], Builder]]] = {
    "sequence": (
        "SELECT x.price, y.price AS p FROM SEQ(bids AS x, bids AS y) RECENT",
        lambda: sequence(x, y, mode="recent").select("x.price", p="y.price"),
    ),
    "sequence by a key": (
        "SELECT x.item, y.price FROM SEQ(bids AS x, bids AS y) CHRONICLE"
        " PARTITION BY item WITHIN 1 HOUR STRICT",
        lambda: sequence(x, y, mode="chronicle", partition_by="item", within="1 hour", strict=True).select(
            "x.item", "y.price"
        ),
    ),
    "missing": (
        "SELECT x.price FROM SEQ(bids AS x, NOT items AS i, bids AS y) UNRESTRICTED WHERE x.price < y.price",
        lambda: (
            sequence(x, missing(items.alias("i")), y, mode="unrestricted")
            .where("x.price < y.price")
            .select("x.price")
        ),
    ),
    "repeated": (
        "SELECT y.price FROM SEQ(bids+ AS x, bids AS y) CHRONICLE WITHIN 5 MINUTES",
        lambda: sequence(repeated(x), y, mode="chronicle", within="5 minutes").select("y.price"),
    ),
    "window of a sequence": (
        "SELECT count(*) AS n FROM SEQ(bids AS x, bids AS y) RECENT [RANGE 1 HOUR]",
        lambda: sequence(x, y, mode="recent").window("1 hour").agg(n="count(*)"),
    ),
    "lag": (
        "SELECT item, price - LAG(price) OVER (PARTITION BY item) AS rise FROM bids",
        lambda: bids.select("item", rise="price - LAG(price) OVER (PARTITION BY item)"),
    ),
}


def outcome(of: Callable[[], Query]) -> Plan | str:
    """The plan, or the code of the refusal."""
    try:
        return of().plan
    except HeadraceError as error:
        return error.code


@pytest.mark.parametrize("name", CASES)
def test_the_same_plan_or_the_same_refusal(name: str) -> None:
    text, compose = CASES[name]
    expected = outcome(lambda: query(text, CATALOG))
    assert outcome(lambda: compose().named("q")) == expected
    if isinstance(expected, str):
        pytest.skip(f"the language says {expected}")


def test_a_mode_that_is_none_and_no_steps_are_refused() -> None:
    for wrong in (lambda: sequence(x, y, mode="recently"), lambda: sequence(mode="recent")):
        with pytest.raises(HeadraceError) as caught:
            wrong()
        assert caught.value.code == Code.SYNTAX
        assert caught.value.hint
