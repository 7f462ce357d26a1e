"""An expression built in Python means the same after it was written as CQL and read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import stream
from headrace.builder.expressions import type_name
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
