"""`docs/papers.md` is true: what it names exists, and it is the table."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from experiments.table import EXPERIMENTS
from tests.papers.cut import CUTS, Cut, fails
from tests.papers.page import PAGE, ROOT, page
from tests.papers.table import ROWS, Row

TEST = re.compile(r"(?P<file>[\w/]+\.py)(::(?P<name>\w+)(\[(?P<case>[^\]]+)\])?)?")


@cache
def defined_in(file: Path) -> frozenset[str]:
    """The functions and classes of a file, and what its classes have."""
    names: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        names |= _named(node)
        if isinstance(node, ast.ClassDef):
            for below in node.body:
                names |= {f"{node.name}.{name}" for name in _named(below)}
    return frozenset(names)


def _named(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return set()


CASES = {
    "spark/test_parity.py": frozenset(
        re.findall(r'^    "([^"]+)": Case\(', (ROOT / "tests/spark/parity.py").read_text(), re.M)
    ),
    "experiments/test_experiments.py": frozenset(EXPERIMENTS),
}
"""The cases of the tests that have some; those on Spark are found in the text of their file."""


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_what_a_row_names_exists(row: Row) -> None:
    for code in row.code:
        file, _, name = code.partition(":")
        path = ROOT / file if file.startswith("experiments/") else ROOT / "headrace" / file
        assert path.is_file(), code
        assert not name or name in defined_in(path), code
    for test in row.tests:
        found = TEST.fullmatch(test)
        assert found, test
        path = ROOT / "tests" / found["file"]
        assert path.is_file(), test
        assert found["name"] is None or found["name"] in defined_in(path), test
        if found["case"]:
            assert found["case"] in CASES[found["file"]], test


def test_the_rows_are_numbered() -> None:
    assert [row.number for row in ROWS] == list(range(1, len(ROWS) + 1))
    assert len(ROWS) >= 136


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_a_row_that_is_done_has_code_and_a_test_and_another_says_why(row: Row) -> None:
    if row.embedded == "yes":
        assert row.code
        assert row.tests
    if row.spark == "yes":
        assert row.note or any(test.startswith("spark/") for test in row.tests)
    if (row.embedded, row.spark) != ("yes", "yes"):
        assert row.note


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text() == page(), "python -m tests.papers.page"


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: str(cut.row))
def test_what_can_be_cut_out_is_there_and_its_row_names_the_test(cut: Cut) -> None:
    """`python -m tests.papers.cut` runs these tests without the mechanism, and they fail."""
    compile(cut.source(), cut.file, "exec")
    assert cut.test in ROWS[cut.row - 1].tests


def test_ten_mechanisms_or_more_can_be_cut_out() -> None:
    assert len({cut.row for cut in CUTS}) >= 10


@pytest.mark.slow
def test_a_test_fails_without_its_mechanism() -> None:
    assert fails(CUTS[0])
