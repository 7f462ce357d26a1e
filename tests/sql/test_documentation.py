"""Every example on the pages about CQL is a query."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

import pytest

from headrace.errors import SqlError
from headrace.expressions import FUNCTIONS
from headrace.sql import Catalog, declare, query
from headrace.sql.binder.aggregate_names import AGGREGATES
from headrace.testing.asking import ask

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "cql"
OWN = ("lag.md", "match-recognize.md", "quality.md", "sessions.md", "top-n.md")
"""Pages whose examples are over the streams that the first page declares."""


def blocks(page: str) -> list[str]:
    return re.findall(r"```sql\n(.*?)```", (PAGES / page).read_text(), flags=re.DOTALL)


DECLARATIONS, *EXAMPLES = [*blocks("index.md"), *(block for page in OWN for block in blocks(page))]
QUERIES = [text.strip() for block in EXAMPLES for text in block.split(";") if text.strip()]


@pytest.mark.parametrize("text", QUERIES, ids=[" ".join(text.split())[:60] for text in QUERIES])
def test_an_example_is_a_query(text: str) -> None:
    catalog = Catalog()
    declare(DECLARATIONS, catalog)
    assert not query(text, catalog).plan.is_relation


def test_every_page_is_in_the_index() -> None:
    index = (PAGES / "index.md").read_text()
    pages = {page.name for page in PAGES.glob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


WINDOWS = sorted(
    set(re.findall(r"\[(?:[A-Z]+ )*[A-Z]+[^\]\[(]*\](?!\()", (PAGES / "compared.md").read_text()))
)


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_of_the_comparison_is_one(window: str) -> None:
    text = f"CREATE STREAM s (k BIGINT, v BIGINT); SELECT count(*) AS n FROM s {window} GROUP BY k"
    assert not query(text).plan.is_relation


EXPRESSIONS = (PAGES / "expressions.md").read_text()
VALUES = [
    (expression.replace("\\|", "|"), value)
    for expression, value in re.findall(r"^\| `(.+)` \| `(.+)` \|$", EXPRESSIONS, flags=re.MULTILINE)
]


def written(value: object) -> str:
    """A value as the page writes it; an instant as clocks in UTC show it."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@pytest.mark.parametrize(("expression", "value"), VALUES)
def test_an_expression_has_the_value_that_the_page_says(expression: str, value: str) -> None:
    ((_, found),) = ask(f"CREATE STREAM s (v BIGINT); SELECT {expression} AS x FROM s", s=[(1, 1)])
    assert written(found) == value


OURS = {"starts_with", "ends_with", "plus_micros", "json_value"}
OURS |= {"bits_and", "bits_or", "bits_xor", "bits_not"}
"""Functions that Spark does not have: the page names them in its text."""


BUILT_IN = set(FUNCTIONS)
"""Taken before any test runs: an example of the documentation may register a function of its own."""


def test_every_function_and_aggregate_is_on_the_page() -> None:
    examples = {expression.split("(")[0] for expression, _ in VALUES}
    named = set(re.findall(r"`(\w+)[`(]", EXPRESSIONS))
    assert BUILT_IN - examples == OURS <= named
    assert set(AGGREGATES) <= named


@pytest.mark.parametrize(
    "refused", ["transform(array(1), x -> x)", "CAST('a' AS TIME)", "CAST('a' AS BINARY)", "ntile(2) OVER ()"]
)
def test_what_the_page_says_is_not_there_is_refused(refused: str) -> None:
    with pytest.raises(SqlError):
        query(f"CREATE STREAM s (v BIGINT); SELECT {refused} AS x FROM s")
