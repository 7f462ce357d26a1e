"""What Headrace wants of a Spark session: one row per setting, with the reason.

The figures are from 2 cores and `local[2]`; they say which way a setting pulls, not what to expect elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CORES = "cores"
"""Stands for the number of cores that the session has."""

_STREAMING = "spark.sql.streaming."
_STREAM_CLASSES = "org.apache.spark.sql.execution.streaming."


class Binding(Enum):
    """When a setting is read."""

    START = "once, when Spark starts"
    RUNTIME = "at any time"


class Claim(Enum):
    """How strongly Headrace wants a setting."""

    REQUIRED = "set even over the user's own value: nothing works without it"
    ADVISED = "set where the user has set nothing"
    FRESH = "set only in a session that Headrace makes: it could change the answers of other queries"


@dataclass(frozen=True)
class Setting:
    """A setting of Spark: its name, the value wanted, why, when it is read, how strongly it is wanted.

    `local`: only where workers are on this machine, and so surely have what is installed here.
    """

    name: str
    value: str
    why: str
    binding: Binding = Binding.RUNTIME
    claim: Claim = Claim.ADVISED
    local: bool = False


SETTINGS = (
    Setting(
        _STREAMING + "stateStore.providerClass",
        _STREAM_CLASSES + "state.RocksDBStateStoreProvider",
        "transformWithState keeps its state in RocksDB and nowhere else",
        claim=Claim.REQUIRED,
    ),
    Setting(
        _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a commit writes what changed, not the whole state",
    ),
    Setting(
        _STREAMING + "checkpointFileManagerClass",
        _STREAM_CLASSES + "checkpointing.FileSystemBasedCheckpointFileManager",
        "without Hadoop's native library the default one forks child processes for each checkpoint file",
    ),
    Setting(
        "spark.sql.shuffle.partitions",
        CORES,
        "each partition costs time in each micro-batch (200: seconds); a checkpoint freezes the number",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "8192",
        "what Java writes stays in the cache until it is sent: a tenth less CPU than with 32768 rows or more",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2147483647",
        "with any limit the size of the batch is computed for each row: 0.89 s per million rows, not 0.65",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        "re-planning costs time in each micro-batch and has nothing to win there",
    ),
    Setting(
        _STREAMING + "metricsEnabled",
        "false",
        "Dropwizard's metrics are paid for in each micro-batch; headrace.spark.listener() is cheaper",
    ),
    Setting(
        "spark.sql.session.timeZone",
        "UTC",
        "queries compute in UTC, so hour(ts) means the same in a query and in Spark's own SQL",
        claim=Claim.FRESH,
    ),
    Setting(
        "spark.sql.parquet.outputTimestampType",
        "TIMESTAMP_MICROS",
        "the default, INT96, does not say that it is an instant, and others read a type without a zone",
        claim=Claim.FRESH,
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "a micro-batch through Python takes a quarter less time than over TCP",
        binding=Binding.START,
    ),
    Setting(
        "spark.executorEnv.ARROW_ENABLE_UNSAFE_MEMORY_ACCESS",
        "true",
        "Arrow in Java checks bounds at each value: a fifth of the CPU of rows on the way to Python",
        binding=Binding.START,
    ),
    Setting(
        "spark.python.worker.reuse",
        "true",
        "a new Python worker in each micro-batch makes it eight times as long",
        binding=Binding.START,
    ),
    Setting(
        "spark.python.daemon.module",
        "headrace.runtimes.spark.daemon",
        "Python workers are forked with the engine in memory, and do not spend seconds on importing it",
        binding=Binding.START,
        local=True,
    ),
)
