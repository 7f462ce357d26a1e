"""What a share of an executor is to one shard: `memory="25 %"`.

An executor runs several tasks side by side, each of one shard at a time, and a share is what they may hold
together. Where Spark has a limit for Python (`spark.executor.pyspark.memory`) it is a share of that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from headrace.memory.budget import budget_bytes

Setting = Callable[[str], str | None]
"""What Spark's configuration says of a name."""

_PYTHON: Final = "spark.executor.pyspark.memory"
_EXECUTOR: Final = "spark.executor.memory"
_DRIVER: Final = "spark.driver.memory"
_DEFAULT: Final = "1g"
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*).*\])?")


def task_bytes(setting: Setting) -> int:
    """The memory of an executor, divided among the tasks that it runs at once."""
    local = _LOCAL.fullmatch(setting("spark.master") or "")
    executor = _DRIVER if local else _EXECUTOR
    written = setting(_PYTHON) or setting(executor) or _DEFAULT
    return spark_bytes(written) // _tasks(setting, local)


def _tasks(setting: Setting, local: re.Match[str] | None) -> int:
    """How many tasks run side by side in one executor; a local master is one itself."""
    if local:
        cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
    else:
        cores = int(setting("spark.executor.cores") or 1)
    return max(1, cores // int(setting("spark.task.cpus") or 1))


def spark_bytes(written: str) -> int:
    """A size as Spark writes it: '2g', '512m', '1024k'; a number alone counts mebibytes."""
    size = written.strip().upper().removesuffix("B")
    if size.isdecimal():
        unit = "B" if written.strip().upper().endswith("B") else "MiB"
        return budget_bytes(f"{size} {unit}")
    return budget_bytes(f"{size[:-1]} {size[-1]}iB")
