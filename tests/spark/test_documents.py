"""Every python block of the pages on Spark runs, in the session that all Spark tests share.

So does every block of other pages that is marked `python spark`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted((ROOT / "docs" / "spark").glob("*.md"))
MARKED = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(page, text, match.start(), id=f"{page.name}:{text.count(chr(10), 0, match.start()) + 2}")
    for page in (*PAGES, *MARKED)
    for text in [page.read_text()]
    for match in re.finditer(r"^```python$" if page in PAGES else r"^```python spark$", text, re.M)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("page", "text", "start"), BLOCKS)
def test_example_runs(
    spark: SparkSession, page: Path, text: str, start: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    body = text[start:].split("\n", 1)[1].split("\n```", 1)[0]
    source = "\n" * (text.count("\n", 0, start) + 1) + body  # so that a traceback names the page's own line
    exec(compile(source, str(page), "exec", dont_inherit=True), {"__name__": "__example__"})
