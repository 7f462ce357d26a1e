"""The core by hand: arithmetic, comparison, three-valued logic, errors."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import ExpressionError
from headrace.expressions import col, compile, compile_predicate, evaluate, lit

BATCH = pa.record_batch(
    {
        "i": pa.array([1, None, -7, 2**31 - 1], pa.int32()),
        "l": pa.array([5, 0, 2, 2**63 - 1], pa.int64()),
        "f": pa.array([1.5, float("nan"), None, -0.0]),
        "b": pa.array([True, False, None, True]),
    }
)


def run(expression):
    return compile(expression, BATCH.schema)(BATCH).to_pylist()


def test_overflow_is_null():
    assert run(col("i") + 1) == [2, None, -6, None]
    assert run(col("l") * 2) == [10, 0, 4, None]
    assert run(-(-col("l") - 1)) == [6, 1, 3, None]


def test_division_of_integers_is_a_double_and_by_zero_null():
    assert run(col("i") / col("l")) == [0.2, None, -3.5, 2147483647 / float(2**63 - 1)]
    assert run(lit(1) / (col("l") * 0)) == [None] * 4


def test_remainder_takes_the_sign_of_the_dividend():
    assert run(col("i") % 4) == [1, None, -3, 3]
    assert run(col("i") % -4) == [1, None, -3, 3]
    assert run(col("i") % 0) == [None] * 4


def test_nan_is_the_greatest_number_and_equals_itself():
    assert run(col("f") > 1) == [True, True, None, False]
    assert run(col("f").eq(col("f"))) == [True, True, None, True]
    assert run(col("f").eq(float("nan"))) == [False, True, None, False]
    assert compile_predicate(col("f") > 1, BATCH.schema)(BATCH).tolist() == [True, True, False, False]


def test_predicate_counts_only_true():
    mask = compile_predicate((col("i") > 0) | col("b"), BATCH.schema)(BATCH)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [True, False, False, True]


def test_literal_is_repeated():
    assert run(lit(3)) == [3] * 4
    assert run(lit(None)) == [None] * 4


def test_bare_column_is_the_batch_column():
    assert compile(col("l"), BATCH.schema)(BATCH).buffers()[1].address == BATCH.column(1).buffers()[1].address


def test_evaluate_without_schema():
    assert evaluate(col("x") * 2 + 1, {"x": 4}) == 9
    assert evaluate(col("x") > 2, {"x": None}) is None


def test_structure():
    e = (col("x") + 1 < col("y")) & ~col("z").is_null()
    assert e == pickle.loads(pickle.dumps(e))
    assert hash(e) == hash(pickle.loads(pickle.dumps(e)))
    assert e.columns() == {"x", "y", "z"}
    assert str(e.rename({"x": "a"})) == "((a + 1) < y) AND (NOT (z IS NULL))"
    assert lit(1) != lit(1.0)
    assert lit(1) != lit(True)
    assert lit(float("nan")) == lit(float("nan"))


@pytest.mark.parametrize(
    ("expression", "code", "hint"),
    [
        (col("j") + 1, "HR-E001", "did you mean"),
        (col("i") + "a", "HR-E004", "CAST"),
        (~col("i"), "HR-E004", "a comparison or a boolean column"),
    ],
)
def test_errors_have_code_place_and_hint(expression, code, hint):
    with pytest.raises(ExpressionError) as error:
        expression.type(pa.schema([*BATCH.schema, pa.field("jj", pa.int8())]))
    assert error.value.code == code
    assert error.value.place
    assert hint in error.value.hint
