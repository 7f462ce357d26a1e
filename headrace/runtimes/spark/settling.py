"""A Python worker that stays: what it holds for good is not collected, what it frees is kept at hand.

Spark's workers collect garbage after each task. With the engine, Arrow and pandas in memory that is some
fifty milliseconds, for each task of each micro-batch. Of the time of a partial aggregate, half was page
faults for memory that had just been given back (`headrace.memory.allocation`).
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Once a worker, when it has loaded all that it needs: what is alive by now stays."""
    from headrace.memory.allocation import keep_freed_memory

    keep_freed_memory()
    gc.collect()
    gc.freeze()
