"""Every python block of the pages on Spark runs, in the session that all Spark tests share.

So does every block of other pages that is marked `python spark`. The blocks of a page that are marked `python
spark page` are one program.
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
PAGE = "python spark page"


def blocks(page: Path, text: str) -> list[list[re.Match[str]]]:
    """The programs of a page, each of one block or several."""
    found = list(re.finditer(r"^```(python.*)\n((?:.*\n)*?)```$", text, re.M))
    together = [match for match in found if match[1] == PAGE]
    alone = "python" if page in PAGES else "python spark"
    return [[match] for match in found if match[1] == alone] + ([together] if together else [])


def program(text: str, parts: list[re.Match[str]]) -> str:
    """Blocks as one text, each at its own line, so that a traceback names the page's lines."""
    lines: list[str] = []
    for match in parts:
        begin = text.count("\n", 0, match.start()) + 1
        lines += [""] * (begin - len(lines)) + match[2].splitlines()
    return "\n".join(lines)


BLOCKS = [
    pytest.param(page, program(text, parts), id=f"{page.name}:{text.count(chr(10), 0, parts[0].start()) + 2}")
    for page in (*PAGES, *MARKED)
    for text in [page.read_text()]
    for parts in blocks(page, text)
]


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 3


@pytest.mark.parametrize(("page", "source"), BLOCKS)
def test_example_runs(
    spark: SparkSession, page: Path, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(source, str(page), "exec", dont_inherit=True), {"__name__": "__example__"})
