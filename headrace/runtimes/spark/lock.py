"""One driver at a time on a checkpoint: a lock file in it, held by the JVM that writes the checkpoint.

Spark looks for a second driver only when both write the same entry of a log, and says so in a stack trace; by
then both have read the sources and changed the state. The lock is asked for before anything is read. The JVM
holds it and not Python: if Python is killed, the JVM may go on writing for a moment, and the lock is free
when it has gone. What is covered is in docs/spark/index.md, "One driver".
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import SparkError

NAME: Final = "_headrace.lock"
"""Spark takes names that begin with `_` for no data of its own."""

PATIENCE: Final = 10.0
"""Seconds for the JVM of a driver that was killed to end."""

LOOK: Final = 0.25

_CONTENDED: Final = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "ConcurrentModificationException",
    "Multiple streaming jobs detected",
    "another writer already committed this batch",
)
"""What Spark says when it finds a second driver on a checkpoint."""


@dataclass
class Held:
    """A lock of this driver, for all queries that it starts on the checkpoint: Spark sees to those itself."""

    file: Any
    users: int = 0


_HELD: Final[dict[str, Held]] = {}
_GUARD: Final = threading.Lock()


class Hold:
    """A use of a checkpoint; the lock is free when the last one is released."""

    def __init__(self, path: str) -> None:
        self._path: str | None = path

    def release(self) -> None:
        """Give it back; a second time changes nothing."""
        with _GUARD:
            path, self._path = self._path, None
            held = None if path is None else _HELD[path]
            if path is None or held is None:
                return
            held.users -= 1
            if not held.users:
                del _HELD[path]
                with suppress(Exception):  # the JVM has gone, and the lock with it
                    held.file.close()

    def until_ended(self, query: StreamingQuery) -> threading.Thread:
        """Release it when the query has ended, however it did; the thread that waits for it."""

        def wait() -> None:
            with suppress(Exception):  # the session has gone
                while query.isActive:
                    time.sleep(1)
            self.release()

        waiting = threading.Thread(target=wait, name="headrace checkpoint lock", daemon=True)
        waiting.start()
        return waiting


@contextmanager
def lock(checkpoint: str | os.PathLike[str], spark: SparkSession | None = None) -> Iterator[None]:
    """Hold a checkpoint while a query runs that was started with `writeStream`.

        with headrace.spark.lock("/data/checkpoint"):
            out.writeStream.option("checkpointLocation", "/data/checkpoint").start(…).awaitTermination()

    If another driver holds it, or Spark finds one later, the error is HR-SP22.
    """
    session = spark or SparkSession.active()
    with ExitStack() as stack:
        held = hold(session, os.fspath(checkpoint))
        if held is not None:
            stack.callback(held.release)
        try:
            yield
        except PySparkException as error:
            if not is_contended(error):
                raise
            raise _refusal(os.fspath(checkpoint)) from error


def hold(spark: SparkSession, checkpoint: str) -> Hold | None:
    """Hold a checkpoint for this driver, or refuse with HR-SP22; None where there is nothing to hold."""
    path = _local(spark, checkpoint)
    if path is None:
        return None
    with _GUARD:
        held = _HELD.get(str(path))
        if held is None:
            held = _HELD[str(path)] = Held(_locked(spark, path))
        held.users += 1
    return Hold(str(path))


def is_contended(error: Exception) -> bool:
    """Whether Spark stopped a query because another driver writes its checkpoint."""
    return any(words in str(error) for words in _CONTENDED)


def _local(spark: SparkSession, checkpoint: str) -> Path | None:
    """The directory, if it is one of the driver's file system. With Spark Connect the driver is elsewhere."""
    try:
        jvm, conf = spark.sparkContext._jvm, spark.sparkContext._jsc.hadoopConfiguration()
        assert jvm is not None
        path = jvm.org.apache.hadoop.fs.Path(checkpoint)
        system = path.getFileSystem(conf)
        uri = system.makeQualified(path).toUri()
    except Exception:  # no JVM at hand, or no such file system: Spark will say so itself
        return None
    return Path(uri.getPath()) if uri.getScheme() == "file" else None


def _locked(spark: SparkSession, path: Path) -> Any:
    """The lock file, open and locked by the JVM for as long as it is open."""
    lock, deadline = path / NAME, time.monotonic() + PATIENCE
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise SparkError(
            "HR-SP23",
            f"the checkpoint cannot be locked: {error.strerror or error}",
            place=str(lock),
            hint="the driver must be able to write there; the lock file is no link",
        ) from None
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    while True:
        file = jvm.java.io.RandomAccessFile(str(lock), "rw")
        if file.getChannel().tryLock() is not None:
            file.setLength(0)
            file.writeBytes(json.dumps(_who(spark)))
            return file
        file.close()
        if time.monotonic() > deadline:
            raise _refusal(str(path), lock)
        time.sleep(LOOK)


def _who(spark: SparkSession) -> dict[str, Any]:
    """What another driver is told of this one."""
    return {
        "application": spark.sparkContext.applicationId,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _refusal(checkpoint: str, lock: Path | None = None) -> SparkError:
    return SparkError(
        "HR-SP22",
        f"another driver uses this checkpoint{'' if lock is None else _holder(lock)}",
        place=checkpoint,
        hint="stop it first, or give this query a checkpoint and outputs of its own; "
        "one checkpoint belongs to one driver at a time",
    )


def _holder(lock: Path) -> str:
    try:
        who = json.loads(lock.read_text())
        where = f"process {who['process']} on {who['host']}"
        return f": application {who['application']}, {where}, since {who['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
