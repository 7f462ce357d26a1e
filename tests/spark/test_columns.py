"""Expressions that Spark computes have on every row the value that they have here, or are not translated."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.expressions import Expression, col, compile, fn, lit
from headrace.expressions.sparksql import spark_sql
from headrace.testing.schemas import comparisons, predicates, scalars
from tests.expressions.strategies import SCHEMA, batch_of, expressions, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 64
TOGETHER = 60
"""Expressions that one Spark job computes."""


def examples(strategy: st.SearchStrategy[Any], count: int) -> list[Any]:
    """What hypothesis would have tried, all at once: a Spark job each would take for ever."""
    found: list[Any] = []

    @settings(max_examples=count, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
    @given(strategy)
    def gather(each: Any) -> None:
        found.append(each)

    gather()
    return found


@pytest.fixture(scope="module")
def batch() -> pa.RecordBatch:
    drawn = [row for some in examples(rows(st.just(8)), ROWS // 4) for row in some]
    return batch_of(drawn[-ROWS:])


@pytest.fixture
def table(spark: SparkSession, batch: pa.RecordBatch, tmp_path: Path) -> Iterator[DataFrame]:
    """The rows in a file, in a session whose clock is not UTC's: nothing may depend on it."""
    zoned = [pa.field(f.name, pa.timestamp("us", "UTC") if f.name == "t" else f.type) for f in SCHEMA]
    pq.write_table(pa.Table.from_batches([batch]).cast(pa.schema(zoned)), tmp_path / "rows.parquet")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    yield spark.read.parquet(str(tmp_path / "rows.parquet"))
    spark.conf.set("spark.sql.session.timeZone", str(before))


def assert_same(table: DataFrame, batch: pa.RecordBatch, tried: list[Expression]) -> None:
    from headrace.runtimes.spark.columns import column

    named = {f"c{i}": each for i, each in enumerate(tried)}
    columns = [column(each, SCHEMA) for each in tried]
    found = table.select(*(c.alias(name) for c, name in zip(columns, named, strict=True))).toArrow()
    for name, each in named.items():
        expected = compile(each, SCHEMA)(batch)
        got = found.column(name).combine_chunks().cast(expected.type)
        pairs = zip(got.to_pylist(), expected.to_pylist(), batch.to_pylist(), strict=True)
        wrong = [(a, b, row) for a, b, row in pairs if repr(a) != repr(b)]
        assert not wrong, f"{each}\n{spark_sql(each, SCHEMA)}\nSpark, here, row: {wrong[:3]}"


def chunks(every: list[Expression]) -> Iterator[list[Expression]]:
    rest = iter(every)
    while some := list(islice(rest, TOGETHER)):
        yield some


@pytest.mark.parametrize("depth", [1, 2])
def test_translated_expressions_have_the_same_values(
    table: DataFrame, batch: pa.RecordBatch, depth: int
) -> None:
    count = int(os.environ.get("HEADRACE_EXAMPLES", "100"))
    drawn = list(dict.fromkeys(examples(expressions(depth), 2 * count)))
    translated = [each for each in drawn if each.columns() and spark_sql(each, SCHEMA) is not None]
    assert len(translated) > len(drawn) // 5
    for some in chunks(translated):
        assert_same(table, batch, some)


def test_what_queries_of_the_property_tests_select_and_compute_is_translated() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.float64()), ("c", pa.string()), ("d", pa.bool_())])
    computed = scalars(schema).map(lambda named: named[1])
    for each in examples(comparisons(schema) | predicates(schema) | computed, 200):
        assert spark_sql(each, schema) is not None, str(each)


LONG, TEXT = "CAST('3' AS bigint)", "CAST(X'69745c73' AS string)"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("i64").eq(lit(3, pa.int64())), f"(`i64` = {LONG})"),
        (col("i32") + col("i32"), "CAST(try_add(`i32`, `i32`) AS int)"),
        (col("f64") < lit(1.5), "(nanvl(`f64`, CAST('NaN' AS double)) < CAST('1.5' AS double))"),
        (col("s").eq("it\\s"), f"(`s` = {TEXT})"),
        (col("s").like("a!%%", "!"), "(`s` LIKE CAST(X'615c2525' AS string))"),
        (fn("upper", col("s")), None),
        (fn("regexp_extract", col("s"), "(a)"), None),
        (fn("exp", col("f64")), None),
        (col("s").cast(pa.float64()), None),
        (col("f64").cast(pa.string()), None),
        (col("big") * col("big"), None),
        (fn("greatest", col("f64"), 0.0), None),
    ],
)
def test_the_text_is_what_it_should_be(expression: Expression, text: str | None) -> None:
    assert spark_sql(expression, SCHEMA) == text


def test_a_column_called_anything_is_quoted() -> None:
    odd = pa.schema([("a.`b", pa.int64())])
    assert spark_sql(col("a.`b"), odd) == "`a.``b`"
