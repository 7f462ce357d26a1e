"""The parent of Spark's Python workers, with the engine loaded before it forks.

`spark.python.daemon.module` names it. A worker that Spark starts is a fork of this process: it finds the
engine, its kernels and Arrow in memory and works at once, where it would otherwise spend seconds on imports.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import headrace.runtimes.spark.fan
import headrace.runtimes.spark.host
import headrace.runtimes.spark.running  # noqa: F401
from headrace.kernels.compiling import compile_all
from headrace.memory.allocation import keep_freed_memory

if __name__ == "__main__":
    compile_all()
    keep_freed_memory()
    gc.freeze()  # workers collect garbage after each task, and would look through all of this
    manager()
