"""`headrace.spark.session`: a Spark session with the settings that Headrace needs, and a report."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

from headrace.kernels.compiling import compile_all
from headrace.runtimes.spark.driver import java
from headrace.runtimes.spark.driver.java import cache_folder
from headrace.runtimes.spark.driver.settings import (
    CHECKPOINT_FILES,
    CORES,
    SETTINGS,
    STATE_FORMAT,
    Binding,
    Claim,
    Setting,
)
from headrace.runtimes.spark.versions import is_connect, server

_LOG = logging.getLogger("headrace.spark")

SET, KEPT, TOO_LATE = "set", "kept", "too late"


@dataclass(frozen=True)
class Change:
    """One setting: `set` to `new`, `kept` at the user's own value `old`, or `too late` to set."""

    name: str
    old: str | None
    new: str
    why: str
    outcome: str

    def __str__(self) -> str:
        return f"  {_WORDS[self.outcome].format(self=self)}\n    because {self.why}"


_WORDS = {
    SET: "{self.name}: {self.old} -> {self.new}",
    KEPT: "{self.name}: keeps your value {self.old}; Headrace recommends {self.new}",
    TOO_LATE: "{self.name}: {self.old}, cannot change after Spark has started; set it to {self.new} before",
}


@dataclass(frozen=True)
class Report:
    """What `session` did about every setting that did not have the wanted value."""

    changes: tuple[Change, ...] = ()

    def of(self, outcome: str) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.outcome == outcome)

    @property
    def set(self) -> tuple[Change, ...]:
        return self.of(SET)

    @property
    def kept(self) -> tuple[Change, ...]:
        return self.of(KEPT)

    @property
    def too_late(self) -> tuple[Change, ...]:
        return self.of(TOO_LATE)

    def __str__(self) -> str:
        return "\n".join(map(str, self.changes)) or "  nothing to change"


_REPORTS: WeakKeyDictionary[SparkSession, Report] = WeakKeyDictionary()


def report(spark: SparkSession) -> Report:
    """What the last call of `session` changed in this Spark session, and what it could not change."""
    return _REPORTS.get(spark, Report())


def session(
    app_name: str | None = None,
    master: str | None = None,
    *,
    spark: SparkSession | None = None,
    remote: str | None = None,
    **settings: str | int | bool,
) -> SparkSession:
    """A Spark session with the settings that Headrace needs: a new one, or the existing one, adjusted.

    `settings` are Spark settings by their full names (`**{"spark.executor.memory": "4g"}`); they override the
    table in `settings.py`. Settings that you or `spark-defaults.conf` made are kept, except for those that
    Headrace requires. Changes to an existing session are logged as a warning; `report(spark)` returns all of
    them. On a cluster, shuffle partitions are set to the number of cores that is known at this moment.

    `remote` is the address of a Spark Connect server, such as `sc://host:15002`; `local[2]` starts one on
    this machine. Without it, PySpark's own `SPARK_REMOTE` counts.
    """
    wanted = {name: _text(value) for name, value in settings.items()}
    if app_name is not None:
        wanted["spark.app.name"] = app_name
    if master is not None:
        wanted["spark.master"] = master
    address = remote or os.environ.get("SPARK_REMOTE")
    started_here = SparkContext._active_spark_context is not None and remote is None
    there = spark is not None or started_here or is_remote()
    if not there and address is not None:
        there = not _is_local(address)
        spark, done = _connected(address, wanted)
    elif there:
        spark = spark or SparkSession.builder.getOrCreate()
        done = Report(tuple(_completed(spark, wanted)))
    else:
        compile_all()  # here a person sees its message; local workers then load the compiled kernels
        spark, done = _made(wanted)
    _REPORTS[spark] = done
    _say(done, there)
    return spark


@contextmanager
def keeping_interrupts() -> Iterator[None]:
    """Keep the handler of Ctrl-C: a new SparkContext installs one of its own.

    That one calls Java, which fails with "reentrant call" if the signal came in the middle of another call.
    """
    if threading.current_thread() is not threading.main_thread():  # Spark leaves the handler alone too
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(done: Report, there: bool) -> None:
    """Log the report: as a warning if an existing session was changed or cannot be changed."""
    if there and (done.set or done.too_late):
        _LOG.warning("Headrace checked the settings of this Spark session:\n%s", done)
    else:
        _LOG.info("Settings of this Spark session:\n%s", done)


# --- a new session ----------------------------------------------------------------------------------------


