"""What `make docs` does beyond MkDocs: pages from outside docs/, and directories in the navigation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]

OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "experiments/README.md")
"""Pages of the repository that the site shows too, under the same path."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a directory in the navigation by its pages, the index first."""
    config.nav = [_listed(item) for item in config.nav or []]
    return config


def _listed(item: Any) -> Any:
    if isinstance(item, dict):
        return {
            title: _pages(value) if isinstance(value, str) else [_listed(below) for below in value]
            for title, value in item.items()
        }
    return item


def _pages(path: str) -> Any:
    folder = ROOT / "docs" / path
    if not folder.is_dir():
        return path
    found = sorted(file.relative_to(ROOT / "docs").as_posix() for file in folder.rglob("*.md"))
    return sorted(found, key=lambda page: not page.endswith(("index.md", "README.md")))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside, and the pictures that they show."""
    pictures = (ROOT / "experiments" / "pictures").glob("*.svg")
    for name in (*OUTSIDE, *(path.relative_to(ROOT).as_posix() for path in pictures)):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Write links as the site needs them, where docs/ is the top, and fences as it knows them."""
    inside = f"({'|'.join(map(re.escape, OUTSIDE))})"
    if page.file.src_uri in OUTSIDE:
        markdown = re.sub(r"\]\(((?:\.\./)*)docs/", r"](\1", markdown)
    else:
        markdown = re.sub(rf"\]\(((?:\.\./)*)\.\./{inside}", r"](\1\2", markdown)
    return re.sub(r"^(```[a-z]+) .*$", r"\1", markdown, flags=re.MULTILINE)  # ```python spark page
