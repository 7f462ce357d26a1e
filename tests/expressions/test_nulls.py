"""A bare NULL anywhere: the value of a NULL with a type, or an error with a code, no other exception."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ExpressionError
from headrace.expressions import FUNCTIONS, Arithmetic, Comparison, Expression, Function, Literal, Negate, col
from headrace.expressions import compile as compiled
from headrace.expressions.evaluate import evaluator
from headrace.expressions.substitution import substitute
from tests.expressions import strategies

SCHEMA = strategies.SCHEMA
NULL = Literal(None)
ROW = {
    "b": True,
    "i8": 3,
    "i16": 3,
    "i32": 3,
    "i64": 3,
    "f32": 1.5,
    "f64": 1.5,
    "dec": strategies.Decimal("1.50"),
    "big": strategies.Decimal("1.50000000"),
    "s": "a",
    "d": strategies.dt.date(2020, 2, 29),
    "t": strategies.dt.datetime(2020, 2, 29, 1, 2, 3),
    "z": strategies.dt.datetime(2020, 2, 29, 1, 2, 3, tzinfo=strategies.dt.UTC),
}
COLUMNS = sorted(ROW)
OPERATIONS: dict[str, Any] = {
    **{
        f"{op} of numbers": lambda x, y, op=op: Arithmetic(op, x, y)
        for op in ("+", "-", "*", "/", "%", "DIV")
    },
    **{op: lambda x, y, op=op: Comparison(op, x, y) for op in ("=", "<>", "<", "<=", ">", ">=", "<=>")},
}


def outcome(expression: Expression) -> Any:
    """The value on one row, the same compiled and naive; or the code of the error."""
    try:
        of = expression.type(SCHEMA)
    except ExpressionError as error:
        return error.code
    batch = strategies.batch_of([ROW])
    found = compiled(expression, SCHEMA)(batch)
    assert found.type == of
    (value,) = found.to_pylist()
    assert repr(value) == repr(evaluator(expression, SCHEMA)(batch.to_pylist()[0]))
    return value


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_bare_null_has_the_type_of_the_other_operand(name: str) -> None:
    make = OPERATIONS[name]
    for column in COLUMNS:
        typed = Literal(None, SCHEMA.field(column).type)
        for bare, full in (
            ((col(column), NULL), (col(column), typed)),
            ((NULL, col(column)), (typed, col(column))),
        ):
            assert outcome(make(*bare)) == outcome(make(*full)), (name, column)
            if outcome(make(*full)) is None:
                assert make(*bare).type(SCHEMA) == make(*full).type(SCHEMA), (name, column)


def test_two_bare_nulls_are_null() -> None:
    for make in OPERATIONS.values():
        assert outcome(make(NULL, NULL)) in (None, True)
    assert outcome(Negate(NULL)) is None


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_takes_a_bare_null_wherever_it_takes_a_value(name: str) -> None:
    """`outcome` compares the compiled value with the naive one, and lets no error through but coded ones."""
    rule: Any = FUNCTIONS[name]
    for columns in itertools.product(COLUMNS, repeat=min(rule.least, 2)):
        given = [col(each) for each in columns] + [Literal(1)] * (rule.least - 2)
        try:
            Function(name, tuple(given)).type(SCHEMA)
        except ExpressionError:
            continue
        for at in range(len(given)):
            outcome(Function(name, (*given[:at], NULL, *given[at + 1 :])))
    outcome(Function(name, (NULL,) * rule.least))


@given(strategies.expressions(2), strategies.rows(), st.sets(st.sampled_from(COLUMNS)))
def test_bare_nulls_in_place_of_columns_have_a_value_or_a_coded_error(
    expression: Expression, found: Any, gone: set[str]
) -> None:
    bare = substitute(expression, dict.fromkeys(gone, NULL))
    try:
        of = bare.type(SCHEMA)
    except ExpressionError:
        return
    batch = strategies.batch_of(found)
    array = compiled(bare, SCHEMA)(batch)
    assert array.type == of
    assert [repr(each) for each in array.to_pylist()] == [
        repr(evaluator(bare, SCHEMA)(row)) for row in batch.to_pylist()
    ]
    assert isinstance(array, pa.Array)
