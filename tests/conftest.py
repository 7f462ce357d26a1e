"""What every test may rely on: hypothesis profiles and the shared data sets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"

# HEADRACE_EXAMPLES=2000 looks harder, and at new examples each time. CI runs the same examples every time, so
# that a red run is about the change. Deadlines and `too_slow` measure the machine, which is shared and noisy.
_examples = os.environ.get("HEADRACE_EXAMPLES")
settings.register_profile(
    "headrace",
    deadline=None,
    max_examples=int(_examples or 50),
    derandomize=bool(os.environ.get("CI")) and not _examples,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("headrace")


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
