"""Random small schemas, rows and expressions (hypothesis strategies).

Floats are quarters and arithmetic only adds, subtracts and multiplies, so that every sum is exact whatever
the order in which an engine adds: a different answer is then a wrong answer.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from headrace.expressions import Expression, col, fn, lit
from headrace.schema import DataType, Schema

INT, FLOAT, STRING, BOOL = pa.int64(), pa.float64(), pa.string(), pa.bool_()

VALUES: Final[dict[DataType, st.SearchStrategy[Any]]] = {
    INT: st.integers(0, 3) | st.integers(-2, 5),
    FLOAT: st.integers(0, 2).map(float) | st.integers(-6, 6).map(lambda n: n / 4),
    STRING: st.sampled_from(["a", "b", "", "ab", "ä"]),
    BOOL: st.booleans(),
}
TYPES: Final = tuple(VALUES)

Rows = list[tuple[int, dict[str, Any]]]


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """One to three columns a, b, c."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
    return pa.schema(list(zip("abc", types, strict=False)))


@st.composite
def rows(draw: st.DrawFn, schema: Schema, most: int = 40) -> Rows:
    """Up to `most` rows in order of time, many of them simultaneous, some columns with nulls."""
    nullable = draw(st.booleans())
    values = {field.name: _values(field.type, nullable) for field in schema}
    times = st.integers(0, 6) | st.integers(-4, 20)
    least = draw(st.sampled_from([1, most // 8, most // 4, most // 2, 0]))
    drawn = draw(st.lists(st.tuples(times, st.fixed_dictionaries(values)), min_size=least, max_size=most))
    return sorted(drawn, key=operator.itemgetter(0))


def _values(of: DataType, nullable: bool) -> st.SearchStrategy[Any]:
    return VALUES[of] | st.none() if nullable else VALUES[of]


def is_exact(column: str) -> bool:
    """Whether sums over the column are exact: averages are rounded, and carry their origin in their name."""
    return "avg" not in column


def names_of(schema: Schema, *types: DataType) -> list[str]:
    """The columns that have one of these types."""
    return [field.name for field in schema if field.type in types]


def literals(of: DataType) -> st.SearchStrategy[Expression]:
    """A constant of a type."""
    return VALUES[of].map(lambda value: lit(value, of))


COMPARISONS: Final[tuple[Callable[[Expression, Expression], Expression], ...]] = (
    operator.lt,
    operator.ge,
    operator.le,
    operator.gt,
    lambda left, right: left.eq(right),
    lambda left, right: left.ne(right),
)
ARITHMETIC: Final[tuple[Callable[[Expression, Expression], Expression], ...]] = (
    operator.add,
    operator.sub,
    operator.mul,
)


@st.composite
def comparisons(draw: st.DrawFn, schema: Schema) -> Expression:
    """A column against a constant or against a column of its type, or a test for null."""
    name = draw(st.sampled_from(schema.names))
    of = schema.field(name).type
    others = st.sampled_from(names_of(schema, of)).map(col)
    compare = draw(st.sampled_from([*COMPARISONS, None]))
    if compare is None:
        return draw(st.sampled_from([col(name).is_not_null(), col(name).is_null()]))
    return compare(col(name), draw(literals(of) | others))


@st.composite
def predicates(draw: st.DrawFn, schema: Schema) -> Expression:
    """A comparison, or two of them connected; true, false or unknown."""
    first = draw(comparisons(schema))
    connective = draw(st.sampled_from(["", "", "not", "or", "and"]))
    if connective in ("", "not"):
        return ~first if connective else first
    second = draw(comparisons(schema))
    return first & second if connective == "and" else first | second


@st.composite
def scalars(draw: st.DrawFn, schema: Schema) -> tuple[str, Expression]:
    """A prefix for the column's name, and an expression: a column as it is, computed, or a predicate."""
    numbers = [name for name in names_of(schema, INT, FLOAT) if is_exact(name)]
    kind = draw(st.sampled_from(["same", "test", *(["computed"] * 2 if numbers else [])]))
    if kind == "same":
        name = draw(st.sampled_from(schema.names))
        return name, col(name)
    if kind == "test":
        return "is", draw(predicates(schema))
    name = draw(st.sampled_from(numbers))
    compute = draw(st.sampled_from(ARITHMETIC))
    others = st.sampled_from(numbers).map(col)
    return "x", compute(col(name), draw(literals(schema.field(name).type) | others))


@st.composite
def collections(draw: st.DrawFn, schema: Schema) -> tuple[Expression, int]:
    """An array or map made of columns, sometimes NULL, and how many columns its elements can become."""
    name = draw(st.sampled_from(schema.names))
    of = schema.field(name).type
    other = draw(literals(of) | st.sampled_from(names_of(schema, of)).map(col))
    kind = draw(st.sampled_from(["array", "structs", "map"]))
    if kind == "map":
        made, parts = fn("map", lit(1, INT), col(name), lit(2, INT), other), 2
    elif kind == "structs":
        pairs = [fn("named_struct", "p", each, "q", lit(7, INT)) for each in (col(name), other)]
        made, parts = fn("array", *pairs), 2
    else:
        made, parts = fn("array", col(name), other), 1
    if draw(st.booleans()):
        made = fn("if", draw(predicates(schema)), made, None)
    return made, parts
