"""How much memory there may be: bytes, a size such as '64 MB', or a share of a whole such as '25 %'."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.errors import BudgetError

UNITS: Final = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1024,
    "MIB": 1024**2,
    "GIB": 1024**3,
    "TIB": 1024**4,
}
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_WRITTEN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(%|[A-Za-z]*)\s*")


def machine_bytes() -> int:
    """The memory of this machine, or of the container around this process if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return total


def budget_bytes(written: int | str, whole: Callable[[], int] = machine_bytes) -> int:
    """A budget in bytes; a share is one of `whole`."""
    size = _parsed(written, whole)
    if size is None or size <= 0:
        raise BudgetError(
            "HR-M002",
            f"{written!r} is no size of memory",
            place="budget",
            hint="bytes, '64 MB', '2 GiB', or a share such as '25 %'",
        )
    return size


def _parsed(written: int | str, whole: Callable[[], int]) -> int | None:
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    found = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if found is None:
        return None
    number, unit = float(found[1]), found[2].upper()
    if unit == "%":
        return int(number / 100 * whole()) if number <= 100 else None
    return int(number * UNITS[unit or "B"]) if (unit or "B") in UNITS else None
