"""Joins: with commas and with ON, of a stream with itself, of many; keys, pushed conditions, residuals."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from headrace.expressions import col
from headrace.flow.batch import Batch
from headrace.operators.join import JoinOperator
from headrace.plan.nodes.core import Join, Plan, Project, Select
from headrace.sql import Catalog
from tests.sql.running import answer, plan_of

BIDS = [(1, 7, 10.0), (3, 8, 20.0), (4, 7, 30.0)]
ITEMS = [(2, 7, "lamp"), (3, 9, "map")]


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for each in plan.inputs:
        yield from nodes(each)


def joins(plan: Plan) -> list[Join]:
    return [each for each in nodes(plan) if isinstance(each, Join)]


def test_a_join_pairs_what_is_valid_together() -> None:
    text = "SELECT name, price FROM bids [RANGE 2] AS b, items [RANGE 5] AS i WHERE b.item = i.id"
    assert answer(text, bids=BIDS, items=ITEMS) == [(2, "lamp", 10.0), (4, "lamp", 30.0)]


def test_on_and_where_are_the_same() -> None:
    comma = "SELECT * FROM bids [RANGE 5] b, items [RANGE 5] i WHERE b.item = i.id AND price > 5"
    inner = "SELECT * FROM bids [RANGE 5] b JOIN items [RANGE 5] i ON b.item = i.id WHERE price > 5"
    crossed = "SELECT * FROM bids [RANGE 5] b CROSS JOIN items [RANGE 5] i WHERE b.item = i.id AND price > 5"
    assert plan_of(comma) == plan_of(inner) == plan_of(crossed)


def test_streams_without_windows_join_all_they_ever_saw() -> None:
    text = "SELECT name FROM bids JOIN items ON item = id"
    assert answer(text, bids=BIDS, items=ITEMS) == [(2, "lamp"), (4, "lamp")]


def test_equalities_are_keys_conditions_on_one_side_are_pushed_the_rest_is_residual() -> None:
    text = """
        SELECT b.item FROM bids [RANGE 5] b, items [RANGE 5] i
        WHERE b.item = i.id AND b.price > 5 AND i.name LIKE 'l%' AND b.price > length(i.name)
    """
    (join,) = joins(plan_of(text))
    assert join.right_keys == ("key",)
    assert join.residual == (col("b.price") > fn_length())
    assert [each.predicate for each in nodes(join) if isinstance(each, Select)] == [
        col("price") > 5,
        col("name").like("l%"),
    ]
    assert answer(text, bids=BIDS, items=ITEMS) == [(2, 7), (4, 7)]


def fn_length() -> object:
    from headrace.expressions import fn

    return fn("length", col("i.name"))


def test_keys_of_different_types_meet_in_their_common_type() -> None:
    (join,) = joins(plan_of("SELECT * FROM bids [NOW] b, items [NOW] i WHERE i.id = b.item"))
    assert join.left_keys == ("b.item",)
    assert join.right.schema.field(join.right_keys[0]).type == pa.int64()


def test_expressions_can_be_keys() -> None:
    text = "SELECT name FROM bids [RANGE 9] b, items [RANGE 9] i WHERE b.item + 1 = i.id - 1"
    (join,) = joins(plan_of(text))
    assert len(join.left_keys) == 1
    assert join.residual is None
    assert answer(text, bids=BIDS, items=ITEMS) == [(3, "map"), (4, "map")]


def test_an_inequality_is_no_key() -> None:
    text = "SELECT name FROM bids [RANGE 2] b, items [RANGE 2] i WHERE b.item < i.id"
    (join,) = joins(plan_of(text))
    assert join.left_keys == ()
    assert answer(text, bids=BIDS, items=ITEMS) == [(3, "map"), (4, "map")]


def test_no_condition_is_every_pair() -> None:
    text = "SELECT item, id FROM bids [RANGE 2], items [RANGE 2]"
    assert answer(text, bids=BIDS[:1], items=ITEMS[:1]) == [(2, 7, 7)]


def test_a_condition_on_no_stream_is_kept() -> None:
    assert answer("SELECT item FROM bids [NOW], items [NOW] WHERE 1 = 2", bids=BIDS, items=ITEMS) == []


def test_a_stream_joins_itself() -> None:
    text = """
        SELECT a.price AS low, b.price AS high FROM bids [RANGE 9] a, bids [RANGE 9] b
        WHERE a.item = b.item AND a.price < b.price
    """
    assert answer(text, bids=BIDS) == [(4, 10.0, 30.0)]


def test_a_star_over_a_join_has_every_column_under_its_own_name() -> None:
    plan = plan_of("SELECT * FROM bids [NOW] a, bids [NOW] b, items")
    assert plan.schema.names == ["item", "price", "item_1", "price_1", "id", "name"]
    assert plan_of("SELECT b.* FROM bids [NOW] a, bids [NOW] b").schema.names == ["item", "price"]


THREE = Catalog(
    {name: pa.schema([("k", pa.int64()), (f"v{name}", pa.string())]) for name in "abcd"},
    ticks_per_second=None,
)


def test_three_streams_are_two_joins_in_from_order() -> None:
    text = "SELECT va, vb, vc FROM a, b, c WHERE a.k = b.k AND b.k = c.k"
    top, below = joins(plan_of(text, THREE))
    assert (top.left_keys, top.right_keys) == (("b.k",), ("c.k",))
    assert (below.left_keys, below.right_keys) == (("a.k",), ("b.k",))
    rows = {"a": [(1, 1, "a"), (1, 2, "x")], "b": [(2, 1, "b")], "c": [(3, 1, "c"), (3, 2, "y")]}
    assert answer(text, THREE, **rows) == [(3, "a", "b", "c")]


def test_an_item_that_a_key_connects_comes_before_one_that_none_does() -> None:
    text = "SELECT va FROM a, b, c WHERE a.k = c.k AND b.k = c.k"
    top, below = joins(plan_of(text, THREE))
    assert below.right_keys == ("c.k",)
    assert (top.left_keys, top.right_keys) == (("c.k",), ("b.k",))


def test_a_condition_on_three_waits_for_the_third() -> None:
    text = "SELECT va FROM a, b, c WHERE concat(va, vb) = vc"
    top, below = joins(plan_of(text, THREE))
    assert (below.left_keys, below.residual) == ((), None)
    assert top.right_keys == ("c.vc",)
    rows = {"a": [(1, 1, "x")], "b": [(2, 1, "y")], "c": [(3, 1, "xy"), (4, 1, "yx")]}
    assert answer(text, THREE, **rows) == [(3, "x")]


def test_on_sees_the_items_so_far() -> None:
    text = "SELECT va, vd FROM a JOIN b ON a.k = b.k JOIN c ON c.k = a.k JOIN d ON d.k = b.k AND vd <> vc"
    rows = {n: [(i, 1, n)] for i, n in enumerate("abcd")}
    assert answer(text, THREE, **rows) == [(3, "a", "d")]


def test_a_relation_joins_a_stream() -> None:
    text = """
        SELECT name, top FROM (SELECT item, max(price) AS top FROM bids [RANGE 9] GROUP BY item) AS best
        JOIN items [NOW] ON best.item = items.id
    """
    assert answer(text, bids=BIDS, items=[(4, 7, "lamp")]) == [(4, "lamp", 30.0)]


def test_a_join_can_be_aggregated() -> None:
    text = """
        SELECT name, count(*) AS n, sum(price) AS total
        FROM bids [RANGE 3] JOIN items ON item = id GROUP BY name HAVING count(*) > 0
    """
    assert answer(text, bids=BIDS, items=ITEMS) == [(2, "lamp", 1, 10.0), (4, "lamp", 1, 30.0)]


def test_columns_of_the_answer_have_no_internal_names() -> None:
    plan = plan_of("SELECT b.item, price FROM bids [NOW] b, items WHERE b.item = id")
    assert isinstance(plan.inputs[0], Project)
    assert plan.schema.names == ["item", "price"]


NULLABLE = Catalog(
    {n: pa.schema([("k", pa.int64()), ("t", pa.string()), (f"v{n}", pa.int64())]) for n in "ab"},
    ticks_per_second=None,
)
SOME = [(1, None, "x", 1), (1, 0, "x", 2), (2, None, None, 3), (2, 7, "", 4)]


@pytest.mark.parametrize("operator", ["<=>", "IS NOT DISTINCT FROM"])
def test_a_null_safe_equality_is_a_key(operator: str) -> None:
    text = f"SELECT va, vb FROM a JOIN b ON a.k {operator} b.k"
    (join,) = joins(plan_of(text, NULLABLE))
    assert [str(each) for each in join.equalities] == ["a.k <=> b.k"]
    assert join.residual is None
    found = answer(text, NULLABLE, a=SOME, b=SOME)
    assert sorted(row[1:] for row in found) == [(1, 1), (1, 3), (2, 2), (3, 1), (3, 3), (4, 4)]


def test_keys_of_one_join_may_be_null_safe_or_not() -> None:
    text = "SELECT va, vb FROM a JOIN b ON a.k <=> b.k AND a.t = b.t"
    (join,) = joins(plan_of(text, NULLABLE))
    assert [str(each) for each in join.equalities] == ["a.k <=> b.k", "a.t = b.t"]
    assert [row[1:] for row in answer(text, NULLABLE, a=SOME, b=SOME)] == [(1, 1), (2, 2), (4, 4)]


@pytest.mark.parametrize("operator", ["=", "<=>"])
@pytest.mark.parametrize("nulls", [0, 5])
def test_a_keyed_join_looks_only_at_pairs_that_are_equal(
    operator: str, nulls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A join on <=> had no keys: 2,000 rows on each side were four million pairs."""
    looked_at = 0
    verify = JoinOperator._verify

    def counted(self: JoinOperator, out: Batch, columns: list[pa.Array]) -> Batch:
        nonlocal looked_at
        looked_at += len(out)
        return verify(self, out, columns)

    monkeypatch.setattr(JoinOperator, "_verify", counted)
    rows = [(0, None if i < nulls else i - nulls, "", i) for i in range(300)]
    found = answer(f"SELECT va, vb FROM a JOIN b ON a.k {operator} b.k", NULLABLE, a=rows, b=rows)
    assert len(found) == 300 - nulls + (nulls * nulls if operator == "<=>" else 0)
    assert looked_at == len(found)
