"""Expressions in Spark's SQL: the same value of the same type on every row, or no translation at all.

Expressions are total here, while Spark raises errors (ANSI is its default): overflow, division by zero and
casts use `try_…` functions or a guard. Times are wall time in UTC here and in the session time zone there, so
they are computed from microseconds. Operations with different results are not in the tables: `upper` and
regular expressions (Java's Unicode and Python's), `exp`, `ln` and `power` (the last digit), `sign` (of -0.0),
floats and times as text, text as numbers, decimals whose result is rounded.

Only text is produced here; nothing of Spark is imported, so that EXPLAIN can show what Spark will run.
"""

from __future__ import annotations

from typing import Final

from headrace.expressions.bound import Bound, Constant, Input
from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.scope import Scope
from headrace.expressions.sparksql import functions, operators
from headrace.expressions.sparksql.spelling import Translation, literal, quoted
from headrace.expressions.substitution import is_built_in
from headrace.schema import Schema

ROWS: Final[dict[str, Translation]] = {**operators.ROWS, **functions.ROWS}
"""How each kernel is written, by its name."""

LONGEST: Final = 20_000
"""Guards repeat their operands; an expression longer than this many characters stays with the engine."""


def spark_sql(expression: Expression, schema: Schema) -> str | None:
    """The expression over columns of `schema` in Spark's SQL; None if Spark has no equivalent."""
    return written(expression.bind(Scope(schema, FUNCTIONS))) if is_built_in(expression) else None


def written(bound: Bound) -> str | None:
    """A typed expression as text."""
    if isinstance(bound, Input):
        return quoted(bound.name)
    if isinstance(bound, Constant):
        return literal(bound.value, bound.type)
    row = ROWS.get(bound.kernel.name)
    if row is None:
        return None
    arguments = []
    for each in bound.args:
        text = written(each)
        if text is None:
            return None
        arguments.append(text)
    found = row(bound, *arguments)
    return found if found is not None and len(found) <= LONGEST else None