def _made(wanted: Mapping[str, str]) -> tuple[SparkSession, Report]:
    """Start a new session with all settings that the user has not set."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has started Java already
        java.ensure()
    before = _configured(wanted)
    python = _python_for_workers(wanted, before.get("spark.master", "local") or "local")
    conf = SparkConf().setAll(list(wanted.items()))
    changes = [*python, *_without_bounds_checks()]
    for row in SETTINGS:
        if row.binding is Binding.START and _suits(row, _of(before)) and not before.contains(row.name):
            conf.set(row.name, row.value)
            changes.append(Change(row.name, None, row.value, row.why, SET))
    conf.setIfMissing("spark.app.name", "headrace")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    changes += _at_runtime(spark, wanted, fresh=True)
    changes += _without_checksums(spark)
    return spark, Report(tuple(changes))


def _suits(row: Setting, found: Found) -> bool:
    """True unless the setting is for local mode only and the master is a cluster."""
    return not row.local or (found("spark.master") or "local").startswith("local")


def _configured(wanted: Mapping[str, str]) -> SparkConf:
    """The settings of files and spark-submit, overridden by `wanted`; starts Java if it is not running yet.

    Java needs `wanted` because some settings, such as the driver's memory, are arguments of Java itself.
    """
    asked = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    SparkContext._ensure_initialized(conf=asked)
    return SparkConf().setAll(list(wanted.items()))


def _python_for_workers(wanted: Mapping[str, str], master: str) -> Iterator[Change]:
    """Spark would start any `python3`; a worker of another version fails at its first row."""
    if "spark.pyspark.python" in wanted:
        return
    found = {
        "PYSPARK_PYTHON": quick_python() if _is_local(master) else sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    for name, python in found.items():
        if name not in os.environ:
            os.environ[name] = python
            yield Change(name, None, python, "workers must run the Python of the driver", SET)


def _without_bounds_checks() -> Iterator[Change]:
    """Turn off Arrow's bounds checks in the driver's Java, before it loads Arrow."""
    jvm, name = SparkContext._jvm, "arrow.enable_unsafe_memory_access"
    assert jvm is not None
    if jvm.System.getProperty(name) is None:
        jvm.System.setProperty(name, "true")
        yield Change(name, None, "true", "moving values to Python costs a fifth less CPU", SET)


def _connected(address: str, wanted: Mapping[str, str]) -> tuple[SparkSession, Report]:
    """A session of Spark Connect. A server that starts here gets the settings that are read at startup."""
    builder, changes, local = SparkSession.builder.remote(address), list[Change](), _is_local(address)
    if local:
        compile_all()
        java.ensure()
        changes += _python_for_workers(wanted, address)
        for row in SETTINGS:
            if row.binding is Binding.START and row.name not in wanted:
                builder = builder.config(row.name, row.value)
                changes.append(Change(row.name, None, row.value, row.why, SET))
        for name, value in wanted.items():
            builder = builder.config(name, value)
    with warnings.catch_warnings():
        # PySpark gives these settings to the server as it starts, and then tries to set them once more.
        warnings.filterwarnings("ignore", "Failed to set", UserWarning)
        spark = builder.getOrCreate()
    if local:
        changes += _at_runtime(spark, wanted, fresh=True)
    else:
        changes += _completed(spark, wanted)
    return spark, Report(tuple(changes))


def _is_local(address: str) -> bool:
    """Whether a master, or the address of a Spark Connect server, means this process."""
    return re.match(r"local(\[|$)", address) is not None


# --- an existing session ----------------------------------------------------------------------------------


def _completed(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[Change]:
    """Apply the settings that an existing session still accepts, and report the others."""
    connect = is_connect(spark)
    if not connect:
        yield from _other_python(spark.sparkContext)
    yield from _at_runtime(spark, wanted, fresh=False)
    yield from _at_start(spark, wanted)
    if not connect:
        yield from _without_checksums(spark)


def _other_python(context: SparkContext) -> Iterator[Change]:
    """Workers with the Python of the driver, where nobody has chosen one."""
    if context.pythonExec == "python3" and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
        why = "workers must run the Python of the driver"
        yield Change("PYSPARK_PYTHON", "python3", sys.executable, why, SET)


Found = Callable[[str], str | None]
"""Looks up a setting; None if it is not set."""


def _found_at_start(spark: SparkSession) -> Found:
    """The settings that Spark started with, as far as this session shows them."""
    if is_connect(spark):
        return lambda name: spark.conf.get(name, None)
    return _of(spark.sparkContext.getConf())


def _of(conf: SparkConf) -> Found:
    """Looks up settings in a configuration."""
    return lambda name: conf.get(name, None)


def _at_start(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[Change]:
    """Settings that Spark reads only when it starts."""
    found = _found_at_start(spark)
    rows = [row for row in SETTINGS if row.binding is Binding.START and _suits(row, found)]
    whys = {row.name: (row.value, row.why) for row in rows}
    asked = {
        name: (value, "you asked for it") for name, value in wanted.items() if not _settable(spark, name)
    }
    for name, (value, why) in {**whys, **asked}.items():
        chosen = found(name)
        old = _DEFAULTS.get(name) if chosen is None else chosen
        if old != value:
            outcome = KEPT if chosen is not None and name not in wanted else TOO_LATE
            yield Change(name, old, value, why, outcome)


_DEFAULTS = {
    "spark.python.worker.reuse": "true",
    "spark.python.unix.domain.socket.enabled": "false",
    "spark.python.daemon.module": "pyspark.daemon",
}


def _settable(spark: SparkSession, name: str) -> bool:
    """Whether a setting can change at run time. Two of ours can although Spark does not list them."""
    ours = {row.name for row in SETTINGS if row.binding is Binding.RUNTIME}
    return name in ours or bool(spark.conf.isModifiable(name))


def _at_runtime(spark: SparkSession, wanted: Mapping[str, str], *, fresh: bool) -> Iterator[Change]:
    """Apply the settings that can change while the session runs."""
    explicit = spark.conf.getAll
    if not fresh:
        yield from _asked_for(spark, wanted, explicit)
    for row in SETTINGS:
        if row.binding is not Binding.RUNTIME or row.name in wanted:
            continue
        value = _BY_SESSION[row.value](spark) if row.value in _BY_SESSION else row.value
        old = _now(spark, row.name)
        if not _same(row.name, old, value):
            outcome = KEPT if _stays(row, row.name in explicit, fresh) else SET
            if outcome == SET:
                spark.conf.set(row.name, value)
            yield Change(row.name, old, value, row.why, outcome)


def _cores(spark: SparkSession) -> str:
    """The number of cores; with Spark Connect only a DataFrame shows it, by its partitions."""
    if not is_connect(spark):
        return str(spark.sparkContext.defaultParallelism)
    rows = spark.range(10_000).select(F.spark_partition_id().alias("partition")).distinct()
    return str(rows.count())


_BY_SESSION: dict[str, Callable[[SparkSession], str]] = {
    CORES: _cores,
    CHECKPOINT_FILES: lambda spark: server(spark).checkpoint_files,
    STATE_FORMAT: lambda spark: "2" if server(spark).state_ids else "1",
}
"""By placeholder in the table of settings, its value in a session."""


def _asked_for(
    spark: SparkSession, wanted: Mapping[str, str], explicit: Mapping[str, str]
) -> Iterator[Change]:
    """Apply the settings that the caller passed, where the session accepts them."""
    for name, value in wanted.items():
        if _settable(spark, name) and explicit.get(name) != value:
            old = _now(spark, name)
            spark.conf.set(name, value)
            yield Change(name, old, value, "you asked for it", SET)


def _now(spark: SparkSession, name: str) -> str | None:
    """The current value, or Spark's default; None if Spark has no default."""
    try:
        return spark.conf.get(name)
    except PySparkException:
        return None


