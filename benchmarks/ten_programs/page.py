"""The page of the ten programs, from what was measured and from the programs: docs/ten-programs.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
PROGRAMS: Final = Path(__file__).parent / "programs"
RECORDED: Final = Path(__file__).parent / "recorded.json"
PAGE: Final = ROOT / "docs" / "ten-programs.md"
TITLES: Final = {
    "minute": "count per minute, from CSV",
    "join": "join of two streams, by minute",
    "topn": "the two busiest of each minute",
    "session": "sessions with a gap of 30 s",
    "pattern": "a failed login, then one that worked",
    "socket": "count per minute, from a socket, live",
    "kafka": "count per minute, from Kafka, live",
    "parquet": "count per minute, from Parquet",
    "database": "count per minute, from SQLite",
    "function": "a Python function in the query",
}
NAMES: Final = {
    "headrace": "Headrace",
    "duckdb": "DuckDB",
    "polars": "Polars",
    "bytewax": "Bytewax",
    "pathway": "Pathway",
}
CANNOT: Final = "no"
BUSY: Final = 1.5
"""The load average from which on other work counts."""


def lines_of(system: str, program: str) -> int | None:
    """The lines of a program that are neither empty nor comments; None if there is none."""
    file = PROGRAMS / system / f"{program}.py"
    if not file.exists():
        return None
    lines = (line.strip() for line in file.read_text().splitlines())
    return sum(1 for line in lines if line and not line.startswith("#"))


def text(found: dict[str, Any]) -> str:
    """The page."""
    names, line = " | ".join(NAMES.values()), " | ".join(["---:"] * len(NAMES))
    head = f"| seconds / CPU / lines | {names} |\n| --- | {line} |"
    rows = [
        f"| {title} | {' | '.join(_cell(found, system, program) for system in NAMES)} |"
        for program, title in TITLES.items()
    ]
    versions = ", ".join(f"{NAMES[name]} {version}" for name, version in found["versions"].items())
    return f"""# Ten programs in five systems

How long is it from the end of `pip install` to the first answer, and how much must be written for it? Each
cell has the seconds from the start of a new process to its first right answer, in an environment that has
only this system; the seconds of CPU that it used; and the lines of the program, without empty ones.
`{CANNOT}`: the system has no source of this kind, or does not run over input that goes on.

{head}
{chr(10).join(rows)}

Measured with {versions}, one after the other, on two cores.{_busy(found)}

- The programs are in `benchmarks/ten_programs/programs`, formatted alike. All print the same rows, which the
  script checks.
- DuckDB and Polars answer over tables that are complete. They have no sockets, topics, watermarks or late
  rows. For data that is there, and a question that is asked once, they start faster and are as short.
- Bytewax has no reader of Parquet or of databases: its programs read the rows with other packages and pass
  them on as a list. Its join is by windows, and its pattern is a function over the state of each key.
- Pathway and Headrace read SQLite through Python here: Headrace has sinks for databases, and no source.
- DuckDB reads SQLite with an extension that it downloads; the machine of this measurement cannot, so its
  program uses pandas.

`python -m benchmarks.ten_programs.run` builds the wheel, installs each system in an environment of its own,
runs everything, and writes this page.
"""


def _cell(found: dict[str, Any], system: str, program: str) -> str:
    lines = lines_of(system, program)
    if lines is None:
        return CANNOT
    return f"{found['seconds'][system][program]:.1f} / {found['cpu'][system][program]:.1f} / {lines}"


def _busy(found: dict[str, Any]) -> str:
    """A warning if other programs ran during the measurement."""
    load = found["load"]
    if load < BUSY:
        return ""
    return (
        f" The machine was busy with other work, with a load average of {load:.0f}:\n"
        "compare the seconds of CPU, not the seconds."
    )


def page() -> None:
    """Write the page."""
    PAGE.write_text(text(json.loads(RECORDED.read_text())))


if __name__ == "__main__":
    page()
