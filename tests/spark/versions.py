"""What works with which version of Spark, and with Spark Connect: what tests marked `versions` check.

`python -m tests.spark.versions PYTHON...` (make test-spark-versions) runs these tests with each Python, which
has its own PySpark, and the newest with Spark Connect too. It prints what was seen, and writes it into
docs/spark/versions.md if nothing failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

from headrace.runtimes.spark.versions import NEWEST, VERSIONS, Number, number

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "spark" / "versions.md"
CONNECT = "HEADRACE_SPARK_CONNECT"
"""Set in the environment: the tests get a session of Spark Connect."""

Home = tuple[Number, bool]
"""A version of Spark, and whether with Connect."""

HOMES: tuple[Home, ...] = (*((version, False) for version in VERSIONS), (NEWEST, True))

FEATURES = {
    "session": "`session`",
    "apply": "`apply`",
    "outputs": "`outputs`",
    "job": "`job`, stopped and started again",
    "timer": "a `latency` bound with a timer",
    "punctuate": "`punctuate`",
    "listener": "`listener`",
    "zones": "timestamps in another session time zone",
    "sources": "sources of a job that come and go",
    "lock": "one driver at a time on a checkpoint",
    "pipeline": "`headrace run`",
}
"""By name of a feature, which is that of its test: its line in the table."""

REFUSED: dict[tuple[str, Home], str] = {
    ("sources", ((4, 0), False)): "HR-SP35",
    ("sources", ((4, 1), False)): "HR-SP35",
    ("pipeline", (NEWEST, True)): "HR-SP02",
}
"""What is refused where, and with which code; everything else works."""


def outcome(feature: str, home: Home) -> str:
    """What the tests expect."""
    code = REFUSED.get((feature, home))
    return "yes" if code is None else f"refused, {code}"


def titled(home: Home) -> str:
    (major, minor), connect = home
    return f"{major}.{minor}{' Connect' if connect else ''}"


Seen = Mapping[tuple[str, Home], str]
NOT_RUN = "not run"

EXPECTED: Seen = {(feature, home): outcome(feature, home) for feature in FEATURES for home in HOMES}


def table(seen: Seen, homes: Iterable[Home] = HOMES) -> str:
    """A line for each feature, a column for each version."""
    homes = tuple(homes)
    lines = [["", *map(titled, homes)], ["---"] * (len(homes) + 1)]
    lines += [[text, *(seen.get((name, home), NOT_RUN) for home in homes)] for name, text in FEATURES.items()]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines) + "\n"


def ran(python: str, version: Number, connect: bool) -> dict[tuple[str, Home], str]:
    """Run the tests with one version; by feature, what was seen."""
    environment = {**os.environ, CONNECT: "1" if connect else ""}
    seen = reported(
        [python, "-m", "pytest", "-q", "-m", "versions", "tests/spark/test_versions.py"], environment
    )
    return {(feature, (version, connect)): what for feature, what in seen.items()}


def reported(pytest: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Run a command of pytest; by feature, what was seen."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        # Of properties in the other family of reports, pytest warns, and warnings are errors here.
        to = ["-o", "junit_family=xunit1", f"--junitxml={report}"]
        subprocess.run([*pytest, *to], cwd=ROOT, env=environment, check=False)
        cases = ElementTree.parse(report).iter("testcase") if report.exists() else []
        return {_feature(case): _result(case) for case in cases}


def connectors(python: str) -> bool:
    """Whether the connectors of Spark for lakes work, where there are any for the version."""
    command = [python, "-m", "pytest", "-q", "-m", "versions", "tests/spark/test_lake_connectors.py"]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def _feature(case: ElementTree.Element) -> str:
    return case.attrib["name"].removeprefix("test_")


def _result(case: ElementTree.Element) -> str:
    for bad in ("failure", "error", "skipped"):
        if case.find(bad) is not None:
            return {"failure": "FAILED", "error": "FAILED", "skipped": "skipped"}[bad]
    code = next(
        (each.attrib["value"] for each in case.iter("property") if each.attrib["name"] == "refused"), None
    )
    return "yes" if code is None else f"refused, {code}"


BEGIN, END = "<!-- table: make test-spark-versions -->\n", "<!-- end -->\n"


def page_table() -> str:
    """The table in the documentation."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0].strip() + "\n"


def _write(seen: Seen) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{table(seen)}\n{END}{rest.partition(END)[2]}")


def main(pythons: list[str]) -> int:
    """Run everything; 1 if anything was not as expected."""
    asked = "import pyspark; print(pyspark.__version__)"
    found = {}
    for python in pythons:
        done = subprocess.run([python, "-c", asked], cwd=ROOT, capture_output=True, text=True, check=True)
        found[number(done.stdout)] = python
    seen: dict[tuple[str, Home], str] = {}
    for version, connect in HOMES:
        if version in found:
            print(f"== {titled((version, connect))}", flush=True)
            seen |= ran(found[version], version, connect)
    print(table(seen, sorted({home for _, home in seen}, key=HOMES.index)))
    wrong: set[object] = {key for key, value in seen.items() if EXPECTED.get(key) != value}
    if not wrong and seen.keys() == EXPECTED.keys():
        _write(seen)
    wrong |= {version for version, python in found.items() if not connectors(python)}
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
