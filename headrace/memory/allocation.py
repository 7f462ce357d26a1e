"""What becomes of memory that is freed: kept for the next batch, or given back and faulted in again.

A batch makes and frees some dozen arrays of about a megabyte. glibc gives such memory back to the system each
time and the next batch pays a fault for each page of 4 KiB, which in a virtual machine is more than the work
itself: a join of two streams took twice as long. A process that is there to run queries lets glibc keep some;
one that embeds the engine beside other things may choose.
"""

from __future__ import annotations

import ctypes

KEPT = 256 << 20
"""Bytes at the top of the heap that stay with the process when they are free."""
_LARGEST = 32 << 20
"""The largest array that may come from the heap; glibc allows no more."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def keep_freed_memory(kept: int = KEPT) -> bool:
    """Let the C library of this process keep up to `kept` bytes that are free; false where it cannot."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, kept))
