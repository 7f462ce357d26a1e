"""`headrace doctor`: Python, packages, Java, memory, disk; what is missing and what to install."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import dataclass
from importlib import metadata

from headrace.errors import SparkError
from headrace.runtimes.spark.driver.java import find

NEEDED = ("pyarrow", "numpy", "numba", "sqlglot", "pydantic", "typer", "rich")
FOR_SPARK = ("pyspark", "pandas", "protobuf")
LEAST_MEMORY = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """The result of one check: what was found, whether it is needed, and what to do if it is missing."""

    what: str
    found: str
    well: bool
    needed: bool
    advice: str = ""


def examine() -> list[Finding]:
    """Run all checks."""
    return [
        _python(),
        *(_package(name, True, "pip install 'headrace[cli]'") for name in NEEDED),
        *(_package(name, False, "pip install 'headrace[spark]' to run on Spark") for name in FOR_SPARK),
        _java(),
        _memory(),
        _disk(),
    ]


def _python() -> Finding:
    well = sys.version_info >= (3, 11)
    return Finding("python", platform.python_version(), well, True, "install Python 3.11 or later")


def _package(name: str, needed: bool, advice: str) -> Finding:
    try:
        return Finding(name, metadata.version(name), True, needed)
    except metadata.PackageNotFoundError:
        return Finding(name, "missing", False, needed, advice)


def _java() -> Finding:
    try:
        java = find()
    except SparkError as error:
        return Finding("java", "missing", False, False, error.hint)
    return Finding("java", f"{java.version} in {java.home}", True, False)


def _memory() -> Finding:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Finding(
        "memory", f"{size / 2**30:.1f} GiB", size >= LEAST_MEMORY, False, "2 GiB or more is recommended"
    )


def _disk() -> Finding:
    free = shutil.disk_usage(".").free
    return Finding(
        "disk", f"{free / 2**30:.1f} GiB free here", free > 2**30, False, "free some space for checkpoints"
    )


def told(findings: list[Finding]) -> str:
    """A line for each finding, and a summary."""
    marks = {(True, True): "ok", (True, False): "ok", (False, True): "MISSING", (False, False): "absent"}
    lines = []
    for each in findings:
        advice = "" if each.well else f"  ({each.advice})"
        lines.append(f"{marks[each.well, each.needed]:<8} {each.what:<10} {each.found}{advice}")
    broken = [each.what for each in findings if each.needed and not each.well]
    on_spark = all(each.well for each in findings if each.what in (*FOR_SPARK, "java"))
    also = "and pipelines on Spark too" if on_spark else "but not on Spark: see what is absent"
    lines.append(
        f"missing: {', '.join(broken)}" if broken else f"embedded pipelines can run on this machine, {also}"
    )
    return "\n".join(lines)
