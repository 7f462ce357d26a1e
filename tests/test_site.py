"""The documentation site builds, and every link and anchor in it leads somewhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.pipeline import spec
from scripts.reference import PAGES, REFERENCE, meanings_of

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    pytest.importorskip("typer", reason="the extra cli is not installed")
    assert (REFERENCE / name).read_text() == PAGES[name](), "python -m scripts.reference"


def test_every_key_of_a_pipeline_file_has_a_meaning() -> None:
    """It is the text below the key in `headrace/pipeline/spec.py`."""
    tables = {each for each in vars(spec).values() if isinstance(each, type) and issubclass(each, spec.Table)}
    missing = {
        f"{table.__name__}.{name}"
        for table in tables - {spec.NowhereTo}
        for name in table.model_fields
        if not meanings_of(table).get(name) and name != "type"
    }
    assert missing == set()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="the extra docs is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "reference" / "python" / "index.html").read_text()
    for name in ("headrace.engine.Engine", "headrace.frames.sql", "SparkOptions.bounds"):
        assert name in page, f"{name} is not in the Python reference"
    assert "https://fonts" not in (tmp_path / "index.html").read_text()
    assert (tmp_path / "search" / "search_index.json").stat().st_size > 100_000
