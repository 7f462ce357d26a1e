"""One driver at a time on a checkpoint: a lock file in it, held by the JVM that writes the checkpoint.

Spark notices a second driver only when both write the same entry of a log, and reports it as a stack trace;
by then both have read the sources and changed the state. This lock is taken before anything is read. The JVM
holds it, not Python: if Python is killed, the JVM may go on writing for a moment, and the lock is released
when the JVM has exited. docs/spark/index.md, "One driver", says which file systems are covered.
"""

from __future__ import annotations

import fcntl
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
from urllib.parse import unquote, urlparse
from uuid import uuid4

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace import tuning
from headrace.errors import SparkError
from headrace.runtimes.spark.versions import is_connect, jvm

NAME: Final = "_headrace.lock"
"""Spark does not read files whose names begin with `_`."""


LOOK: Final = 0.25

_CONTENDED: Final = (
    "CONCURRENT_STREAM_LOG_UPDATE",
    "ConcurrentModificationException",
    "Multiple streaming jobs detected",
    "another writer already committed this batch",
)
"""Parts of Spark's messages about a second driver on a checkpoint."""


@dataclass
class Held:
    """A lock of this driver, shared by all queries that it starts on the checkpoint."""

    file: Any
    users: int = 0


_HELD: Final[dict[str, Held]] = {}
_GUARD: Final = threading.Lock()


class Hold:
    """One use of a checkpoint; the lock is released with the last one."""

    def __init__(self, path: str) -> None:
        self._path: str | None = path

    def release(self) -> None:
        """Release it; calling this twice is harmless."""
        with _GUARD:
            path, self._path = self._path, None
            held = None if path is None else _HELD[path]
            if path is None or held is None:
                return
            held.users -= 1
            if not held.users:
                del _HELD[path]
                with suppress(Exception):  # the JVM has exited, which released the lock
                    held.file.close()

    def until_ended(self, query: StreamingQuery) -> threading.Thread:
        """Release it when the query ends; returns the thread that waits for that."""

        def wait() -> None:
            with suppress(Exception):  # the session has ended
                while query.isActive:
                    time.sleep(1)
            self.release()

        waiting = threading.Thread(target=wait, name="headrace checkpoint lock", daemon=True)
        waiting.start()
        return waiting


@contextmanager
def lock(checkpoint: str | os.PathLike[str], spark: SparkSession | None = None) -> Iterator[None]:
    """Lock a checkpoint while a query runs on it that you start with `writeStream`.

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
    """Lock a checkpoint for this driver, or raise HR-SP22; None if it is not on a local file system."""
    path = local_directory(spark, checkpoint)
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


def local_directory(spark: SparkSession, checkpoint: str) -> Path | None:
    """The directory, if it is on the driver's file system.

    With Spark Connect the driver is the server, which may be on another machine.
    """
    if is_connect(spark):
        return _shared_directory(spark, checkpoint)
    try:
        path = jvm(spark).org.apache.hadoop.fs.Path(checkpoint)
        system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        uri = system.makeQualified(path).toUri()
    except Exception:  # no JVM here, or no such file system: Spark reports that itself
        return None
    return Path(uri.getPath()) if uri.getScheme() == "file" else None


_SHARED: Final[dict[tuple[str, str], bool]] = {}
"""By session of Spark Connect and checkpoint: whether the server sees this machine's directory."""


def _shared_directory(spark: SparkSession, checkpoint: str) -> Path | None:
    """The directory, if the server of Spark Connect sees it too: it is asked to read a file there."""
    uri = urlparse(checkpoint)
    if uri.scheme not in ("", "file"):
        return None
    path = Path(unquote(uri.path) if uri.scheme else checkpoint).absolute()
    known = (str(getattr(spark, "session_id", "")), checkpoint)
    if known not in _SHARED:
        _SHARED[known] = _seen_by_server(spark, checkpoint, path)
    return path if _SHARED[known] else None


def _seen_by_server(spark: SparkSession, checkpoint: str, path: Path) -> bool:
    new = not path.exists()
    file = path / f"headrace-{uuid4().hex}.probe"
    try:
        path.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
        return [row.value for row in spark.read.text(f"{checkpoint}/{file.name}").collect()] == [file.name]
    except (OSError, PySparkException):
        return False
    finally:
        with suppress(OSError):
            file.unlink()
            if new:
                path.rmdir()


def _locked(spark: SparkSession, path: Path) -> Any:
    """The lock file, open and locked for as long as it is open."""
    lock, deadline = path / NAME, time.monotonic() + tuning.current.lock_seconds
    try:
        path.mkdir(parents=True, exist_ok=True)
        os.close(os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise SparkError(
            "HR-SP23",
            f"cannot lock the checkpoint: {error.strerror or error}",
            place=str(lock),
            hint="the driver must be able to write there, and the lock file must not be a link",
        ) from None
    take, who = (_by_python if is_connect(spark) else _by_jvm), json.dumps(_who(spark))
    while True:
        file = take(spark, lock, who)
        if file is not None:
            return file
        if time.monotonic() > deadline:
            raise _refusal(str(path), lock)
        time.sleep(LOOK)


def _by_jvm(spark: SparkSession, lock: Path, who: str) -> Any:
    """The lock file, locked by the JVM; None if another driver holds it."""
    file = jvm(spark).java.io.RandomAccessFile(str(lock), "rw")
    if file.getChannel().tryLock() is None:
        file.close()
        return None
    file.setLength(0)
    file.writeBytes(who)
    return file


def _by_python(spark: SparkSession, lock: Path, who: str) -> Any:
    """The lock file, locked by this process as Java locks files; None if another driver holds it."""
    file = lock.open("r+")
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    file.truncate(0)
    file.write(who)
    file.flush()
    return file


def _who(spark: SparkSession) -> dict[str, Any]:
    """A description of this driver, for the error message in another one."""
    connect = is_connect(spark)
    return {
        "application": "with Spark Connect" if connect else spark.sparkContext.applicationId,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _refusal(checkpoint: str, lock: Path | None = None) -> SparkError:
    """The error HR-SP22, which names the other driver if it is known."""
    return SparkError(
        "HR-SP22",
        f"another driver uses this checkpoint{'' if lock is None else _holder(lock)}",
        place=checkpoint,
        hint="stop it first, or use another checkpoint and other outputs for this query; "
        "only one driver at a time can use a checkpoint",
    )


def _holder(lock: Path) -> str:
    """Who holds the lock, from the text of the lock file; empty if it cannot be read."""
    try:
        who = json.loads(lock.read_text())
        where = f"process {who['process']} on {who['host']}"
        return f": application {who['application']}, {where}, since {who['since']}"
    except (OSError, ValueError, LookupError, TypeError):
        return ""
