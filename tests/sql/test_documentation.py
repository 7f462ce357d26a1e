"""Every example on the page about CQL is a query."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.sql import Catalog, declare, query

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "cql" / "index.md"
DECLARATIONS, *EXAMPLES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
QUERIES = [text.strip() for block in EXAMPLES for text in block.split(";") if text.strip()]


@pytest.mark.parametrize("text", QUERIES, ids=[" ".join(text.split())[:60] for text in QUERIES])
def test_an_example_is_a_query(text: str) -> None:
    catalog = Catalog()
    declare(DECLARATIONS, catalog)
    assert not query(text, catalog).plan.is_relation
