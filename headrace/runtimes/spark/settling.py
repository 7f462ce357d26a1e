"""What a Python worker holds for good is kept out of its collections of garbage.

Spark's workers collect after each task. With the engine, Arrow and pandas in memory that is some fifty
milliseconds, for each task of each micro-batch.
"""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Once a worker, when it has loaded all that it needs: what is alive by now stays."""
    gc.collect()
    gc.freeze()
