"""The parent of Spark's Python workers, with the engine loaded before it forks.

`spark.python.daemon.module` is set to this module. Each worker that Spark starts is a fork of this process:
the engine, its kernels and Arrow are already in memory, which saves seconds of imports.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

import headrace.runtimes.spark.worker.host
import headrace.runtimes.spark.worker.partitioner
import headrace.runtimes.spark.worker.running  # noqa: F401
from headrace.kernels.compiling import compile_all
from headrace.memory.budget import keep_freed_memory

if __name__ == "__main__":
    compile_all()
    keep_freed_memory()
    gc.freeze()  # workers collect garbage after each task, and would scan all of this
    manager()