def _same(name: str, old: str | None, value: str) -> bool:
    """True if both values mean the same; all names of UTC are equal."""
    utc = {"UTC", "Etc/UTC", "Z", "GMT"}
    return old == value or (name.endswith("timeZone") and old in utc and value in utc)


def _stays(row: Setting, explicit: bool, fresh: bool) -> bool:
    """True if the present value is kept: a required setting never, the others if the user set them."""
    return {
        Claim.REQUIRED: False,
        Claim.ADVISED: explicit,
        Claim.FRESH: explicit or not fresh,
    }[row.claim]


def _without_checksums(spark: SparkSession) -> Iterator[Change]:
    """Hadoop writes a hidden checksum file next to each local file, and forks processes for it too."""
    jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(jsc.hadoopConfiguration())
    name, why = (
        "LocalFileSystem.setWriteChecksum",
        "a .crc file for each local checkpoint file doubles the number of forks",
    )
    already = spark.sparkContext.getConf().get("spark.headrace.localChecksums", "true") == "false"
    if not already:
        local.setWriteChecksum(False)
        jsc.sc().conf().set("spark.headrace.localChecksums", "false")
        yield Change(name, "true", "false", why, SET)


# The Python for Spark's workers: this one, with PySpark loaded from where it is installed.
#
# Spark puts a zip file of PySpark first on the path of its workers. Python does not cache compiled modules
# of a zip file, so each start compiles them again: 1.5 s of CPU time instead of 0.3 s. On a busy machine
# that takes longer than the ten seconds that Spark allows for a process that it starts with each stateful
# query.


_WRAPPER = """\
#!/bin/sh
# Written by Headrace: starts Python without Spark's zip file of PySpark, which is installed here.
IFS=:
rest=
for part in $PYTHONPATH; do
    case "$part" in */pyspark.zip) ;; *) rest="$rest:$part" ;; esac
done
PYTHONPATH="${{rest#:}}" exec '{python}' "$@"
"""


def quick_python() -> str:
    """A script that starts this Python; or this Python itself if PySpark is not an installed package."""
    home = Path(pyspark.__file__).parent
    if not home.is_dir() or os.environ.get("SPARK_HOME", str(home)) != str(home) or "'" in sys.executable:
        return sys.executable
    text = _WRAPPER.format(python=sys.executable)
    script = cache_folder(os.environ) / f"python-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    try:
        if not script.is_file():
            script.parent.mkdir(parents=True, exist_ok=True)
            draft = script.with_name(f"{script.name}.{os.getpid()}")
            draft.write_text(text)
            draft.chmod(0o755)
            draft.replace(script)  # two processes may write at once: the last rename wins
    except OSError:
        return sys.executable
    return str(script)
