"""The central law: the compiled form equals the naive one, on every expression, row and batch size."""

from __future__ import annotations

import importlib.util
import math
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.expressions import compile, compile_predicate, evaluator
from tests.laws import effort

_spec = importlib.util.spec_from_file_location("strategies", Path(__file__).with_name("strategies.py"))
random = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(random)


def same(left, right):
    """Equal values of one type; NaN is itself."""
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and left == right


def agree(expression, found):
    batch = random.batch_of(found)
    array = compile(expression, random.SCHEMA)(batch)
    assert isinstance(array, pa.Array)
    assert array.type == expression.type(random.SCHEMA)
    array.validate(full=True)
    naive = evaluator(expression, random.SCHEMA)
    expected = [naive(row) for row in batch.to_pylist()]
    compiled = array.to_pylist()
    assert len(compiled) == len(expected)
    wrong = [(e, c) for e, c in zip(expected, compiled, strict=True) if not same(e, c)]
    assert not wrong, f"{expression}: naive, compiled = {wrong[0]}"


@effort(5, "cheap, and there are many expressions")
@given(random.expressions(2), random.rows())
def test_compiled_equals_naive(expression, found):
    agree(expression, found)


@effort(3, "cheap")
@given(random.expressions(3), random.rows(st.just(1)))
def test_compiled_equals_naive_on_one_row(expression, found):
    agree(expression, found)


@given(random.expressions(2), random.rows(st.just(6)), st.integers(0, 5))
def test_compiled_equals_naive_on_slices_of_many_rows(expression, found, start):
    many = random.batch_of(found * 40).slice(start, 200)
    program, naive = compile(expression, random.SCHEMA), evaluator(expression, random.SCHEMA)
    whole = random.batch_of((found * 40)[start : start + 200])
    assert program(many).to_pylist().__repr__() == program(whole).to_pylist().__repr__()
    assert same(program(many)[-1].as_py(), naive(whole.to_pylist()[-1]))


@effort(4, "cheap")
@given(random.of_type(pa.bool_(), 2), random.rows())
def test_predicate_is_where_the_condition_is_true(expression, found):
    batch = random.batch_of(found)
    mask = compile_predicate(expression, random.SCHEMA)(batch)
    assert isinstance(mask, np.ndarray)
    assert mask.dtype == np.bool_
    naive = evaluator(expression, random.SCHEMA)
    assert mask.tolist() == [naive(row) is True for row in batch.to_pylist()]


@effort(3, "cheap")
@given(random.expressions(3))
def test_expressions_are_values(expression):
    copy = pickle.loads(pickle.dumps(expression))
    assert copy == expression
    assert hash(copy) == hash(expression)
    assert str(copy) == str(expression)
    renamed = expression.rename({name: name + "'" for name in expression.columns()})
    assert renamed.columns() == {name + "'" for name in expression.columns()}
    assert renamed.rename({name + "'": name for name in expression.columns()}) == expression
