"""Moves the state of a job to another number of Spark's partitions, as a machine of another size has.

State is in shards, and Spark assigns shards to partitions by their keys. So the number of partitions, which
is the number of tasks, may change while the shards stay as they are: their number is the most tasks that can
have something to do. Spark writes the same state under other numbers, as a micro-batch without input.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import SparkError
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.record import write as write_record
from headrace.runtimes.spark.versions import first_with, installed, is_connect, server

_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_DONE: Final = "SHUFFLE_PARTITIONS_ALREADY_MATCH"
_UNFINISHED: Final = ("LAST_BATCH_FAILED", "NO_COMMITTED_BATCH")
_OTHER_FORMAT: Final = "CHECKPOINT_FORMAT_VERSION_MISMATCH"


def partitions_for(record: Record, wanted: int, asked: int | None = None) -> int:
    """How many partitions the state should have in a session that has `wanted`; `asked`: for so many shards.

    The first start has divided the state into shards. Fewer shards now mean fewer tasks; more of them could
    not have any of that state.
    """
    return max(1, min(wanted, record.most_shards if asked is None else min(asked, record.most_shards)))


def fixed_shards(record: Record | None, asked: int | None) -> str:
    """What a start says if it asks for more shards than the state has; else nothing."""
    if record is None or asked is None or asked <= record.shards:
        return ""
    return (
        f"the state stays in {record.shards} shards, as the first start divided it, so at most as many tasks "
        f"work on it; for {asked}, start with a new checkpoint"
    )


def can_move(spark: SparkSession) -> bool:
    """Whether this version of Spark can move state."""
    return not is_connect(spark) and installed().moves_state and server(spark).moves_state


def move(
    spark: SparkSession, checkpoint: str, record: Record, wanted: int, asked: int | None = None
) -> tuple[int, str]:
    """Move the state to as many partitions as suit a session with `wanted` of them, for `asked` shards.

    Returns the number that it has now, and a message, or nothing if it was the right one. A crash leaves the
    old number, the new one, or a move that the next start completes.
    """
    if record.moving:
        _move(spark, checkpoint, record, record.moving)
        record = replace(record, partitions=record.moving, moving=0)
        write_record(spark, checkpoint, record)
    before, to = record.partitions, partitions_for(record, wanted, asked)
    if to == before:
        return before, ""
    if not can_move(spark):
        return (
            before,
            f"the state stays in {before} partitions: Spark {first_with('moves_state')} can move it",
        )
    write_record(spark, checkpoint, replace(record, moving=to))
    if not _move(spark, checkpoint, record, to):
        write_record(spark, checkpoint, record)
        return before, f"the state stays in {before} partitions: the last micro-batch has not ended"
    write_record(spark, checkpoint, replace(record, partitions=to))
    return to, f"the state was moved from {before} partitions to {to}"


def _move(spark: SparkSession, checkpoint: str, record: Record, to: int) -> bool:
    """Let Spark move the state; false if a micro-batch must run to its end first."""
    for version in ("2", "1"):  # that of the checkpoint; Spark does not look it up here
        try:
            with _format(spark, version):
                spark._streamingCheckpointManager.repartition(checkpoint, to)
        except PySparkException as error:
            said = str(error)
            if _OTHER_FORMAT in said and version != "1":
                continue
            if _DONE in said:
                return True
            if any(each in said for each in _UNFINISHED):
                return False
            raise SparkError(
                "HR-SP36",
                f"the state cannot be moved from {record.partitions} partitions to {to}: "
                f"{said.splitlines()[0]}",
                place=checkpoint,
                hint=f"set spark.sql.shuffle.partitions to {record.partitions} to go on as before",
            ) from error
        return True
    return False  # not reached: the last version returns or raises


@contextmanager
def _format(spark: SparkSession, version: str) -> Iterator[None]:
    """While this lasts, the session has this format of state."""
    before = spark.conf.get(_FORMAT, None)
    spark.conf.set(_FORMAT, version)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_FORMAT)
        else:
            spark.conf.set(_FORMAT, before)
