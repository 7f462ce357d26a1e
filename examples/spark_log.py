"""Where Spark may speak without disturbing what a program shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def spark_speaks_to(log: Path) -> Iterator[None]:
    """What Java and Spark's workers write on standard error goes to a file."""
    kept = os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
