"""Filters and projections that Spark runs itself, as native columns.

A filter before the engine is an ordinary Spark filter only if row times are not needed for the watermark.
Otherwise a row that the filter drops still carries its time: it goes to the partitioner without its payload,
and no further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.expressions import Column as Read
from headrace.expressions import Expression
from headrace.expressions.sparksql import spark_sql
from headrace.plan.analysis.native import links
from headrace.plan.nodes.core import Plan, Project, Select
from headrace.runtimes.spark.types import spark_schema
from headrace.runtimes.spark.worker.partitioner import KEEP, NOW, TIME
from headrace.schema import Schema
from headrace.time.timestamp import FARTHEST, MAX_TIME

Names = tuple[str, ...]
"""Columns besides those of the plan, which every step carries along."""


def column(expression: Expression, schema: Schema) -> Column:
    """An expression that `spark_sql` supports, as a column of a DataFrame with the columns of `schema`."""
    text = spark_sql(expression, schema)
    assert text is not None, str(expression)
    return F.expr(text)


def filtered(rows: DataFrame, chain: Plan, extra_columns: Names = ()) -> DataFrame:
    """Run a chain of filters and projections over the rows of its source."""
    for link in links(chain)[1:]:
        rows = STEPS[type(link)](rows, link, extra_columns)
    return rows


def sifted(rows: DataFrame, chain: Plan, guard: int, extra_columns: Names) -> DataFrame:
    """The same, but keep all rows: those that a filter drops are marked by `KEEP` and have no payload.

    Rows without a usable time are kept too, so that the engine rejects them.
    """
    for link in links(chain)[1:]:
        rows = MARKS[type(link)](rows, link, (*extra_columns, *_mark(rows)))
    if KEEP not in rows.columns:
        return rows
    marked = rows.withColumn(KEEP, F.col(KEEP) | _is_bad(guard) if TIME in extra_columns else F.col(KEEP))
    payload = [F.when(F.col(KEEP), by_name(name)).alias(name) for name in chain.schema.names]
    return marked.select(*payload, *extra_columns, KEEP)


def _mark(rows: DataFrame) -> Names:
    """The column that marks rows to keep, if the DataFrame has it."""
    return (KEEP,) if KEEP in rows.columns else ()


def _is_bad(guard: int) -> Column:
    """A time that is missing, out of range, or more than `guard` ahead of the clock."""
    time = F.col(TIME)
    outside = time.isNull() | (time <= F.lit(-FARTHEST)) | (time >= F.lit(FARTHEST))
    if guard == MAX_TIME:
        return outside
    ahead = F.try_subtract(time, F.col(NOW)) > F.lit(guard)
    return outside | F.coalesce(ahead, F.lit(False))


def by_name(name: str) -> Column:
    """A column by its exact name, even with dots in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def _where(rows: DataFrame, link: Select, _: Names) -> DataFrame:
    """Drop the rows that do not meet the predicate."""
    return rows.where(column(link.predicate, link.input.schema))


def _marked(rows: DataFrame, link: Select, _: Names) -> DataFrame:
    """Mark the rows that meet the predicate, and keep all rows."""
    met = F.coalesce(column(link.predicate, link.input.schema), F.lit(False))
    return rows.withColumn(KEEP, met & F.col(KEEP) if KEEP in rows.columns else met)


def _projected(rows: DataFrame, link: Project, extra_columns: Names) -> DataFrame:
    """Select the columns of the projection, with their types, and the extra columns."""
    read, typed = link.input.schema, spark_schema(link.schema)
    columns: Sequence[Column] = [
        by_name(name)
        if expression == Read(name) and read.field(name).type == link.schema.field(name).type
        else column(expression, read).cast(field.dataType).alias(name)
        for (name, expression), field in zip(link.columns, typed, strict=True)
    ]
    return rows.select(*columns, *map(by_name, extra_columns))


Step = Callable[[DataFrame, Any, Names], DataFrame]
STEPS: Final[dict[type[Plan], Step]] = {Select: _where, Project: _projected}
MARKS: Final[dict[type[Plan], Step]] = {Select: _marked, Project: _projected}
