"""The stateful operator of Spark that runs one engine per shard, of one host or of several.

Before a query runs, Spark starts a separate process that asks for the columns of the state. That process does
not need the engine, so nothing of the engine is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from headrace.runtimes.spark.worker.engine_cache import freeze_worker_heap

if TYPE_CHECKING:
    from headrace.runtimes.spark.worker.running import HostSpec

# As objects: each task would ask Spark over a socket to parse a DDL text.
VERSION = StructType([StructField("version", LongType())])
CHUNK = StructType([StructField("parent", StringType()), StructField("body", BinaryType())])


@cache
def _hosts(pickled: bytes) -> dict[int, HostSpec]:
    """By key of a shard, the host that it belongs to."""
    specs: tuple[HostSpec, ...] = cloudpickle.loads(pickled)
    return {key: spec for spec in specs for key in spec.shard_keys}


def by_value(module: str) -> None:
    """Send the functions of a module as code: workers cannot import the files next to a pipeline."""
    cloudpickle.register_pickle_by_value(sys.modules[module])  # type: ignore[no-untyped-call]


class Host(StatefulProcessor):
    """Feeds each micro-batch to the engine of its shard, and keeps its state in Spark's state store."""

    def __init__(self, *specs: HostSpec) -> None:
        self._pickled: bytes = cloudpickle.dumps(specs)  # type: ignore[no-untyped-call]
        self._chunks: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._chunks = handle.getMapState("chunks", VERSION, CHUNK)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        from headrace.runtimes.spark.worker.running import run

        shard = int(key[0])
        out = run(_hosts(self._pickled)[shard], shard, rows, self._chunks)
        freeze_worker_heap()
        yield from out

    def close(self) -> None:
        return None
