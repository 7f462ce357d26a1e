"""The examples of `docs/cql/expressions.md` have the same values on Spark, where nothing else is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.test_documentation import EXPRESSIONS, VALUES, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIFFERENT = EXPRESSIONS.index("## What is different from Spark")


@pytest.mark.spark
def test_the_values_are_those_of_spark(spark: SparkSession) -> None:
    same = [each for each in VALUES if f"`{each[0].replace('|', chr(92) + '|')}`" in EXPRESSIONS[:DIFFERENT]]
    columns = ", ".join(f"{expression} AS x{i}" for i, (expression, _) in enumerate(same))
    (row,) = spark.sql(f"SELECT {columns}").collect()
    found = {expression: written(value) for (expression, _), value in zip(same, row, strict=True)}
    assert len(found) > 80
    assert found == dict(same)


@pytest.mark.spark
def test_spark_stops_where_the_page_says_so(spark: SparkSession) -> None:
    different = [expression for expression, _ in VALUES if f"`{expression}`" in EXPRESSIONS[DIFFERENT:]]
    assert len(different) == 8
    for expression in different:
        with pytest.raises(Exception, match=r"DIVIDE_BY_ZERO|ARITHMETIC_OVERFLOW|CAST_|INVALID_ARRAY_INDEX"):
            spark.sql(f"SELECT {expression}").collect()
