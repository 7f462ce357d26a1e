"""The notebooks run, and give the outputs that are stored in them."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parents[2] / "examples" / "notebooks"
NAMES = sorted(path.stem for path in HERE.glob("*.ipynb"))


def cells(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HERE / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def value_of(code: str, names: dict[str, Any]) -> object:
    """Run a cell as a notebook does: its last expression is its value, and it may await."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    value = eval(compile(ast.Expression(last.value), "cell", "eval", flags=flags), names)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def plain(text: str) -> str:
    return re.sub(r"\s+", "", text)


def check(name: str) -> None:
    names: dict[str, Any] = {}
    for cell in cells(name):
        value = value_of("".join(cell["source"]), names)
        for output in cell["outputs"]:
            shown = output.get("data", {})
            if "text/html" in shown:
                # The address of an object, or the instants of a run, may be in the text of other values.
                assert ("<svg" in "".join(shown["text/html"])) == ("<svg" in value._repr_html_())  # type: ignore[attr-defined]
            elif "text/plain" in shown:
                assert plain("".join(shown["text/plain"])) == plain(repr(value))


def test_every_notebook_has_its_outputs() -> None:
    assert NAMES == ["first_query", "live_queries", "spark_job"]
    for name in NAMES:
        found = cells(name)
        assert [cell["execution_count"] for cell in found] == list(range(1, len(found) + 1))
        kinds = [output["output_type"] for cell in found for output in cell["outputs"]]
        assert kinds
        assert "error" not in kinds


@pytest.mark.parametrize("name", ["first_query", "live_queries"])
def test_a_notebook_gives_what_is_stored(name: str) -> None:
    check(name)


@pytest.mark.slow
@pytest.mark.spark
def test_the_notebook_on_spark_gives_what_is_stored() -> None:
    pytest.importorskip("pyspark")
    check("spark_job")
