"""What SQL and Spark say, by hand: truth tables, LIKE, CASE, IN, casts. Checked on both evaluators."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headrace.expressions import Case, Like, col, compile, evaluate, lit, when

NAN, INF = float("nan"), float("inf")
EMPTY = pa.schema({"one": pa.int32()})
BATCH = pa.record_batch([pa.array([1], pa.int32())], schema=EMPTY)
T, F, N = True, False, None


def value(make, *values):
    """The value of `make(column, …)` over one row; both evaluators must give it."""
    names = [f"c{at}" for at in range(len(values))]
    arrays = [each if isinstance(each, pa.Array) else pa.array([each]) for each in values]
    batch = pa.record_batch(arrays, names)
    expression = make(*(col(name) for name in names))
    naive = evaluate(expression, batch.to_pylist()[0], batch.schema)
    (compiled,) = compile(expression, batch.schema)(batch).to_pylist()
    assert repr(naive) == repr(compiled)
    return compiled


def boolean(of):
    return pa.array([of], pa.bool_())


AND = {(T, T): T, (T, F): F, (T, N): N, (F, F): F, (F, N): F, (N, N): N}
OR = {(T, T): T, (T, F): T, (T, N): T, (F, F): F, (F, N): N, (N, N): N}


@pytest.mark.parametrize("pair", AND)
def test_and_or_are_three_valued(pair):
    for left, right in (pair, pair[::-1]):
        assert value(lambda x, y: x & y, boolean(left), boolean(right)) is AND[pair]
        assert value(lambda x, y: x | y, boolean(left), boolean(right)) is OR[pair]


def test_not_null_is_null():
    assert [value(lambda x: ~x, boolean(each)) for each in (T, F, N)] == [F, T, N]


def test_null_safe_equality_is_never_null():
    def safe(left, right):
        return value(
            lambda x, y: x.eq_null_safe(y), pa.array([left], pa.int8()), pa.array([right], pa.int8())
        )

    assert [safe(1, 1), safe(1, 2), safe(1, N), safe(N, 1), safe(N, N)] == [T, F, F, F, T]
    assert value(lambda x: x.eq_null_safe(None), 1) is F
    assert value(lambda x: x.eq_null_safe(1), pa.array([None], pa.int8())) is F


@pytest.mark.parametrize(
    ("given", "options", "expected"),
    [
        (1, [1, 2], T),
        (3, [1, 2], F),
        (3, [1, None], N),
        (1, [1, None], T),
        (None, [1, 2], N),
        (1, [], F),
        (9, [*range(8), 9.0], T),
        (9, [*range(9)], F),
        (9, [*range(9), None], N),
    ],
)
def test_in_is_the_or_of_equalities(given, options, expected):
    assert value(lambda x: x.isin(options), pa.array([given], pa.int64())) is expected


@pytest.mark.parametrize(
    ("text", "pattern", "escape", "expected"),
    [
        ("abc", "abc", "\\", T),
        ("abc", "a%", "\\", T),
        ("abc", "%c", "\\", T),
        ("abc", "%b%", "\\", T),
        ("abc", "a_c", "\\", T),
        ("abc", "_", "\\", F),
        ("", "%", "\\", T),
        ("", "_", "\\", F),
        ("a\nb", "a%b", "\\", T),
        ("é", "_", "\\", T),
        ("a.c", "a.c", "\\", T),
        ("abc", "a.c", "\\", F),
        ("50%", "50\\%", "\\", T),
        ("500", "50\\%", "\\", F),
        ("50%", "50#%", "#", T),
        ("a_b", "a\\_%", "\\", T),
        ("ABC", "abc", "\\", F),
        (None, "a", "\\", N),
        ("a", None, "\\", N),
    ],
)
def test_like(text, pattern, escape, expected):
    given = pa.array([text], pa.string())
    assert value(lambda x: Like(x, lit(pattern, "string"), escape), given) is expected
    computed = pa.array([pattern], pa.string())
    assert value(lambda x, y: Like(x, y, escape), given, computed) is expected


def test_case_takes_the_first_true_branch_and_null_is_not_true():
    def grade(x):
        return when(x > 10, "big").when(x > 5, "mid").otherwise("small")

    assert [value(grade, each) for each in (11, 6, 1)] == ["big", "mid", "small"]
    assert value(grade, pa.array([None], pa.int8())) == "small"
    assert value(lambda x: Case(((x > 1, x),)), 1) is N
    assert value(lambda x: when(x > 1, 1).otherwise(2.5), 3) == 1.0


STAMP = dt.datetime(2020, 2, 29, 12, 30, 15, 500000)
INSTANT = STAMP.replace(tzinfo=dt.UTC)
CASTS = [
    ("12", "int", 12),
    (" -7 ", "bigint", -7),
    ("+7", "smallint", 7),
    ("12.5", "int", None),
    ("0x1F", "int", None),
    ("128", "tinyint", None),
    ("1_000", "int", None),
    ("1.5e3", "double", 1500.0),
    ("Infinity", "double", INF),
    ("abc", "double", None),
    ("1.005", "decimal(4,2)", Decimal("1.01")),
    ("123.4", "decimal(4,2)", None),
    ("yes", "boolean", T),
    ("F", "boolean", F),
    ("2", "boolean", None),
    ("2020-02-29", "date", dt.date(2020, 2, 29)),
    ("2021-02-29", "date", None),
    ("2020-2", "date", dt.date(2020, 2, 1)),
    ("2020-02-29 12:30:15.5", "timestamp", INSTANT),
    ("2020-02-29 12:30:15.5", "timestamp_ntz", STAMP),
    ("2020-02-29T13:30:15.5+01:00", "timestamp", INSTANT),
    ("2020-02-29T13:30:15.5+01:00", "timestamp_ntz", STAMP),
    (STAMP, "timestamp", INSTANT),
    (INSTANT, "timestamp_ntz", STAMP),
    ("2020-02-29", "timestamp", dt.datetime(2020, 2, 29, tzinfo=dt.UTC)),
    ("noon", "timestamp", None),
    (300, "tinyint", None),
    (300, "string", "300"),
    (0, "boolean", F),
    (1_600_000_000, "timestamp", dt.datetime(2020, 9, 13, 12, 26, 40, tzinfo=dt.UTC)),
    (2**62, "timestamp", None),
    (-1.9, "int", -1),
    (3e9, "int", None),
    (NAN, "bigint", None),
    (1e10, "string", "1.0E10"),
    (1.0, "string", "1.0"),
    (0.0001, "string", "1.0E-4"),
    (-INF, "string", "-Infinity"),
    (2.675, "decimal(10,2)", Decimal("2.68")),
    (T, "int", 1),
    (T, "string", "true"),
    (Decimal("99.99"), "double", 99.99),
    (Decimal("-1.99"), "int", -1),
    (Decimal("1.25"), "decimal(3,1)", Decimal("1.3")),
    (Decimal("-1.25"), "decimal(3,1)", Decimal("-1.3")),
    (Decimal("0.0000001"), "string", "0.0000001"),
    (STAMP, "date", dt.date(2020, 2, 29)),
    (STAMP, "string", "2020-02-29 12:30:15.5"),
    (dt.datetime(2020, 1, 1), "string", "2020-01-01 00:00:00"),
    (STAMP, "bigint", 1582979415),
    (STAMP, "double", 1582979415.5),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 500000), "bigint", -1),
    (dt.date(2020, 2, 29), "timestamp", dt.datetime(2020, 2, 29, tzinfo=dt.UTC)),
    (dt.date(2020, 2, 29), "timestamp_ntz", dt.datetime(2020, 2, 29)),
]


@pytest.mark.parametrize(("given", "to", "expected"), CASTS)
def test_cast_gives_the_value_or_null(given, to, expected):
    assert value(lambda x: x.cast(to), given) == expected
    assert value(lambda x: x.cast(to), pa.array([None], pa.array([given]).type)) is None


def test_strings_beside_times_are_read():
    assert value(lambda x: x >= "2020-02-29", STAMP) is T
    assert value(lambda x: x.between("2020-03-01", "2020-04-01"), dt.date(2020, 2, 29)) is F
    assert value(lambda x: x < dt.date(2020, 3, 1), STAMP) is T


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (Decimal("1.10"), "+", Decimal("2.205"), pa.decimal128(5, 3)),
        (Decimal("1.10"), "*", Decimal("2.205"), pa.decimal128(8, 5)),
        (Decimal("1.10"), "/", Decimal("2.205"), pa.decimal128(11, 7)),
        (Decimal("1.10"), "%", Decimal("2.205"), pa.decimal128(4, 3)),
        (Decimal("1.10"), "*", 2, pa.decimal128(5, 2)),
        (Decimal("1.10"), "*", 2.0, pa.float64()),
        (1, "/", 2, pa.float64()),
        (1, "+", 2**40, pa.int64()),
        (1, "+", 2, pa.int32()),
    ],
)
def test_arithmetic_is_typed_as_in_spark(left, op, right, expected):
    make = {"+": lit(left) + right, "*": lit(left) * right, "/": lit(left) / right, "%": lit(left) % right}
    assert make[op].type(EMPTY) == expected


def test_columns_of_other_widths_are_computed_in_sql_types():
    assert value(lambda x: x + 1, pa.array([255], pa.uint8())) == 256
    assert value(lambda x: x.eq("a"), pa.array(["a"], pa.large_string())) is T
    assert value(lambda x: x.eq("a"), pa.array(["a"]).dictionary_encode()) is T
    assert value(lambda x: x > dt.datetime(2020, 1, 1), pa.array([STAMP], pa.timestamp("ms"))) is T


@pytest.mark.parametrize("bits", [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001])
def test_each_spelling_of_nan_is_in_a_set_with_nan(bits):
    """Regression: a NaN of another sign or payload was not found in a long list."""
    spelled = pa.array(np.array([bits], np.uint64).view(np.float64))
    options = [float(i) for i in range(9)]
    assert value(lambda x: x.isin([*options, NAN]), spelled) is T
    assert value(lambda x: x.isin(options), spelled) is F
    assert value(lambda x: x.isin([*options, NAN]), pa.array([None], pa.float64())) is N
