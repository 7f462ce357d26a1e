"""Selections and projections as Catalyst sees them: columns, not Python.

A selection before the engine is a filter of Spark's only where the times of rows prove nothing. Elsewhere a
row that is dropped still brings its time, from which heartbeats are learned: it goes to the fan without its
payload, and no further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.expressions import Expression
from headrace.expressions.sparksql import spark_sql
from headrace.plan.native import links
from headrace.plan.nodes import Plan, Project, Select
from headrace.runtimes.spark.fan import KEEP, NOW, TIME
from headrace.runtimes.spark.types import spark_schema
from headrace.schema import Schema
from headrace.time.timestamp import FARTHEST, MAX_TIME

Names = tuple[str, ...]
"""Columns beside those of the plan, which every step carries along."""


def column(expression: Expression, schema: Schema) -> Column:
    """An expression that `spark_sql` can write, over a DataFrame with the columns of `schema`."""
    text = spark_sql(expression, schema)
    assert text is not None, str(expression)
    return F.expr(text)


def filtered(rows: DataFrame, chain: Plan, beside: Names = ()) -> DataFrame:
    """A chain of selections and projections over the rows of its source."""
    for link in links(chain)[1:]:
        rows = STEPS[type(link)](rows, link, beside)
    return rows


def sifted(rows: DataFrame, chain: Plan, guard: int, beside: Names) -> DataFrame:
    """The same with all rows: what the chain drops is marked by `KEEP` and has no payload.

    Rows whose time is of no use are kept, so that the engine rejects them.
    """
    for link in links(chain)[1:]:
        rows = MARKS[type(link)](rows, link, (*beside, *_mark(rows)))
    if KEEP not in rows.columns:
        return rows
    marked = rows.withColumn(KEEP, F.col(KEEP) | _is_bad(guard) if TIME in beside else F.col(KEEP))
    payload = [F.when(F.col(KEEP), by_name(name)).alias(name) for name in chain.schema.names]
    return marked.select(*payload, *beside, KEEP)


def _mark(rows: DataFrame) -> Names:
    return (KEEP,) if KEEP in rows.columns else ()


def _is_bad(guard: int) -> Column:
    """A time that is missing, outside of the domain, or more than `guard` ahead of the clock."""
    time = F.col(TIME)
    outside = time.isNull() | (time <= F.lit(-FARTHEST)) | (time >= F.lit(FARTHEST))
    if guard == MAX_TIME:
        return outside
    ahead = F.try_subtract(time, F.col(NOW)) > F.lit(guard)
    return outside | F.coalesce(ahead, F.lit(False))


def by_name(name: str) -> Column:
    """A column by its whole name, dots and all."""
    return F.col("`" + name.replace("`", "``") + "`")


def _where(rows: DataFrame, link: Select, _: Names) -> DataFrame:
    return rows.where(column(link.predicate, link.input.schema))


def _marked(rows: DataFrame, link: Select, _: Names) -> DataFrame:
    met = F.coalesce(column(link.predicate, link.input.schema), F.lit(False))
    return rows.withColumn(KEEP, met & F.col(KEEP) if KEEP in rows.columns else met)


def _projected(rows: DataFrame, link: Project, beside: Names) -> DataFrame:
    typed = spark_schema(link.schema)
    columns: Sequence[Column] = [
        column(expression, link.input.schema).cast(field.dataType).alias(name)
        for (name, expression), field in zip(link.columns, typed, strict=True)
    ]
    return rows.select(*columns, *map(by_name, beside))


Step = Callable[[DataFrame, Any, Names], DataFrame]
STEPS: Final[dict[type[Plan], Step]] = {Select: _where, Project: _projected}
MARKS: Final[dict[type[Plan], Step]] = {Select: _marked, Project: _projected}
