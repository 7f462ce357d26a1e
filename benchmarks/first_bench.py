"""The first minute of a new user: the wheel in an empty environment, its import and its first answer.

    python -m benchmarks.first_bench

Builds the wheel, installs it in a new virtual environment, and measures whole processes: wall time, with CPU
seconds printed beside it. Cold is the first run after the install, with the system's file cache dropped if
that is allowed here; warm is the median of five. The wheel's kernels come compiled: the run ends with an
error if one had to be compiled.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.report import OUT, Result, write

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
IMPORT = "import headrace"
EVERYTHING = "import headrace; [getattr(headrace, name) for name in headrace.__all__ if name != 'spark']"
QUERY = "SELECT item, count(*) AS bids FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item"
TURNS = 5


def seconds(*command: str) -> float:
    """The wall time of a process that must succeed."""
    before, begun = os.times(), time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - begun, os.times()
    if run.returncode:
        raise SystemExit(run.stderr)
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    print(f"  {wall:6.2f} s, {cpu:5.2f} s of CPU: {Path(command[0]).name} {' '.join(command[1:])[:70]}")
    return wall


def drop_file_cache() -> None:
    """Make the next process read its files from disk, if we may."""
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        print("  the file cache cannot be dropped here: cold means the first run after the install")


def write_bids(path: Path, size: int = 2**20) -> None:
    """A CSV file of about `size` bytes: a bid per second."""
    chance, begin = random.Random(1), datetime(2026, 1, 1, tzinfo=UTC)
    with path.open("w") as file:
        file.write("item,price,at\n")
        for second in range(size // 36):
            at = (begin + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
            file.write(f"item{chance.randrange(100)},{100 * chance.random():.2f},{at}\n")


def install(folder: Path) -> Path:
    """Build the wheel and install it in a new virtual environment; returns its directory of programs."""
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    wheel = folder / built.stdout.split()[-1]
    subprocess.run([sys.executable, "-m", "venv", folder / "empty"], check=True)
    programs = folder / "empty" / "bin"
    subprocess.run(
        [programs / "python", "-m", "pip", "install", "--quiet", "--no-input", f"{wheel}[cli]"], check=True
    )
    return programs


def measure(folder: Path) -> list[Result]:
    programs = install(folder)
    python, headrace = str(programs / "python"), str(programs / "headrace")
    bids = folder / "bids.csv"
    write_bids(bids)
    answer = (headrace, "query", QUERY, str(bids), "--time", "at")
    drop_file_cache()
    cold_answer = seconds(*answer)
    drop_file_cache()
    cold_import = seconds(python, "-c", EVERYTHING)
    if list((folder / "empty").rglob("__pycache__/*.nbc")):
        raise SystemExit("a kernel was compiled: the wheel's kernels do not fit this machine")
    warm = {
        "first.import_s": statistics.median(seconds(python, "-c", IMPORT) for _ in range(TURNS)),
        "first.import_all_s": statistics.median(seconds(python, "-c", EVERYTHING) for _ in range(TURNS)),
        "first.warm_answer_s": statistics.median(seconds(*answer) for _ in range(TURNS)),
    }
    return [
        {"name": "first.import_s", "value": warm["first.import_s"], "unit": "s", "ceiling": 0.5},
        {"name": "first.import_all_s", "value": warm["first.import_all_s"], "unit": "s"},
        {"name": "first.cold_import_s", "value": cold_import, "unit": "s", "ceiling": 1.5},
        {"name": "first.answer_s", "value": cold_answer, "unit": "s", "ceiling": 2.0},
        {"name": "first.warm_answer_s", "value": warm["first.warm_answer_s"], "unit": "s"},
    ]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="first_bench") as name:
        found = measure(Path(name))
    return 0 if write(OUT / "first.json", found) else 1


if __name__ == "__main__":
    sys.exit(main())
