"""What `pip install` gives a user: the wheel, in an empty environment, answers the README's first query."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.slow
@pytest.mark.timeout(900)  # it compiles for half a minute of CPU and downloads 130 MB
def test_the_first_example_runs_from_the_wheel_and_compiles_nothing(tmp_path: Path) -> None:
    built = run(sys.executable, "-c", BUILD, str(tmp_path), cwd=ROOT)
    assert built.returncode == 0, built.stderr
    wheel = tmp_path / built.stdout.split()[-1]
    assert re.search(r"-cp3\d+-cp3\d+-manylinux_\w+\.whl$", wheel.name), wheel.name

    assert run(sys.executable, "-m", "venv", "empty", cwd=tmp_path).returncode == 0
    python = str(tmp_path / "empty" / "bin" / "python")
    installed = run(python, "-m", "pip", "install", "--quiet", "--no-input", f"{wheel}[cli]", cwd=tmp_path)
    if "No matching distribution" in installed.stderr or "ConnectionError" in installed.stderr:
        pytest.skip("the dependencies cannot be downloaded here")
    assert installed.returncode == 0, installed.stderr

    block, output = re.findall(r"```(?:python|text)\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[
        :2
    ]
    (tmp_path / "first.py").write_text(block)
    first = run(python, "first.py", cwd=tmp_path)
    assert (first.stdout, first.stderr) == (output, "")
    assert not list((tmp_path / "empty").rglob("__pycache__/*.nbc")), "a kernel was compiled"

    version = run(str(tmp_path / "empty" / "bin" / "headrace"), "--version", cwd=tmp_path)
    assert wheel.name.split("-")[1] in version.stdout
