"""Structs, arrays, maps and JSON: compiled equals naive on every row, slice and index."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace.errors import ExpressionError
from headrace.expressions import Element, Expression, Field, col, compile, evaluate, evaluator, fn, lit
from headrace.expressions.types import canonical, sql_name, type_named

INNER = pa.struct([("z", pa.string()), ("w", pa.list_(pa.int64()))])
SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "k": pa.string(),
        "f": pa.float64(),
        "ints": pa.list_(pa.int32()),
        "texts": pa.list_(pa.string()),
        "reals": pa.list_(pa.float64()),
        "times": pa.list_(pa.timestamp("us", "UTC")),
        "m": pa.map_(pa.string(), pa.int64()),
        "n": pa.map_(pa.int64(), pa.list_(pa.string())),
        "d": pa.map_(pa.float64(), pa.string()),
        "s": pa.struct([("x", pa.int32()), ("y", INNER)]),
        "deep": pa.list_(pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.int32()))])),
    }
)
SMALL = st.integers(-3, 3)
TEXTS = st.sampled_from(["", "a", "b", "k", "é"])
REALS = st.sampled_from([0.0, -0.0, 1.5, float("nan"), float("inf")])
TIMES = st.datetimes(dt.datetime(1990, 1, 1), dt.datetime(2030, 1, 1)).map(lambda t: t.replace(tzinfo=dt.UTC))


PLAIN = {pa.string(): TEXTS, pa.float64(): REALS, pa.timestamp("us", "UTC"): TIMES}


def values(of: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type, often None."""
    return st.none() | known(of)


def known(of: pa.DataType) -> st.SearchStrategy[Any]:
    """Values of a type that are not None themselves."""
    if pa.types.is_list(of):
        return st.lists(values(of.value_type), max_size=3)
    if pa.types.is_map(of):
        pairs = st.tuples(known(of.key_type), values(of.item_type))
        return st.lists(pairs, max_size=3, unique_by=lambda each: repr(each[0]))
    if pa.types.is_struct(of):
        return st.fixed_dictionaries({each.name: values(each.type) for each in of})
    return PLAIN.get(of, SMALL)


ROWS = st.lists(
    st.fixed_dictionaries({each.name: values(each.type) for each in SCHEMA}), min_size=1, max_size=8
)
INDEX = st.sampled_from([col("i"), lit(0), lit(1), lit(-1), lit(None)])
KEY = st.sampled_from([col("k"), lit("a"), lit("zz"), lit(None)])
LISTS = st.sampled_from(["ints", "texts", "reals", "times", "deep"]).map(col)
ELEMENT = {"ints": col("i").cast("int"), "texts": col("k"), "reals": col("f")}


def one(*choices: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(*choices)


EXPRESSIONS = one(
    st.builds(Element, LISTS, INDEX),
    st.builds(lambda of, at: fn("element_at", of, at), LISTS, INDEX),
    st.builds(lambda of, key: Element(col(of), key), st.just("m"), KEY),
    st.builds(lambda key: Element(col("n"), key), INDEX),
    st.just(Element(col("d"), col("f"))),
    st.sampled_from(
        [Field(col("s"), "x"), Field(Field(col("s"), "Y"), "z"), Field(Field(col("s"), "y"), "w")]
    ),
    st.builds(lambda at: Element(Field(Element(col("deep"), at), "a"), at), INDEX),
    st.builds(lambda at, key: Element(Field(Element(col("deep"), at), "b"), key), INDEX, KEY),
    st.builds(
        lambda name, of: fn(name, col(of), ELEMENT[of]),
        st.sampled_from(["array_contains", "array_position"]),
        st.sampled_from(sorted(ELEMENT)),
    ),
    st.builds(
        lambda name, of: fn(name, col(of)),
        st.sampled_from(["array_min", "array_max"]),
        st.sampled_from(["ints", "texts", "reals", "times"]),
    ),
    st.builds(lambda of: fn("size", col(of)), st.sampled_from(["ints", "texts", "m", "n", "deep"])),
    st.sampled_from([fn("array_join", col("texts"), "-"), fn("array_join", col("texts"), col("k"), "?")]),
    st.builds(
        lambda name, of: fn(name, col(of)),
        st.sampled_from(["map_keys", "map_values"]),
        st.sampled_from(["m", "n"]),
    ),
    st.builds(lambda key: fn("map_contains_key", col("m"), key), KEY),
    st.sampled_from(
        [
            fn("array", col("i"), 1, col("ints").item(0)),
            fn("array", col("texts"), col("texts")),
            fn("map", col("k"), col("i"), "a", 2),
            fn("map", col("i"), col("texts"), -9, None),
            fn("map", col("f"), col("i")),
            fn("named_struct", "p", col("i"), "q", col("ints")),
            fn("named_struct", "p", col("s")).field("p").field("x"),
            fn("to_json", col("s")),
            fn("to_json", col("deep")),
            fn("to_json", col("times")),
            fn("coalesce", col("s"), fn("named_struct", "x", 1, "y", None)),
        ]
    ),
)


@given(EXPRESSIONS, ROWS, st.integers(0, 3))
def test_compiled_equals_naive_on_slices(
    expression: Expression, rows: list[dict[str, Any]], skip: int
) -> None:
    try:
        of = expression.type(SCHEMA)
    except ExpressionError as error:
        event(f"refused: {error.code}")
        return
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA).slice(skip)
    found = compile(expression, SCHEMA)(batch)
    assert found.type == of
    found.validate(full=True)
    naive = evaluator(expression, SCHEMA)
    assert repr(found.to_pylist()) == repr([naive(row) for row in batch.to_pylist()])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_from_json_is_the_value_or_null(value: Any) -> None:
    """A value that fits its type is kept; what does not fit is NULL in its own place."""
    found = evaluate(
        fn("from_json", col("t"), "a BIGINT, b STRING, c ARRAY<DOUBLE>"), {"t": json.dumps(value)}
    )
    if not isinstance(value, dict):
        assert found is None
        return
    assert found["a"] == (value.get("a") if type(value.get("a")) is int else None)
    if isinstance(value.get("b"), str):
        assert found["b"] == value["b"]
    if isinstance(value.get("c"), list):
        expected = [float(each) if type(each) in (int, float) else None for each in value["c"]]
        assert found["c"] == expected


