"""An expression built in Python means the same after it was written as CQL and read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import stream
from headrace.builder.expressions import expr, type_name
from headrace.errors import ExpressionError, SqlError
from headrace.expressions import Expression, In, Literal, col, evaluate, lit
from headrace.plan.nodes.core import Project
from headrace.sql.binder.types import TYPES
from tests.expressions.strategies import SCHEMA, anything, rows

s = stream("s", SCHEMA)


@given(anything(3), rows())
def test_what_python_built_is_computed_alike(expression: Expression, found: list[dict[str, object]]) -> None:
    plan = s.select(x=expression).plan
    assert isinstance(plan, Project)
    read = plan.columns[0][1]
    assert read.type(SCHEMA) == expression.type(SCHEMA)
    for row in found:
        assert repr(evaluate(read, row, SCHEMA)) == repr(evaluate(expression, row, SCHEMA))


@pytest.mark.parametrize("operand", [Literal(None, pa.int8()), lit(1), *map(col, SCHEMA.names)], ids=str)
def test_nothing_is_in_an_empty_list_not_even_null(operand: Expression) -> None:
    plan = s.select(x=~In(operand, ())).plan
    assert isinstance(plan, Project)
    nulls = dict.fromkeys(SCHEMA.names)
    assert evaluate(plan.columns[0][1], nulls, SCHEMA) is True
    assert evaluate(~In(operand, ()), nulls, SCHEMA) is True


@given(st.text(max_size=8))
def test_any_text_can_be_a_constant(value: str) -> None:
    plan = s.select(x=Literal(value)).plan
    assert isinstance(plan, Project)
    assert plan.columns[0][1] == Literal(value)


def test_types_are_read_as_they_are_written() -> None:
    for of in {*TYPES.values(), pa.decimal128(9, 2)}:
        assert s.select(x=Literal(None, of)).schema.field("x").type == of, type_name(of)


def test_equality_with_a_value_is_a_comparison() -> None:
    assert str(col("item") == "lamp") == str(col("item").eq("lamp"))
    assert str(col("item") != "lamp") == str(col("item").ne("lamp"))
    assert str("lamp" == col("item")) == str(col("item").eq("lamp"))  # noqa: SIM300
    assert str(expr("price * 2") == 3) == str(expr("price * 2").eq(3))


def test_equality_of_expressions_is_structural_so_that_they_are_keys() -> None:
    assert col("a") == col("a")
    assert col("a") != col("b")
    assert col("a") != None  # noqa: E711
    assert col("b") in [col("a"), col("b")]
    assert {col("a"): 1}[col("a")] == 1
    assert lit(1) == lit(1)
    assert lit(1) != lit(1.0)
    with pytest.raises(ExpressionError, match="HR-E010"):
        bool(col("a") == 1)


def test_a_comparison_of_two_columns_by_python_names_the_remedy() -> None:
    with pytest.raises(SqlError, match="HR-Q001") as caught:
        stream("s", pa.schema([("a", pa.int64()), ("b", pa.int64())])).where(col("a") == col("b"))
    assert 'col("a").eq' in caught.value.hint


def test_equality_works_in_a_query() -> None:
    s = stream("s", pa.schema([("item", pa.string()), ("price", pa.float64())]))
    built = s.where((col("item") == "lamp") & (col("price") != 2.0)).select("item")
    assert built.schema.names == ["item"]
