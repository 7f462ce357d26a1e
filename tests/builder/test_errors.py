"""What is wrong is said by the call that is wrong, with a code, the place and a hint."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import HeadraceError, StreamDef, col, lit, stream, table
from headrace.builder import Builder, aggregate, count, expr, max_, sequence
from headrace.errors import SqlError
from headrace.sql.fragments import expression
from headrace.sql.parser.parse import parse
from headrace.sql.place import reporting
from tests.sql.mutation import mutations, words_of
from tests.sql.running import BIDS, ITEMS, STREAMS

bids: Any = stream("bids", BIDS)
ROWS = pa.table({"id": pa.array([1], pa.int32())})
items: Any = stream("items", ITEMS)
CASES: dict[str, tuple[Callable[[], object], str, str]] = {
    "column": (lambda: bids.where("prise > 3"), "HR-Q011", "did you mean 'price'?"),
    "column in Python": (lambda: bids.where(col("prise") > 3), "HR-Q011", "did you mean 'price'?"),
    "column of a key": (
        lambda: bids.window("1 hour").group_by("itm").agg(),
        "HR-Q011",
        "did you mean 'item'?",
    ),
    "function": (lambda: bids.select("uper(item)"), "HR-Q013", "did you mean 'upper'?"),
    "aggregate": (lambda: bids.window(1).agg(n=aggregate("maxx", "price")), "HR-Q013", "did you mean 'max'?"),
    "types": (lambda: bids.where("item + 'a' > true"), "HR-Q014", ""),
    "condition": (lambda: bids.where("price + 1"), "HR-Q017", "write a comparison, such as x > 0"),
    "stream": (lambda: stream("bid", STREAMS), "HR-Q010", "did you mean 'bids'?"),
    "stream of nothing": (lambda: stream("bids"), "HR-Q010", "declare it"),
    "no stream": (lambda: stream(7), "HR-Q063", "StreamDefs"),  # type: ignore[arg-type]
    "unit": (lambda: bids.window("10 minuts"), "HR-Q021", "did you mean 'MINUTES'?"),
    "duration": (lambda: bids.window(1.5), "HR-Q021", "timedelta"),
    "no duration": (lambda: bids.window(dt.timedelta(0)), "HR-Q021", ""),
    "negative": (lambda: bids.window(-5), "HR-Q021", ""),
    "seconds of sequence numbers": (
        lambda: stream("bids", BIDS, ticks_per_second=None).window("1 hour"),
        "HR-Q021",
        "without a unit",
    ),
    "no window": (bids.window, "HR-Q020", "possible arguments"),
    "two windows": (lambda: bids.window("1 hour", rows=3), "HR-Q020", "range and slide"),
    "rows": (lambda: bids.window(rows=0), "HR-Q020", ""),
    "window on a relation": (lambda: bids.window(now=True).window(now=True), "HR-Q022", "istream"),
    "unwindowed aggregate": (lambda: bids.agg(n=count()), "HR-Q030", "[RANGE 10 MINUTES]"),
    "nested aggregate": (lambda: bids.window(1).agg(n=max_(count())), "HR-Q031", ""),
    "not grouped": (lambda: bids.window(1).group_by("item").agg("price"), "HR-Q032", ""),
    "having without groups": (lambda: bids.having("price > 3"), "HR-Q034", "use WHERE"),
    "same name": (lambda: bids.join(bids), "HR-Q018", "AS"),
    "two meanings": (lambda: bids.join(stream("bids", ITEMS).alias("b")), "HR-Q060", "rename one"),
    "two tables": (
        lambda: bids.join(table("t", ROWS)).join(table("t", ROWS.slice(0)).alias("u")),
        "HR-Q060",
        "rename one",
    ),
    "no rows": (lambda: table("t"), "HR-Q063", "read_table"),
    "tables only": (lambda: table("t", ROWS).named("q"), "HR-Q067", "join the table with a stream"),
    "time domains": (
        lambda: bids.join(stream(StreamDef("s", ITEMS, ticks_per_second=None))),
        "HR-Q023",
        "ticks_per_second",
    ),
    "columns of a union": (lambda: bids.union(items.select("id")), "HR-Q041", "same number"),
    "key without a name": (
        lambda: bids.alias("x").join(bids.alias("y")).distinct().join(items, on="id"),
        "HR-Q012",
        "alias",
    ),
    "top by nothing": (lambda: bids.window(1).top(3, by=[]), "HR-Q001", "price DESC"),
    "top of none": (lambda: bids.window(1).top(0, by="price"), "HR-Q020", ""),
    "top by what is not there": (lambda: bids.window(1).select("item").top(1, by="price"), "HR-Q011", "item"),
    "top by more": (lambda: bids.window(1).top(1, by="price) <= 1 OR (1"), "HR-Q001", ""),
    "a session row by row": (lambda: bids.window(session=9).select("item"), "HR-Q024", ""),
    "a session as it is": (lambda: bids.window(session=9).named("q"), "HR-Q024", ""),
    "a session joined": (lambda: items.join(bids.window(session=9)), "HR-Q024", ""),
    "no mode": (lambda: sequence(bids, items, mode="recently"), "HR-Q001", "did you mean 'recent'?"),
    "no steps": (lambda: sequence(mode="recent"), "HR-Q001", "first, second"),
    "no stream in a sequence": (lambda: bids.sequence("items", mode="recent"), "HR-Q063", "headrace.stream"),
    "a name for a sequence": (
        lambda: bids.sequence(items, mode="recent").alias("s").select("s.nothing"),
        "HR-Q011",
        "",
    ),
    "endless": (bids.rstream, "HR-Q051", "[NOW]"),
    "meaningless": (bids.dstream, "HR-Q050", "[RANGE 10 MINUTES]"),
    "half an expression": (lambda: bids.where("price >"), "HR-Q001", ""),
    "two expressions": (lambda: bids.where("price, item"), "HR-Q001", ""),
    "two statements": (lambda: bids.where("price > 1; item > 2"), "HR-Q001", "separate arguments"),
    "nothing": (lambda: bids.select(""), "HR-Q001", ""),
    "more than a condition": (lambda: bids.where("price > 1 GROUP BY item"), "HR-Q001", ""),
    "a name in a condition": (lambda: bids.where("price > 1 AS x"), "HR-Q002", "remove AS"),
    "no expression": (lambda: bids.where(5), "HR-Q001", ""),
    "no expression either": (lambda: bids.select(x=None), "HR-Q001", ""),
    "no other": (lambda: bids.join("items"), "HR-Q063", "headrace.stream"),
    "no other either": (lambda: bids.union(7), "HR-Q063", "headrace.stream"),
    "no name": (lambda: bids.named(""), "HR-Q001", ""),
    "no alias": (lambda: bids.alias(3), "HR-Q001", ""),
    "bytes": (lambda: bids.where(col("item").eq(lit(b"x", pa.binary()))), "HR-E007", ""),
    "type without a name": (lambda: bids.select(x=col("item").cast(pa.uint8())), "HR-E006", "BIGINT"),
    "text by itself": (lambda: expr("price").type(BIDS), "HR-E010", "headrace.stream"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused_with_a_code_and_a_hint(name: str) -> None:
    compose, code, hint = CASES[name]
    with pytest.raises(HeadraceError) as caught:
        compose()
    assert caught.value.code == code, str(caught.value)
    assert hint.lower() in caught.value.hint.lower()


def test_the_place_is_shown_in_the_composed_text() -> None:
    with pytest.raises(SqlError) as caught:
        bids.window("1 hour").where("prise > 3")
    assert caught.value.excerpt == "  WHERE prise > 3\n        ^^^^^"


def test_the_place_is_shown_in_the_piece_where_that_cannot_be_read() -> None:
    with pytest.raises(SqlError) as caught:
        bids.where("price > 3 )")
    assert caught.value.excerpt == "  price > 3 )\n            ^"


# --- pieces -------------------------------------------------------------------------------------------------

PIECES = [
    "price > 10 AND item IN (1, 2) OR price IS NULL",
    "CASE WHEN price > 1 THEN 'a' ELSE b.name END LIKE '%--' -- end",
    "count(DISTINCT price) FILTER (WHERE item /* x */ <> 3) / 2e0",
    "CAST(`item` AS BIGINT) BETWEEN - 3 AND price % 7",
    "x) FROM (SELECT item FROM bids WHERE (price > 1",
    "1 UNION ALL SELECT item, price FROM bids",
]
WORDS = words_of(PIECES)


def accepted(text: str) -> bool:
    try:
        expression(text)
    except HeadraceError:
        return False
    return True


@given(mutations(PIECES) | st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join) | st.text(max_size=12))
def test_a_piece_never_reaches_beyond_its_place(text: str) -> None:
    """What is accepted as one expression is one wherever it is put."""
    if not accepted(text):
        return
    clean = expression(text).text
    whole = f"SELECT item FROM bids WHERE {clean}\nGROUP BY item"
    with reporting(whole):
        (found,) = parse(whole)
    assert {key for key, value in found.args.items() if value} == {"expressions", "from_", "where", "group"}


@pytest.mark.parametrize("text", ["price > 5L", "price > 5s + 1.5D"])
def test_a_typed_number_is_one_word(text: str) -> None:
    """`5L` was written three times: the tokenizer makes three tokens of it."""
    assert f"WHERE {text}" in bids.where(text).select("item").text


@pytest.mark.parametrize("text", ["{", "{price", "1 + {", "({)"])
def test_a_brace_that_is_not_closed_is_no_expression(text: str) -> None:
    """Spark reads {name}; one that is not closed took the word behind it, in the next piece of the query."""
    assert not accepted(text)


@given(mutations(PIECES))
def test_a_mutated_piece_is_a_query_or_an_error(text: str) -> None:
    for compose in (bids.where, bids.select, bids.window("1 hour").group_by("item").agg, bids.window):
        try:
            found = compose(text)
        except HeadraceError:
            continue
        assert isinstance(found, Builder)
