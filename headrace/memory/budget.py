"""The memory budget: bytes, a size such as '64 MB', or a share of a whole such as '25 %'."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace import tuning
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
    """The memory of this machine, or the limit of the container if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return total


def size_text(size: int) -> str:
    """A readable size, rounded up to a tenth of its unit: "640 B", "1.5 MiB"."""
    unit, scale = next(each for each in _SHOWN if size >= each[1] or each[1] == 1)
    tenths = -(-size * 10 // scale)
    return f"{size} B" if scale == 1 else f"{tenths // 10}.{tenths % 10} {unit}"


_SHOWN = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))


def budget_bytes(written: int | str, whole: Callable[[], int] = machine_bytes) -> int:
    """A budget in bytes; a percentage is of `whole`."""
    size = _parsed(written, whole)
    if size is None or size <= 0:
        raise BudgetError(
            "HR-M002",
            f"{written!r} is not a memory size",
            place="budget",
            hint="write a number of bytes, '64 MB', '2 GiB', or a share such as '25 %'",
        )
    return size


def _parsed(written: int | str, whole: Callable[[], int]) -> int | None:
    """A budget in bytes, or None if it cannot be read."""
    if isinstance(written, int) and not isinstance(written, bool):
        return written
    found = _WRITTEN.fullmatch(written) if isinstance(written, str) else None
    if found is None:
        return None
    number, unit = float(found[1]), found[2].upper()
    if unit == "%":
        return int(number / 100 * whole()) if number <= 100 else None
    return int(number * UNITS[unit or "B"]) if (unit or "B") in UNITS else None


def too_small(held: int, budget: int, least: int, windows: list[str]) -> BudgetError:
    """The error for a budget that even the smallest windows do not fit into."""
    least = max(held, least)
    return BudgetError(
        "HR-M001",
        f"the state takes {size_text(held)}, the budget is {size_text(budget)}; at the current "
        f"rates even the smallest windows need {size_text(least)}",
        place="; ".join(windows) or "no window could be made smaller",
        hint=f"raise the budget to {size_text(least)}, lower a MIN, or spill to disk (policy 'spill')",
    )


# Freed memory: kept for the next batch, or returned to the system and faulted in again.
#
# A batch makes and frees some dozen arrays of about a megabyte. glibc gives such memory back to the system
# each time, and the next batch pays a fault for each page of 4 KiB, which in a virtual machine costs more
# than the work itself: a join of two streams took twice as long. A process that only runs queries lets glibc
# keep some; an application that embeds the engine may choose.


_LARGEST = 32 << 20
"""The largest array that may come from the heap; glibc allows no larger value."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory, up to `tuning.heap_kept_bytes`; False if it cannot."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    kept = tuning.current.heap_kept_bytes
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, kept))
