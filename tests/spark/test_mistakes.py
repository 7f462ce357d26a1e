"""What users get wrong is said before a query starts: a code, the place, a hint, and no more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.plan.nodes.core import TimeKind
from headrace.sql import StreamDef, TableDef, query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("pyspark", reason="the spark extra is not installed")
from pyspark.sql import functions as F

from headrace.runtimes.spark.driver.options import NAMES

BIDS = pa.schema([("ts", pa.timestamp("us")), ("item", pa.string()), ("price", pa.float64())])
ITEMS = pa.schema([("item", pa.string()), ("maker", pa.string())])
TEXT = "SELECT item, max(price) AS price FROM bids [RANGE 1 MINUTE] GROUP BY item"
JOINED = "SELECT b.item, i.maker FROM bids [NOW] AS b JOIN items AS i ON i.item = b.item"
BOUNDS = {"bids": {"disorder": "10 seconds"}}

Made = Callable[["SparkSession"], Any]


def bids(spark: SparkSession, columns: str = "ts timestamp, item string, price double") -> DataFrame:
    empty = Path(__file__).parent  # nothing is read: the query does not start
    return spark.readStream.schema(columns).json(str(empty))


def limited(spark: SparkSession) -> DataFrame:
    """Rows that are read in pieces."""
    read = spark.readStream.schema("ts timestamp, item string, price double")
    return read.option("maxFilesPerTrigger", 1).json(str(Path(__file__).parent))


def asked(text: str = TEXT, time: str | None = "ts") -> Any:
    return query(text, [StreamDef("bids", BIDS, time_column=time), TableDef("items", ITEMS)])


MISTAKES: dict[str, tuple[str, str, Made]] = {
    "a time that is no time": (
        "HR-SP10",
        "the time column ts is of type string",
        lambda spark: {"bids": bids(spark, "ts string, item string, price double")},
    ),
    "a stream that is missing": ("HR-SP11", "bids", lambda spark: {}),
    "a stream too many": (
        "HR-SP11",
        "no such stream",
        lambda spark: {"bids": bids(spark), "bidz": bids(spark)},
    ),
    "a table that is missing": (
        "HR-SP11",
        "items",
        lambda spark: {"query": asked(JOINED), "bids": bids(spark)},
    ),
    "a stream that is a batch": (
        "HR-SP12",
        "readStream",
        lambda spark: {"bids": spark.createDataFrame([], "ts timestamp, item string, price double")},
    ),
    "a table that is a stream": (
        "HR-SP12",
        "must be a static DataFrame",
        lambda spark: {"query": asked(JOINED), "bids": bids(spark), "items": bids(spark)},
    ),
    "bounds of another stream": (
        "HR-SP13",
        "did you mean bids",
        lambda spark: {"bids": bids(spark), "bounds": {"bidz": {"disorder": 1}}},
    ),
    "a bound of another name": (
        "HR-SP13",
        "did you mean disorder",
        lambda spark: {"bids": bids(spark), "bounds": {"bids": {"disordr": 1}}},
    ),
    "bounds that are empty": (
        "HR-SP13",
        "the bounds are empty",
        lambda spark: {"bids": bids(spark), "bounds": {"bids": {}}},
    ),
    "bounds that are one duration": (
        "HR-SP13",
        "got str",
        lambda spark: {"bids": bids(spark), "bounds": "10 seconds"},
    ),
    "a duration that names no bound": (
        "HR-SP13",
        "which bound",
        lambda spark: {"bids": bids(spark), "bounds": {"bids": "10 seconds"}},
    ),
    "a column that is missing": (
        "HR-SP14",
        "no column 'price'",
        lambda spark: {"bids": bids(spark, "ts timestamp, item string")},
    ),
    "a column of a table that is missing": (
        "HR-SP14",
        "no column 'maker'",
        lambda spark: {
            "query": asked(JOINED),
            "bids": bids(spark),
            "items": spark.createDataFrame([("a",)], "item string"),
        },
    ),
    "a stream without times": (
        "HR-SP15",
        "time_column",
        lambda spark: {"query": asked(time=None), "bids": bids(spark)},
    ),
    "an arrival that is missing": (
        "HR-SP14",
        "no column 'arrival'",
        lambda spark: {"bids": bids(spark), "arrival": "arrival"},
    ),
    "what is no DataFrame": ("HR-SP18", "str", lambda spark: {"bids": "bids"}),
    "no bounds": ("HR-T050", "disorder", lambda spark: {"bids": bids(spark), "bounds": None}),
    "reached after a repartition": (
        "HR-SP24",
        "moved between partitions",
        lambda spark: {
            "bids": limited(spark).repartition(4),
            "bounds": {"bids": {"latency": "5 seconds"}},
            "reached": {"bids": "ts"},
        },
    ),
    "a duration that is none": (
        "HR-T051",
        "soon",
        lambda spark: {"bids": bids(spark), "bounds": {"bids": {"disorder": "soon"}}},
    ),
    "an unknown enforcement": (
        "HR-I008",
        "did you mean strict",
        lambda spark: {"bids": bids(spark), "enforce": "strct"},
    ),
    "a timer that is none": ("HR-T051", "never", lambda spark: {"bids": bids(spark), "timer": "never"}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named(spark: SparkSession, name: str) -> None:
    code, words, made = MISTAKES[name]
    given = {"bounds": BOUNDS, **made(spark)}
    question = given.pop("query", None) or asked()
    options = {option: given.pop(option) for option in NAMES if option in given}
    with pytest.raises(HeadraceError) as raised:
        headrace.spark.apply(question, given, headrace.spark.SparkOptions(**options))
    assert raised.value.code == code
    assert words in str(raised.value)
    assert raised.value.__cause__ is None


def test_reached_may_follow_what_keeps_the_partitions(spark: SparkSession) -> None:
    read = limited(spark).where("price > 0").withColumn("twice", F.col("price") * 2)
    options = headrace.spark.SparkOptions(bounds={"bids": {"latency": "5 seconds"}}, reached={"bids": "ts"})
    assert headrace.spark.apply(asked(), {"bids": read}, options).isStreaming


def test_outputs_without_a_sink(spark: SparkSession, tmp_path: Path) -> None:
    out = headrace.spark.outputs(asked(), {"bids": bids(spark)}, headrace.spark.SparkOptions(bounds=BOUNDS))
    with pytest.raises(HeadraceError, match="HR-SP17"):
        out.start(checkpoint=str(tmp_path))


def test_streams_are_keywords_or_a_mapping(spark: SparkSession) -> None:
    """A stream that is stamped on arrival needs no options at all."""
    stream = StreamDef("bids", BIDS, TimeKind.INTERNAL)
    question, rows = query("SELECT item FROM bids", [stream]), bids(spark)
    by_keyword, by_name = (
        headrace.spark.apply(question, bids=rows),
        headrace.spark.apply(question, {"BIDS": rows}),
    )
    assert by_keyword.columns == by_name.columns == ["item"]
    assert by_keyword.isStreaming
