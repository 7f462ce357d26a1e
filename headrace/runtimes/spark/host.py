"""The host: one engine per shard, inside a stateful operator of Spark.

Spark starts a process of its own to ask for the state's columns before a query runs; it needs nothing of the
engine, so nothing of it is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from headrace.runtimes.spark.settling import settle

if TYPE_CHECKING:
    from headrace.runtimes.spark.running import HostSpec

# Columns as objects: Spark would be asked, over a socket and in each task, what a text of them means.
VERSION = StructType([StructField("version", LongType())])
CHUNK = StructType([StructField("parent", StringType()), StructField("body", BinaryType())])


@cache
def _spec(pickled: bytes) -> HostSpec:
    spec: HostSpec = cloudpickle.loads(pickled)
    return spec


class Host(StatefulProcessor):
    """Feeds each micro-batch to the engine of its shard, and keeps the engine's state in Spark's store."""

    def __init__(self, spec: HostSpec) -> None:
        self._pickled: bytes = cloudpickle.dumps(spec)  # type: ignore[no-untyped-call]
        self._chunks: Any = None

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._chunks = handle.getMapState("chunks", VERSION, CHUNK)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        from headrace.runtimes.spark.running import run

        out = run(_spec(self._pickled), int(key[0]), rows, self._chunks)
        settle()
        yield from out

    def close(self) -> None:
        return None
