"""A Python worker that stays: what it holds for good is not collected, what it frees is kept at hand.

Spark's workers collect garbage after each task. With the engine, Arrow and pandas in memory that is some
fifty milliseconds, for each task of each micro-batch. And glibc gives freed memory back to the system at
once, to ask for it again with the next batch: half of the time of a partial aggregate was page faults.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from functools import cache
from typing import Final

_TRIM_THRESHOLD: Final = (-1, 128 << 20)
_MMAP_THRESHOLD: Final = (-3, 32 << 20)
"""Parameters of glibc's `mallopt`: memory that may stay unused, and the size of what is mapped on its own."""


@cache
def settle() -> None:
    """Once a worker, when it has loaded all that it needs: what is alive by now stays."""
    keep_memory()
    gc.collect()
    gc.freeze()


def keep_memory() -> None:
    """Freed memory stays with the process, up to a limit; where the C library has no such choice, nothing."""
    with suppress(OSError, AttributeError):
        choose = ctypes.CDLL(None).mallopt
        for parameter, value in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            choose(parameter, value)
