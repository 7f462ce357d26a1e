"""The ten programs print what they must, and their page says what was measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.ten_programs.inputs import EXPECTED, write
from benchmarks.ten_programs.page import NAMES, PAGE, PROGRAMS, RECORDED, TITLES, lines_of, text
from benchmarks.ten_programs.run import holds, measure, missing

ROOT = Path(__file__).resolve().parents[2]
LIVE = ("socket", "kafka")
ALL_IN_ONE = """
import runpy, sys
for each in sys.argv[1:]:
    print("program", each)
    runpy.run_path(each, run_name="__main__")
"""


def test_programs_over_files_print_their_rows(tmp_path: Path) -> None:
    write(tmp_path)
    names = [name for name in EXPECTED if name not in LIVE]
    files = [str(PROGRAMS / "headrace" / f"{name}.py") for name in names]
    ran = subprocess.run(
        [sys.executable, "-c", ALL_IN_ONE, *files],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    outputs = ran.stdout.split("program ")[1:]
    assert len(outputs) == len(names) == 8
    for name, output in zip(names, outputs, strict=True):
        assert missing(output.splitlines(), EXPECTED[name]) == [], name


@pytest.mark.parametrize("name", LIVE)
def test_live_programs_print_their_rows_while_their_input_is_open(name: str, tmp_path: Path) -> None:
    if name == "kafka":
        pytest.importorskip("confluent_kafka", reason="headrace[kafka] is not installed")
    write(tmp_path)
    (tmp_path / "programs").mkdir()
    file = tmp_path / "programs" / f"{name}.py"
    file.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        + (PROGRAMS / "headrace" / f"{name}.py").read_text()
    )
    seconds, cpu = measure(Path(sys.executable), file, tmp_path)
    assert seconds > 0
    assert cpu > 0


def test_a_row_needs_a_line_of_its_own() -> None:
    assert holds("│ lamp │ 12.50 │", ("lamp", "12.5"))
    assert not holds("lamp 125", ("lamp", "12.5"))
    assert not holds("lamps 12", ("lamp", "12"))
    assert missing(["lamp 2"], [("lamp", "2"), ("lamp", "2")]) == [("lamp", "2")]


def test_the_page_has_what_was_measured_and_every_program_is_there() -> None:
    found = json.loads(RECORDED.read_text())
    assert PAGE.read_text() == text(found), "python -m benchmarks.ten_programs.page"
    assert set(TITLES) == set(EXPECTED)
    assert all(lines_of("headrace", name) for name in TITLES)
    for system in NAMES:
        assert set(found["seconds"][system]) == {name for name in TITLES if lines_of(system, name)}
