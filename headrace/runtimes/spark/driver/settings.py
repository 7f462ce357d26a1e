"""The Spark settings that Headrace needs or recommends, with the reason for each.

The figures are from 2 cores and `local[2]`. They show the direction of the effect, not what to expect
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CORES = "cores"
"""Placeholder for the number of cores of the session."""

CHECKPOINT_FILES = "checkpoint files"
"""Placeholder for a class whose place depends on the version of Spark."""

STATE_FORMAT = "state format"
"""Placeholder for the format of state, which depends on the version of Spark."""

_STREAMING = "spark.sql.streaming."
_STREAM_CLASSES = "org.apache.spark.sql.execution.streaming."


class Binding(Enum):
    """When a setting is read."""

    START = "once, when Spark starts"
    RUNTIME = "at any time"


class Claim(Enum):
    """How strongly Headrace wants a setting."""

    REQUIRED = "overrides the user's own value: nothing works without it"
    ADVISED = "set unless the user has set it"
    FRESH = "set only in a session that Headrace creates: it could change the results of other queries"


@dataclass(frozen=True)
class Setting:
    """A Spark setting: its name, the wanted value, the reason, when Spark reads it, how much it is wanted.

    `local`: only if workers run on this machine, where they have the same packages installed.
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
        "transformWithState works only with RocksDB",
        claim=Claim.REQUIRED,
    ),
    Setting(
        _STREAMING + "stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "a commit writes the changes, not the whole state",
    ),
    Setting(
        _STREAMING + "stateStore.checkpointFormatVersion",
        STATE_FORMAT,
        "each attempt writes state files of its own, so a micro-batch that runs again after a crash never "
        "continues with files of the attempt that failed",
    ),
    Setting(
        "spark.hadoop.fs.file.impl",
        "org.apache.hadoop.fs.LocalFileSystem",
        "the class that Hive's jar puts in its place does not replace files: a micro-batch that runs again "
        "would leave the state of the attempt that failed",
        binding=Binding.START,
    ),
    Setting(
        _STREAMING + "checkpointFileManagerClass",
        CHECKPOINT_FILES,
        "without Hadoop's native library the default forks child processes for each checkpoint file",
    ),
    Setting(
        "spark.sql.shuffle.partitions",
        CORES,
        "each partition costs time in each micro-batch (200: seconds); a checkpoint freezes the number",
    ),
    Setting(
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "8192",
        "smaller batches stay in the CPU cache until they are sent: a tenth less CPU than with 32768 rows",
    ),
    Setting(
        "spark.sql.execution.arrow.maxBytesPerBatch",
        "2147483647",
        "with a limit Spark computes the batch size for each row: 0.89 s per million rows instead of 0.65",
    ),
    Setting(
        "spark.sql.adaptive.enabled",
        "false",
        "re-planning costs time in each micro-batch and gains nothing there",
    ),
    Setting(
        _STREAMING + "metricsEnabled",
        "false",
        "Dropwizard metrics cost time in each micro-batch; headrace.spark.listener() is cheaper",
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
        "the default, INT96, does not mark the value as an instant, and other readers lose the zone",
        claim=Claim.FRESH,
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "a micro-batch takes a quarter less time than over TCP",
        binding=Binding.START,
    ),
    Setting(
        "spark.executorEnv.ARROW_ENABLE_UNSAFE_MEMORY_ACCESS",
        "true",
        "Arrow in Java checks bounds for each value, a fifth of the CPU for moving rows to Python",
        binding=Binding.START,
    ),
    Setting(
        "spark.python.worker.reuse",
        "true",
        "with a new Python worker each micro-batch takes eight times as long",
        binding=Binding.START,
    ),
    Setting(
        "spark.python.daemon.module",
        "headrace.runtimes.spark.worker.daemon",
        "Python workers are forked with the engine in memory, which saves seconds of imports",
        binding=Binding.START,
        local=True,
    ),
)
