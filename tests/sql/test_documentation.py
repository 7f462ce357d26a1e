"""Every example on the pages about CQL is a query."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.sql import Catalog, declare, query

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "cql"
OWN = ("lag.md", "quality.md", "sessions.md", "top-n.md")
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
