"""The page of each connector has a line for every key of its sources, sinks and lookup tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline import parse, spec

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: dict[str, tuple[type[Any], ...]] = {
    "files.md": (spec.FilesFrom, spec.FilesTo),
    "kafka.md": (spec.KafkaFrom, spec.KafkaTo),
    "databases.md": (spec.PostgresTo, spec.SqliteTo, spec.DuckdbTo),
    "lakes.md": (spec.DeltaFrom, spec.IcebergFrom, spec.DeltaTo, spec.IcebergTo),
    "python.md": (spec.PythonFrom, spec.PythonTo, spec.FunctionSpec),
    "history.md": (spec.HistoryFrom,),
    "sockets.md": (spec.TcpFrom, spec.StdinFrom, spec.StdoutTo),
    "generators.md": (spec.PoissonFrom, spec.NexmarkFrom),
    "sparks-own.md": (spec.SparkFrom, spec.SparkTo),
}


def keys_on(page: str) -> set[str]:
    """The keys that have a line in a table of a page."""
    text = (DOCS / page).read_text()
    cells = re.findall(r"^\| (`[^|]*`[^|]*) \|", text, re.M)
    return {key for cell in cells for key in re.findall(r"`([^`]+)`", cell)}


CASES = [(f"connectors/{page}", model) for page, models in PAGES.items() for model in models]


@pytest.mark.parametrize(("page", "model"), CASES, ids=[model.__name__ for _, model in CASES])
def test_every_key_of_a_connector_has_a_line_on_its_page(page: str, model: type[Any]) -> None:
    keys = {field.alias or name for name, field in model.model_fields.items()}
    assert keys - keys_on(page) == set()


def test_every_connector_has_a_page() -> None:
    with_type = {
        each
        for each in vars(spec).values()
        if isinstance(each, type) and issubclass(each, spec.Table) and "type" in each.model_fields
    }
    known = {model for models in PAGES.values() for model in models} | {spec.NowhereTo, spec.TableSpec}
    assert with_type - known == set()


def pipelines_on(page: Path) -> list[str]:
    """The pipeline files on a page, which leave out what every file has."""
    blocks = re.findall(r"```toml\n(.*?)```", page.read_text(), re.S)
    return [block for block in blocks if "[streams." in block and "[[queries]]" in block]


FILES = [text for page in sorted(DOCS.glob("connectors/*.md")) for text in pipelines_on(page)]


@pytest.mark.parametrize("text", FILES, ids=[text.split("]")[0].strip("[") for text in FILES])
def test_a_pipeline_on_a_page_is_valid(text: str, tmp_path: Path) -> None:
    runtime = "spark" if 'type = "spark"' in text else "embedded"
    head = f'[pipeline]\nname = "page"\nruntime = "{runtime}"\n'
    assert parse(head + text, root=tmp_path).queries
