"""Selections and projections as Catalyst sees them: columns, not Python."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.expressions import Expression
from headrace.expressions.sparksql import spark_sql
from headrace.schema import Schema


def column(expression: Expression, schema: Schema) -> Column:
    """An expression that `spark_sql` can write, over a DataFrame with the columns of `schema`."""
    text = spark_sql(expression, schema)
    assert text is not None, str(expression)
    return F.expr(text)
