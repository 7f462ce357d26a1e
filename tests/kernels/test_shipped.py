"""Kernels that came compiled with the package are used if they fit, and compiled here if they do not."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.kernels.shipped import TARGETS, settings_for_building

ROOT = Path(__file__).resolve().parents[2]

CALL = """
import numpy as np
from numba.core import event
from headrace.kernels.gather import first_above

class Compiled(event.Listener):
    def on_start(self, event): pass
    def on_end(self, event): print("asked for", event.data["dispatcher"].py_func.__name__)

with event.install_listener("numba:compile", Compiled()):
    assert first_above(np.array([1, 5, 9]), 4) == 1
hits = sum(first_above.stats.cache_hits.values())
print("hits", hits, "misses", sum(first_above.stats.cache_misses.values()))
"""

WITHOUT_AVX2 = """
import llvmlite.binding as llvm
found = llvm.get_host_cpu_features()
found.update({name: False for name in ("avx2", "fma") if name in found})
llvm.get_host_cpu_features = lambda: found
"""

pytestmark = pytest.mark.skipif(platform.machine() not in TARGETS, reason="no wheels for this machine")


def python(code: str, root: Path, **variables: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), **variables}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, cwd=root, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with one compiled kernel in the place of a wheel's."""
    root = tmp_path_factory.mktemp("site")
    package = root / "headrace"
    shutil.copytree(ROOT / "headrace", package, ignore=shutil.ignore_patterns("__pycache__", "compiled"))
    made = tmp_path_factory.mktemp("made")
    python(CALL, root, **settings_for_building(made))
    assert list(made.glob("gather.first_above-*.nbc"))
    shutil.copytree(made, package / "kernels" / "compiled")
    shutil.rmtree(package / "kernels" / "__pycache__")
    return root


@pytest.fixture
def site(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "site"))


def own(site: Path) -> list[Path]:
    """What the machine has compiled itself."""
    return list((site / "headrace" / "kernels" / "__pycache__").glob("*.nbc"))


def test_a_kernel_that_came_compiled_is_not_compiled(site: Path) -> None:
    assert "hits 1 misses 0" in python(CALL, site)
    assert not own(site)


def test_it_works_where_nothing_can_be_written(site: Path, tmp_path: Path) -> None:
    (site / "headrace" / "kernels" / "__pycache__").write_text("")  # a file where the cache would be
    (tmp_path / "nothing").write_text("")
    found = python(
        CALL, site, HOME="/dev/null", TMPDIR=str(tmp_path / "nothing"), PYTHONDONTWRITEBYTECODE="1"
    )
    assert "hits 1 misses 0" in found


@pytest.mark.parametrize("name", ["gather.py", "hashing.py"])
def test_after_a_change_of_any_kernel_it_is_compiled_here(site: Path, name: str) -> None:
    """Of any: a kernel contains the code of those that it calls, also from other files."""
    source = site / "headrace" / "kernels" / name
    source.write_text(source.read_text() + "\n# changed\n")
    assert "hits 0 misses 1" in python(CALL, site)
    assert own(site)


def test_a_processor_without_the_features_compiles_its_own(site: Path) -> None:
    if not TARGETS[platform.machine()].features:
        pytest.skip("every processor of this kind has the features")
    assert "hits 0 misses 1" in python(WITHOUT_AVX2 + CALL, site)
    assert own(site)


def test_files_of_another_version_of_numba_are_not_used(site: Path) -> None:
    other = 'import numba; numba.__version__ = "0.1"\n'
    assert "hits 0 misses 1" in python(other + CALL, site)
