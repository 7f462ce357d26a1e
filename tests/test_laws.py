"""Laws are tried on fixed examples, the same in every run, and on fresh ones that a printed seed repeats."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.laws import FIXED, FRESH, seed_of_checkout

ROOT = Path(__file__).resolve().parent.parent
LAW = """
import os, pytest
from hypothesis import assume, given
from hypothesis import strategies as st

WRONG_FROM = int(os.environ.get("WRONG_FROM", 1000))
REFUSED_AT = int(os.environ.get("REFUSED_AT", 1000))
tried, refused = [], []

@pytest.mark.parametrize("name", ["one", "other"])
@given(st.data())
def test_law(name, data):
    drawn = data.draw(st.integers() | st.text() | st.floats())
    if len(tried) == REFUSED_AT and len(refused) < 60:
        refused.append(drawn)
        assume(False)
    tried.append(drawn)
    print(name, repr(tried[-1]).encode().hex())
    assert len(tried) < WRONG_FROM
"""


def run(folder: Path, *args: str, **variables: str) -> str:
    """What pytest prints, run as in a clean clone."""
    (folder / "test_it.py").write_text(LAW)
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "HEADRACE_SEED")}
    command = [sys.executable, "-m", "pytest", "-s", "-p", "tests.laws", "-p", "no:cacheprovider", *args]
    return subprocess.run(
        [*command, "test_it.py"],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        text=True,
    ).stdout


def examples(output: str, name: str = "one") -> tuple[list[str], list[str]]:
    """The fixed and the fresh examples of a law."""
    tried = re.findall(rf"\b{name} (\w+)", output)
    return tried[:FIXED], tried[FIXED:]


def seed_of(output: str) -> str:
    return re.findall(r"HEADRACE_SEED=(\d+)", output)[0]


def test_fixed_examples_never_change_and_the_seed_that_is_printed_brings_back_the_fresh_ones(
    tmp_path: Path,
) -> None:
    first = run(tmp_path)
    assert "2 passed" in first
    fixed, fresh = examples(first)
    assert (len(fixed), len(fresh)) == (FIXED, FRESH)
    assert examples(first, "other")[1] != fresh, "each law has examples of its own"
    second = run(tmp_path, CI="true", PYTHONHASHSEED="7")
    assert examples(second)[0] == fixed
    assert examples(second)[1] != fresh
    assert seed_of(second) != seed_of(first)
    assert examples(run(tmp_path, HEADRACE_SEED=seed_of(first)))[1] == fresh
    parallel = run(tmp_path, "-n", "2", "-rP", "--capture=fd", HEADRACE_SEED=seed_of(first))
    assert examples(parallel) == (fixed, fresh)
    assert len(set(re.findall(r"HEADRACE_SEED=(\d+)", parallel))) == 1
    alone = run(tmp_path, "-k", "one", f"--hypothesis-seed={seed_of(first)}")
    assert examples(alone) == (fixed, fresh)


def test_a_clean_checkout_has_the_seed_of_its_commit(tmp_path: Path) -> None:
    def git(*command: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True, capture_output=True)

    (tmp_path / ".gitignore").write_text("*.pyc\n.hypothesis/\n")
    for folder in ("headrace", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.txt").write_text("one")
    git("init")
    git("add", ".")
    git("commit", "-m", "one")
    first = seed_of_checkout(tmp_path)
    assert seed_of_checkout(tmp_path) == first
    (tmp_path / "headrace" / "one.txt").write_text("a change")
    assert len({first, seed_of_checkout(tmp_path), seed_of_checkout(tmp_path)}) == 3
    git("commit", "-a", "-m", "two")
    second = seed_of_checkout(tmp_path)
    assert second != first
    (tmp_path / "notes.md").write_text("documents and measurements do not change the examples")
    git("add", ".")
    git("commit", "-m", "three")
    assert seed_of_checkout(tmp_path) == second


@pytest.mark.parametrize(
    ("wrong", "where"), [("1", "on a fixed example"), (str(FIXED + 1), "on a fresh example")]
)
def test_a_failure_says_which_examples_it_is_among_and_repeats_the_seed(
    tmp_path: Path, wrong: str, where: str
) -> None:
    output = run(tmp_path, "-k", "one", WRONG_FROM=wrong)
    assert "1 failed" in output
    assert where in output
    assert output.count(f"HEADRACE_SEED={seed_of(output)}") >= 2
    assert "HEADRACE_SEED" in output[output.index("short test summary") - 300 :]


@pytest.mark.parametrize(("at", "end"), [(0, "1 failed"), (FIXED, "1 passed")])
def test_only_fixed_examples_tell_whether_too_many_are_refused(tmp_path: Path, at: int, end: str) -> None:
    """On fresh ones it is chance: 50 refused before 10 are tried fail a law that a third of them suit."""
    output = run(tmp_path, "-k", "one", REFUSED_AT=str(at))
    assert end in output
    assert ("filter_too_much" in output) == (at == 0)


def test_only_the_plugin_says_how_many_examples_a_law_is_tried_on() -> None:
    """Elsewhere a number would keep HEADRACE_EXAMPLES from deciding: `effort` takes a share, and a reason."""
    own = {Path(__file__), ROOT / "tests" / "laws.py"}
    others = [path for path in (ROOT / "tests").rglob("*.py") if path not in own]
    assert not [path for path in others if re.search(r"max_examples *=|HEADRACE_EXAMPLES", path.read_text())]


def test_no_law_hides_inside_a_test() -> None:
    """There the plugin would not see it, and it would be tried on examples that no seed brings back."""
    hidden = re.compile(r"^[ ]+@given|^[ ]+law\(\)$", re.MULTILINE)
    assert not [path for path in (ROOT / "tests").rglob("*.py") if hidden.search(path.read_text())]


def test_a_seed_that_is_not_a_number_is_refused(tmp_path: Path) -> None:
    assert "not an integer: 'today'" in run(tmp_path, HEADRACE_SEED="today")
