"""The one form in which benchmarks and experiments say what they measured.

A result is `{"name", "value", "unit"}`, with a `"floor"` it must reach or a `"ceiling"` it must not pass, or
neither where the number only informs. A file is `{"machine", "versions", "results"}` and holds one run, or
several on the same machine with the same versions, so that every number in it was measured on what it names.
`python -m benchmarks.report` prints all files in `benchmarks/out` and fails if any bound is broken.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import NotRequired, TypedDict

OUT = Path(__file__).parent / "out"

PACKAGES = ("headrace", "pyarrow", "numpy", "numba", "polars", "duckdb", "pyspark")


class Result(TypedDict):
    """One measured number and the bound it is held to."""

    name: str
    value: float
    unit: str
    floor: NotRequired[float]
    ceiling: NotRequired[float]


def machine() -> dict[str, str | int | float]:
    """The machine of this run, as far as it explains a number."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def versions() -> dict[str, str]:
    """Python and every package that a number here may depend on, if it is installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def verdict(result: Result) -> str:
    """`ok`, or which bound is broken; a value that is not a number breaks any bound."""
    value = result["value"]
    if "floor" in result and not value >= result["floor"]:
        return "BELOW FLOOR"
    if "ceiling" in result and not value <= result["ceiling"]:
        return "ABOVE CEILING"
    return "ok" if "floor" in result or "ceiling" in result else ""


def write(
    path: str | Path,
    results: Sequence[Result],
    others: Mapping[str, str] | None = None,
    shown: bool = False,
) -> bool:
    """Replace `path` by this run, print it as a table, and say whether every bound holds.

    `others` are versions of packages that live in environments of their own. `shown`: a table was printed.
    """
    names = [result["name"] for result in results]
    if len(set(names)) != len(names):
        raise ValueError(f"a name is used twice in {path}: {sorted(names)}")
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    run = {"machine": machine(), "versions": {**versions(), **(others or {})}, "results": list(results)}
    draft = path.with_name(path.name + ".draft")
    draft.write_text(json.dumps(run, indent=2) + "\n")
    draft.replace(path)
    if not shown:
        print(table(results))
    return holds(results)


def measured_before(path: Path) -> list[Result]:
    """The results in a file, if they were measured on this machine with these versions; else none."""
    if not path.exists():
        return []
    run = json.loads(path.read_text())
    same = {name: value for name, value in machine().items() if name != "load"}
    here = all(run["machine"].get(name) == value for name, value in same.items())
    found: list[Result] = run["results"] if here and run["versions"] == versions() else []
    return found


def holds(results: Iterable[Result]) -> bool:
    """Whether no bound is broken."""
    return all(verdict(result) in ("ok", "") for result in results)


def table(results: Iterable[Result]) -> str:
    """Name, value, bound and verdict, aligned."""
    rows = [("name", "value", "floor", ""), *(_row(result) for result in results)]
    name, value, bound = (max(len(row[column]) for row in rows) for column in range(3))
    return "\n".join(f"{r[0]:<{name}}  {r[1]:>{value}}  {r[2]:>{bound}}  {r[3]}".rstrip() for r in rows)


def _row(result: Result) -> tuple[str, str, str, str]:
    value = f"{number(result['value'])} {result['unit']}".rstrip()
    return result["name"], value, bound(result), verdict(result)


def bound(result: Result) -> str:
    """The floor and the ceiling, in signs."""
    floor = f"≥ {number(result['floor'])}" if "floor" in result else ""
    ceiling = f"≤ {number(result['ceiling'])}" if "ceiling" in result else ""
    return f"{floor} {ceiling}".strip()


def number(value: float) -> str:
    """A number as people read it."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def main(out: Path = OUT) -> int:
    """Print every file of `out`; the exit code is 1 if any bound in them is broken."""
    kept = True
    for path in sorted(out.glob("*.json")):
        results: list[Result] = json.loads(path.read_text())["results"]
        print(f"\n{path.name}\n{table(results)}")
        kept = holds(results) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
