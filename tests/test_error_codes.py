"""Each code has one meaning and one line in the documentation."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import headrace
from headrace.error_codes import MEANINGS, page

PACKAGE = Path(headrace.__file__).parent
CODE = re.compile(r"HR-[A-Z]+\d+")


def sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "error_codes.py"]


def raised() -> dict[str, set[str]]:
    """The classes of error that each code is raised in; codes that tables hold have none."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and CODE.fullmatch(str(argument.value)):
                    found[str(argument.value)].add(node.func.id)
    return found


def test_every_code_is_in_the_registry_and_every_line_of_it_is_used() -> None:
    used = {code for path in sources() for code in CODE.findall(path.read_text())}
    assert sorted(used - MEANINGS.keys()) == [], "give them a line in headrace/error_codes.py"
    assert sorted(MEANINGS.keys() - used) == [], "remove them from headrace/error_codes.py"


def test_a_code_is_raised_by_one_class_of_error() -> None:
    assert {code: classes for code, classes in raised().items() if len(classes) > 1} == {}


def test_no_two_codes_of_one_letter_mean_the_same() -> None:
    said = [(code[:4], meaning) for code, meaning in MEANINGS.items()]
    assert len(said) == len(set(said))


def test_the_page_is_what_the_registry_says() -> None:
    docs = PACKAGE.parent / "docs"
    written = (docs / "errors.md").read_text()
    assert written == page(), "python -m headrace.error_codes > docs/errors.md"


def test_the_documentation_names_no_code_that_does_not_exist() -> None:
    docs = PACKAGE.parent / "docs"
    named = {code for path in docs.rglob("*.md") for code in CODE.findall(path.read_text())}
    assert sorted(named - MEANINGS.keys()) == []
