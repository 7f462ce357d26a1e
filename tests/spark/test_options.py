"""`SparkOptions` without Spark: what is refused, what is documented, and shares of an executor's memory."""

from __future__ import annotations

import ast
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import headrace
from headrace.errors import BudgetError, SparkError
from headrace.memory.budget import budget_bytes
from headrace.runtimes.spark.driver import options as module
from headrace.runtimes.spark.driver.options import NAMES, SparkOptions, spark_bytes, task_bytes

ROOT = Path(__file__).resolve().parent.parent.parent
QUERY = headrace.query("CREATE STREAM s (k INT); SELECT k FROM s")

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a misspelt option": ({"boundz": {}}, "did you mean bounds?"),
    "an option of another system": ({"parallelism": 4}, "known: bounds, skew, idle,"),
    "a number as text": ({"shards": "4"}, "expected int or None"),
    "a flag as a number": ({"shards": True}, "expected int or None"),
    "a flag as text": ({"native": "yes"}, "expected bool"),
    "a column for all streams": ({"reached": "timestamp"}, "expected Mapping"),
    "a memory with a fraction": ({"memory": 0.25}, "expected str or int or None"),
    "a timer that is a list": (
        {"timer": ["1 second"]},
        "expected str or int or timedelta or DataFrame or None",
    ),
    "nothing where something is needed": ({"enforce": None}, "expected str"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unknown_option_or_a_wrong_type_is_refused(name: str) -> None:
    given, hint = REFUSED[name]
    with pytest.raises(SparkError, match="HR-SP25") as raised:
        SparkOptions(**given)
    assert hint in raised.value.hint
    assert next(iter(given)) in raised.value.message


CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str, str]] = {
    "an option among the streams": ((), {"bounds": {}}, "HR-SP18", "SparkOptions(bounds=...)"),
    "a misspelt option among them": ((), {"enforcd": "admit"}, "HR-SP18", "did you mean enforce?"),
    "streams that are no mapping": (("rows",), {}, "HR-SP18", '{"bids": bids}'),
    "options that are a mapping": (({}, {"shards": 2}), {}, "HR-SP25", "SparkOptions(**options)"),
    "options that are something else": (({}, 2), {}, "HR-SP25", "SparkOptions(bounds=...)"),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("call", ["apply", "outputs"])
def test_what_is_no_stream_is_told_from_an_option(name: str, call: str) -> None:
    given, named, code, hint = CALLS[name]
    with pytest.raises(SparkError, match=code) as raised:
        getattr(headrace.spark, call)(QUERY, *given, **named)
    assert hint in raised.value.hint


def test_an_unknown_policy_is_refused_in_the_driver() -> None:
    with pytest.raises(BudgetError, match=r"HR-M003.*\n.*did you mean spill"):
        SparkOptions(policy="spil")  # type: ignore[arg-type]


def test_options_without_a_name_are_refused() -> None:
    with pytest.raises(SparkError, match="HR-SP25"):
        SparkOptions({"s": {"disorder": 1}})  # type: ignore[misc]


def test_every_option_has_a_docstring_and_a_line_in_the_docs() -> None:
    tree = ast.parse(Path(module.__file__).read_text())
    (body,) = [
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SparkOptions"
    ]
    described = {
        field.target.id
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }
    assert described == set(NAMES)
    page = (ROOT / "docs" / "spark" / "index.md").read_text()
    table = page.split("## Options\n")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == set(NAMES)


GIB = 1024**3


@pytest.mark.parametrize(
    ("written", "bytes"),
    [("1g", GIB), ("512m", GIB // 2), ("2GB", 2 * GIB), ("64k", 65536), ("1024", GIB), ("4096b", 4096)],
)
def test_sizes_are_read_as_spark_writes_them(written: str, bytes: int) -> None:
    assert spark_bytes(written) == bytes


@pytest.mark.parametrize(
    ("settings", "bytes"),
    [
        ({"spark.master": "spark://host:7077", "spark.executor.memory": "8g"}, 8 * GIB),
        ({"spark.master": "yarn", "spark.executor.memory": "8g", "spark.executor.cores": "4"}, 2 * GIB),
        (
            {"spark.executor.memory": "8g", "spark.executor.cores": "4", "spark.task.cpus": "2"},
            4 * GIB,
        ),
        (
            {
                "spark.executor.memory": "8g",
                "spark.executor.pyspark.memory": "2g",
                "spark.executor.cores": "2",
            },
            GIB,
        ),
        ({"spark.master": "local[2]", "spark.driver.memory": "2g", "spark.executor.memory": "9g"}, GIB),
        ({"spark.master": "local[2, 3]", "spark.driver.memory": "2g"}, GIB),
        ({"spark.master": "local"}, GIB),
        ({"spark.master": "local[*]", "spark.driver.memory": "4g"}, 4 * GIB // (os.cpu_count() or 1)),
        ({}, GIB),
    ],
)
def test_a_task_has_its_part_of_an_executor(settings: dict[str, str], bytes: int) -> None:
    assert task_bytes(settings.get) == bytes
    assert budget_bytes("25 %", lambda: task_bytes(settings.get)) == bytes // 4
