"""Every query of the cheat sheet is one, over the streams that the page declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.sql import Catalog, declare, query

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cheat-sheet.md").read_text()
(DECLARED,) = re.findall(r"```sql\n(.*?)```", PAGE, re.S)
QUERIES = re.findall(r"^\| [^|]+ \| `(SELECT .+)` \|$", PAGE, re.M)


def test_there_are_queries() -> None:
    assert len(QUERIES) >= 14


@pytest.mark.parametrize("text", QUERIES)
def test_a_query_of_the_cheat_sheet_is_one(text: str) -> None:
    catalog = Catalog()
    declare(DECLARED, catalog)
    assert not query(text, catalog).plan.is_relation