@pytest.mark.parametrize(
    ("of", "text", "expected"),
    [
        ("a INT", '{"a": 1}', {"a": 1}),
        ("a TINYINT", '{"a": 300}', {"a": None}),
        ("a DECIMAL(5,2)", '{"a": 1.005}', {"a": Decimal("1.01")}),
        ("a DATE, b TIMESTAMP", '{"a": "2026-03-04"}', {"a": dt.date(2026, 3, 4), "b": None}),
        (
            "b TIMESTAMP",
            '{"b": "2026-03-04T05:06:07+01:00"}',
            {"b": dt.datetime(2026, 3, 4, 4, 6, 7, tzinfo=dt.UTC)},
        ),
        ("a STRING", '{"a": {"b": [1, 2.50]}}', {"a": '{"b":[1,2.5]}'}),
        ("array<struct<a: int>>", '[{"a": 1}, 2]', [{"a": 1}, None]),
        ("map<string, array<int>>", '{"k": [1, "x"]}', [("k", [1, None])]),
        ("`a b` INT, c STRUCT<d: INT>", '{"a b": 1, "c": {"d": 2}}', {"a b": 1, "c": {"d": 2}}),
        ("a INT", "not json", None),
        ("a BOOLEAN, b DOUBLE", '{"a": true, "b": 2}', {"a": True, "b": 2.0}),
    ],
)
def test_from_json(of: str, text: str, expected: Any) -> None:
    assert evaluate(fn("from_json", col("t"), of), {"t": text}) == expected


@pytest.mark.parametrize(
    "name",
    [
        "array<int>",
        "map<string, array<double>>",
        "struct<a: int, b: struct<c: decimal(5,2), d: array<date>>>",
    ],
)
def test_a_type_has_the_name_that_it_was_written_with(name: str) -> None:
    assert sql_name(type_named(name)) == name


@pytest.mark.parametrize("name", ["array<>", "array<int", "map<int>", "struct<int>", "struct<a: nope>"])
def test_a_wrong_type_is_an_error(name: str) -> None:
    with pytest.raises(ExpressionError, match="HR-E006"):
        type_named(name)


@pytest.mark.parametrize(
    "of",
    [
        pa.large_list(pa.large_string()),
        pa.list_(pa.uint8(), 2),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.struct([("a", pa.timestamp("ns")), ("b", pa.uint64())]),
        pa.map_(pa.string_view(), pa.float16()),
    ],
)
def test_other_layouts_are_read_as_the_canonical_one(of: pa.DataType) -> None:
    schema = pa.schema({"x": of})
    wanted = canonical(of)
    batch = pa.record_batch([pa.nulls(2, of)], schema=schema)
    found = compile(fn("named_struct", "p", col("x")).field("p"), schema)(batch)
    assert found.type == wanted


def test_a_field_of_nothing_is_an_error() -> None:
    with pytest.raises(ExpressionError, match="HR-E001"):
        Field(Field(col("s"), "y"), "zz").type(SCHEMA)
    with pytest.raises(ExpressionError, match="HR-E004"):
        Field(col("i"), "x").type(SCHEMA)
    with pytest.raises(ExpressionError, match="HR-E004"):
        Element(col("s"), lit(0)).type(SCHEMA)
