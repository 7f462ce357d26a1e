"""Kernels are compiled when they are needed, with a word to the user, and wherever nothing can be written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types
from numba.core import event

from headrace.kernels.compiling import kernel

ROOT = Path(__file__).resolve().parents[2]

COMPILE = """
import numpy as np
from headrace import tuning
tuning.current = tuning.Tuning(compile_notice_seconds=0.0)
from headrace.kernels.gather import first_above
assert first_above(np.array([1, 5, 9]), 4) == 1
"""


def python(
    code: str, root: Path = ROOT, without: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    dropped = {"NUMBA_CACHE_DIR", "HEADRACE_SILENT_COMPILATION", "XDG_CACHE_HOME", *without}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    environment = {**kept, "PYTHONPATH": str(root), **variables}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, check=False)


class Compiled(event.Listener):
    """The names of the functions of this file that numba compiles."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: event.Event) -> None:
        return None

    def on_end(self, event: event.Event) -> None:
        function = event.data["dispatcher"].py_func
        if function.__module__ == __name__:
            self.names.append(function.__name__)


@kernel(types.int64(types.int64[::1]))
def doubled_sum(values: np.ndarray) -> int:
    total = 0
    for value in values:
        total += 2 * value
    return total


@kernel(types.int64(types.int64[::1], types.int64))
def sum_and(values: np.ndarray, more: int) -> int:
    return doubled_sum(values) + more


def test_a_kernel_is_compiled_by_its_first_call_for_its_declared_types_only() -> None:
    listener = Compiled()
    with event.install_listener("numba:compile", listener):
        with pytest.raises(TypeError, match="No matching definition"):
            sum_and(np.arange(3, dtype=np.int32), 1)  # the first call checks types as every other one does
        assert sum_and(np.arange(3), 1) == 7
        assert sum_and(np.arange(3), True) == 7
        assert doubled_sum(np.arange(3)) == 6
    cached = {name for name in ("sum_and", "doubled_sum") if name not in listener.names}
    assert len(listener.names) == len(set(listener.names))
    assert cached | set(listener.names) == {"sum_and", "doubled_sum"}
    assert sum_and.signatures == [(types.int64[::1], types.int64)]
    assert doubled_sum.signatures == [(types.int64[::1],)]


def test_an_import_compiles_nothing(tmp_path: Path) -> None:
    found = python("import headrace.engine, headrace.pipeline", NUMBA_CACHE_DIR=str(tmp_path))
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert not list(tmp_path.rglob("*.nbi"))


def test_compilation_is_announced_on_standard_error_and_loading_is_not(tmp_path: Path) -> None:
    first = python(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    assert (first.returncode, first.stdout) == (0, "")
    assert first.stderr == "headrace: compiling kernels for this machine: this takes up to a minute, once\n"
    again = python(COMPILE, NUMBA_CACHE_DIR=str(tmp_path))
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")


def test_the_announcement_can_be_switched_off(tmp_path: Path) -> None:
    found = python(COMPILE, NUMBA_CACHE_DIR=str(tmp_path), HEADRACE_SILENT_COMPILATION="1")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    """A copy of the package into which nobody can write, root included: a file stands where a cache would."""
    package = tmp_path / "site" / "headrace"
    shutil.copytree(ROOT / "headrace", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "kernels" / "__pycache__").write_text("")
    (package / "kernels").chmod(0o555)
    return package.parent


def test_kernels_work_where_neither_the_package_nor_home_can_be_written(
    read_only: Path, tmp_path: Path
) -> None:
    places = {"HOME": "/dev/null", "TMPDIR": str(tmp_path)}
    first = python(COMPILE, read_only, **places)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("\n") == 1
    private = tmp_path / f"headrace-kernels-{os.getuid()}"
    assert private.stat().st_mode & 0o777 == 0o700
    assert list(private.rglob("*first_above*.nbi"))
    again = python(COMPILE, read_only, **places)
    assert (again.returncode, again.stderr) == (0, "")


def test_a_cache_that_others_can_write_to_is_not_used(read_only: Path, tmp_path: Path) -> None:
    """What is in a cache is run as code."""
    private = tmp_path / f"headrace-kernels-{os.getuid()}"
    private.mkdir()
    private.chmod(0o777)
    found = python(COMPILE, read_only, HOME="/dev/null", TMPDIR=str(tmp_path))
    assert found.returncode == 0, found.stderr
    assert "in every process" in found.stderr
    assert "NUMBA_CACHE_DIR" in found.stderr
    assert not list(private.iterdir())


def test_every_kernel_is_declared_by_the_decorator_that_knows_where_to_cache() -> None:
    for path in sorted((ROOT / "headrace").rglob("*.py")):
        found = re.findall(r"@(?:nb|numba)\.n?jit\b(?!\(inline=\"always\"\))", path.read_text())
        assert not found, f"{path}: use headrace.kernels.compiling.kernel"


def test_every_kernel_that_the_engine_calls_is_in_a_wheel() -> None:
    """A kernel without types is compiled at its first call, and the user of a wheel waits for it."""
    package = ROOT / "headrace"
    without = {
        (path.stem, name)
        for path in (package / "kernels").glob("*.py")
        for name in re.findall(r"^@kernel\(\)\ndef (\w+)", path.read_text(), re.M)
    }
    assert ("heartbeat", "mature_row") in without  # called by kernels only
    called = set()
    for path in package.rglob("*.py"):
        if path.parent.name == "kernels":
            continue
        text = path.read_text()
        for module, names in re.findall(r"from headrace\.kernels\.(\w+) import ([\w, ]+)", text):
            called |= {(module, name.split(" as ")[0]) for name in names.split(", ")}
        for module, alias in re.findall(r"from headrace\.kernels import (\w+)(?: as (\w+))?", text):
            called |= {(module, name) for name in re.findall(rf"\b{alias or module}\.(\w+)\(", text)}
    assert ("heartbeat", "arrive") in called
    assert without & called == set()


def test_the_types_that_a_wheel_has_are_those_of_calls() -> None:
    code = """
from numba.core import event
from headrace.kernels.compiling import compile_all
compile_all()
seen = []
class Seen(event.Listener):
    def on_start(self, what): seen.append(what.data["dispatcher"].py_func.__name__)
    def on_end(self, what): pass
event.register("numba:compile", Seen())
import headrace
rows = {"v": [0, 1, 2, 3], "t": [0, 100, 95, 5]}
headrace.sql("SELECT v FROM s", s=rows, time="t", bounds={"s": {"disorder": 10}})
from headrace.pipeline import parse
from headrace.runtimes.embedded import Runner
text = '''
[pipeline]
name = "p"
runtime = "embedded"
[streams.a]
source = { type = "poisson", rate = 100, rows = 50, disorder = "1 s" }
schema = "k BIGINT, v DOUBLE, at TIMESTAMP"
time = "at"
BOUNDS
[[queries]]
name = "q"
sql = "SELECT k, count(*) AS n FROM a [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
sink = { path = "OUT", existing = "replace" }
'''
import tempfile
kinds = ('disorder = "1 s"', 'latency = "1 s"', 'slack = "9 rows"', 'estimate = true')
for bounds in (*(f"bounds = {{ {kind} }}" for kind in kinds), '[skew]\\nestimate = { horizon = "1 s" }'):
    folder = tempfile.mkdtemp()
    Runner(parse(text.replace("BOUNDS", bounds).replace("OUT", folder + "/out.jsonl"), root=folder)).run()
assert not seen, seen
"""
    run = python(code)
    assert run.returncode == 0, run.stderr
