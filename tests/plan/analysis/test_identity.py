"""The fingerprint of a plan: what it depends on, and what it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from headrace.plan.analysis.identity import fingerprint
from headrace.plan.analysis.ordering import Order
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.trees import walk
from headrace.sql import Catalog, StreamDef, query
from tests.strategies.plans import plans

BIDS = {"at": pa.timestamp("us"), "auction": pa.int32(), "price": pa.int32(), "bidder": pa.string()}


def plan(text: str, **types: pa.DataType) -> Plan:
    streams = [
        StreamDef("bids", pa.schema(BIDS | types), time_column="at"),
        StreamDef("asks", pa.schema(BIDS | types), time_column="at"),
    ]
    return query(text, streams).plan


def top(text: str, **types: pa.DataType) -> str:
    """The fingerprint of the node under the projection that names the columns of the answer."""
    return fingerprint(plan(text, **types))


GROUPED = "SELECT auction, max(price) AS m FROM bids [RANGE 9 SECONDS] WHERE price + 1 > 3 GROUP BY auction"
QUERIES = [
    GROUPED,
    "SELECT auction, avg(price) AS m FROM bids [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY auction",
    "SELECT a.price, b.bidder FROM asks [RANGE 5 SECONDS] AS a, bids [NOW] AS b WHERE a.auction = b.auction",
    "SELECT auction, sum(price) AS s FROM bids [SESSION 3 SECONDS] GROUP BY auction",
    "SELECT auction, CAST(price AS BIGINT) AS p FROM bids [ROWS 3]",
    "SELECT DISTINCT auction FROM bids [RANGE 5 SECONDS]",
]


@pytest.mark.parametrize("text", QUERIES)
def test_wider_and_further_columns_are_no_difference(text: str) -> None:
    assert top(text) == top(text, auction=pa.int64(), price=pa.int64())
    if "ROWS" not in text:  # the newest rows are kept whole
        assert top(text) == top(text, more=pa.string())
    assert top(text) != top(text, auction=pa.string())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (GROUPED, GROUPED.replace("AS m", "AS most")),
        (
            "SELECT max(price) AS m FROM bids [RANGE MIN 2 SECONDS, MAX 9 SECONDS]",
            "SELECT max(price) AS m FROM bids [RANGE MIN 3 SECONDS, MAX 7 SECONDS]",
        ),
        ("SELECT price AS a FROM bids [RANGE 3 SECONDS]", "SELECT price AS b FROM bids [RANGE 3 SECONDS]"),
    ],
)
def test_names_and_bounds_are_no_difference(one: str, other: str) -> None:
    assert top(one) == top(other)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("9 SECONDS", "8 SECONDS"),
        ("max(price)", "min(price)"),
        ("max(price)", "max(auction)"),
        ("GROUP BY auction", "GROUP BY auction, bidder"),
        ("> 3", "> 4"),
        ("price + 1", "price - 1"),
        ("FROM bids", "FROM asks"),
    ],
)
def test_what_is_computed_is_a_difference(old: str, new: str) -> None:
    assert top(GROUPED) != top(GROUPED.replace(old, new))


def test_columns_that_change_places_are_a_difference() -> None:
    text = "SELECT DISTINCT {} FROM bids [RANGE 5 SECONDS]"
    assert top(text.format("auction, price")) != top(text.format("price, auction"))
    assert top(text.format("auction AS x, price AS y")) != top(text.format("price AS x, auction AS y"))


def test_a_sort_is_no_difference_for_what_is_above_it() -> None:
    above = plan(GROUPED)
    sorted_ = above.with_inputs((Order(above.inputs[0]),))
    assert fingerprint(above) == fingerprint(sorted_)


def test_user_defined_functions_count_by_name_and_not_by_address() -> None:
    def fingerprint_with(function: Callable[[pa.Array], pa.Array]) -> str:
        catalog = Catalog([StreamDef("bids", pa.schema(BIDS), time_column="at")])
        catalog.register_function("twice", function, result=pa.int32())
        return fingerprint(query("SELECT DISTINCT twice(price) AS p FROM bids [NOW]", catalog).plan)

    assert fingerprint_with(lambda x: pc.add(x, x)) == fingerprint_with(lambda x: pc.multiply(x, 2))


@given(plans())
def test_every_plan_has_one_and_different_nodes_have_different_ones(plan: Plan) -> None:
    """Law: it is computed for every node, and equal for equal plans."""
    for each in walk(plan):
        assert fingerprint(each) == fingerprint(each.with_inputs(each.inputs))
        assert all(fingerprint(below) != fingerprint(each) for below in each.inputs)


def test_it_is_the_same_in_every_process() -> None:
    code = "from tests.plan.analysis.test_identity import *; print(*map(top, QUERIES))"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout.split()
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] == [top(text) for text in QUERIES]
