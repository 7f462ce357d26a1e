"""What every test may rely on: how laws are tried, and the shared data sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"

pytest_plugins = ["tests.laws"]


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """`shared_data("nexmark")` is the path of that data set; the test is skipped where there is none."""

    def path(name: str) -> Path:
        found = SHARED_DATA / name
        if not found.exists():
            pytest.skip(f"no shared data {name!r}: {found} does not exist")
        return found

    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for shared data is marked so, for `-m "not shared_data"`."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.shared_data)
