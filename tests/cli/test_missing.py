"""What a command says where an optional package is missing: one line with the pip command, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtimes.embedded.pipelines import sliding

ROOT = Path(__file__).resolve().parents[2]

BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
for name in [name for name in sys.modules if name.partition(".")[0] in {names!r}]:
    del sys.modules[name]
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {names!r} else found(name, *more)
from headrace.cli.__main__ import main
sys.argv[0] = "headrace"
main()
"""


def without(*names: str, words: tuple[str | Path, ...]) -> subprocess.CompletedProcess[str]:
    """A command in a process in which some packages cannot be imported."""
    command = [sys.executable, "-c", BLOCK.format(names=names), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("name", ["typer", "rich"])
def test_without_the_cli_extra_one_line_says_what_to_install(name: str) -> None:
    ran = without(name, words=("--help",))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == f"headrace: {name} is not installed; pip install 'headrace[cli]'\n"


def test_without_pyspark_a_file_that_names_no_runtime_runs_embedded_and_says_so(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=100)
    pipeline.write_text(pipeline.read_text().replace('runtime = "embedded"\n', ""))
    ran = without("pyspark", words=("run", pipeline))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.startswith("note: pyspark is not installed, so the pipeline runs embedded")
    assert "sliding is finished" in ran.stdout
    assert "pyspark" not in ran.stdout.replace(str(tmp_path), "")


def test_without_pyspark_an_explicit_runtime_spark_is_an_error_with_the_pip_command(tmp_path: Path) -> None:
    pipeline = sliding(tmp_path, rows=100)
    pipeline.write_text(pipeline.read_text().replace('runtime = "embedded"', 'runtime = "spark"'))
    ran = without("pyspark", words=("run", pipeline))
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: [HR-SP03] headrace.spark needs pyspark, which is not installed")
    assert "pip install 'headrace[spark]'" in ran.stderr
    assert "Traceback" not in ran.stderr
