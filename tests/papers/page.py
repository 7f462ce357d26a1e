"""Writes `docs/papers.md` from the table: `python -m tests.papers.page`."""

from __future__ import annotations

from pathlib import Path

from tests.papers.table import ROWS, Row

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers.md"

INTRODUCTION = """\
# The five papers, row by row

<!-- Made by `python -m tests.papers.page`; change tests/papers/table.py and run that, not this page. -->

Headrace implements five papers. This page lists each of their features and claims, the code that implements
it, a test that fails if it breaks, and its state on each runtime. A test checks that the files, names and
tests exist, and that this page is the table in `tests/papers/table.py`. A row that is not done on both
runtimes says what is missing or why it cannot be done. Paths are relative to `headrace/` and `tests/`, and
those of `experiments/` to the repository. The [experiments](../experiments/README.md) measure the figures.
"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION, _counts()]
    for paper in dict.fromkeys(row.paper for row in ROWS):
        lines = [_line(row) for row in ROWS if row.paper == paper]
        parts.append("\n".join([f"## {paper}\n", HEAD, RULE, *lines]) + "\n")
    return "\n".join(parts)


HEAD = "| # | where | feature | code | tests | embedded | Spark | note |"
RULE = "| ---: | --- | --- | --- | --- | --- | --- | --- |"


def _counts() -> str:
    words = ("yes", "partly", "no")
    lines = [
        f"| {name} | " + " | ".join(str(states.count(word)) for word in words) + " |"
        for name, states in (
            ("embedded", [row.embedded for row in ROWS]),
            ("Spark", [row.spark for row in ROWS]),
        )
    ]
    return "\n".join(["| runtime | yes | partly | no |", "| --- | ---: | ---: | ---: |", *lines]) + "\n"


def _line(row: Row) -> str:
    cells = (str(row.number), row.place, row.feature, _shown(row.code), _shown(row.tests))
    return "| " + " | ".join((*cells, row.embedded, row.spark, row.note)) + " |"


def _shown(names: tuple[str, ...]) -> str:
    return "<br>".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page())
