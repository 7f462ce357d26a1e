"""A Spark session with the settings that Headrace wants, new or completed, and what was done to it."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from headrace.errors import SparkError
from headrace.kernels.compiling import compile_all
from headrace.runtimes.spark import java
from headrace.runtimes.spark.settings import CORES, SETTINGS, Binding, Claim, Setting
from headrace.runtimes.spark.workers import quick_python

_LOG = logging.getLogger("headrace.spark")

SET, KEPT, TOO_LATE = "set", "kept", "too late"


@dataclass(frozen=True)
class Change:
    """What became of one setting: `set` to `new`, `kept` at `old` as the user's own, or `too late` to set."""

    name: str
    old: str | None
    new: str
    why: str
    outcome: str

    def __str__(self) -> str:
        return f"  {_WORDS[self.outcome].format(self=self)}\n    because {self.why}"


_WORDS = {
    SET: "{self.name}: {self.old} -> {self.new}",
    KEPT: "{self.name}: {self.old} stays, as that is yours to choose; Headrace would take {self.new}",
    TOO_LATE: "{self.name}: {self.old}, read only when Spark starts; set it to {self.new} before that",
}


@dataclass(frozen=True)
class Report:
    """What `session` did: a change for every setting that was not as wanted."""

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
    """What the last call of `session` changed in this session, and what it could not change."""
    return _REPORTS.get(spark, Report())


def session(
    app_name: str | None = None,
    master: str | None = None,
    *,
    spark: SparkSession | None = None,
    **settings: str | int | bool,
) -> SparkSession:
    """A session with the settings that Headrace wants: a new one, or the one there is, completed.

    `settings` are Spark's own, by their full names (`**{"spark.executor.memory": "4g"}`), and stand above
    the table in `settings.py`. What the user or `spark-defaults.conf` has set stays, except what is
    required. Changes to a session that was there before are logged as a warning; `report(spark)` has them
    all. On a cluster the number of shuffle partitions is the number of cores known when this is called.
    """
    _refuse_remote(spark)
    wanted = {name: _text(value) for name, value in settings.items()}
    if app_name is not None:
        wanted["spark.app.name"] = app_name
    if master is not None:
        wanted["spark.master"] = master
    there = spark is not None or SparkContext._active_spark_context is not None
    if there:
        spark = spark or SparkSession.builder.getOrCreate()
        done = Report(tuple(_completed(spark, wanted)))
    else:
        compile_all()  # here a person sees its message; the daemon of local workers loads them
        spark, done = _made(wanted)
    _REPORTS[spark] = done
    _say(done, there)
    return spark


def _refuse_remote(spark: SparkSession | None) -> None:
    classic = spark is None or isinstance(spark, SparkSession)
    if is_remote() or not classic:
        raise SparkError(
            "HR-SP02",
            "this is a Spark Connect session, which has no JVM at hand to set up",
            hint="use classic PySpark (no SPARK_REMOTE); docs/spark/connect.md says what works with Connect",
        )


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(done: Report, there: bool) -> None:
    if there and (done.set or done.too_late):
        _LOG.warning("Headrace looked at the settings of this Spark session:\n%s", done)
    else:
        _LOG.info("Settings of this Spark session:\n%s", done)


# --- a new session ----------------------------------------------------------------------------------------


def _made(wanted: Mapping[str, str]) -> tuple[SparkSession, Report]:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # otherwise spark-submit has started Java already
        java.ensure()
    before = _configured(wanted)
    python = _python_for_workers(wanted, before)
    conf = SparkConf().setAll(list(wanted.items()))
    changes = [*python, *_without_bounds_checks()]
    for row in SETTINGS:
        if row.binding is Binding.START and _suits(row, before) and not before.contains(row.name):
            conf.set(row.name, row.value)
            changes.append(Change(row.name, None, row.value, row.why, SET))
    conf.setIfMissing("spark.app.name", "headrace")
    spark = SparkSession.builder.config(conf=conf).getOrCreate()
    changes += _at_runtime(spark, wanted, fresh=True)
    changes += _without_checksums(spark)
    return spark, Report(tuple(changes))


def _suits(row: Setting, conf: SparkConf) -> bool:
    return not row.local or (conf.get("spark.master", "local") or "").startswith("local")


def _configured(wanted: Mapping[str, str]) -> SparkConf:
    """What files and spark-submit have set, with `wanted` above it; starts Java if it does not run yet.

    `wanted` goes along because some settings (the driver's memory) are arguments of Java itself.
    """
    asked = SparkConf(loadDefaults=False).setAll(list(wanted.items()))
    SparkContext._ensure_initialized(conf=asked)
    return SparkConf().setAll(list(wanted.items()))


def _python_for_workers(wanted: Mapping[str, str], conf: SparkConf) -> Iterator[Change]:
    """Spark would start `python3`, whichever that is; a worker of another version dies at its first row."""
    if "spark.pyspark.python" in wanted:
        return
    local = re.match(r"local(\[|$)", conf.get("spark.master", "local") or "local")
    found = {
        "PYSPARK_PYTHON": quick_python() if local else sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    for name, python in found.items():
        if name not in os.environ:
            os.environ[name] = python
            yield Change(name, None, python, "workers must run the Python of the driver", SET)


def _without_bounds_checks() -> Iterator[Change]:
    """What executors are told by their environment, for the Java of the driver: Arrow is not in it yet."""
    jvm, name = SparkContext._jvm, "arrow.enable_unsafe_memory_access"
    assert jvm is not None
    if jvm.System.getProperty(name) is None:
        jvm.System.setProperty(name, "true")
        yield Change(name, None, "true", "values on the way to Python cost a fifth less", SET)


# --- a session that is there ------------------------------------------------------------------------------


def _completed(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[Change]:
    context = spark.sparkContext
    if context.pythonExec == "python3" and "PYSPARK_PYTHON" not in os.environ:
        context.pythonExec = sys.executable
        why = "workers must run the Python of the driver"
        yield Change("PYSPARK_PYTHON", "python3", sys.executable, why, SET)
    yield from _at_runtime(spark, wanted, fresh=False)
    yield from _at_start(spark, wanted)
    yield from _without_checksums(spark)


def _at_start(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[Change]:
    """What Spark has read already and will not read again."""
    conf = spark.sparkContext.getConf()
    rows = [row for row in SETTINGS if row.binding is Binding.START and _suits(row, conf)]
    whys = {row.name: (row.value, row.why) for row in rows}
    asked = {
        name: (value, "you asked for it") for name, value in wanted.items() if not _settable(spark, name)
    }
    for name, (value, why) in {**whys, **asked}.items():
        old = conf.get(name, _DEFAULTS.get(name))
        if old != value:
            outcome = KEPT if conf.contains(name) and name not in wanted else TOO_LATE
            yield Change(name, old, value, why, outcome)


_DEFAULTS = {
    "spark.python.worker.reuse": "true",
    "spark.python.unix.domain.socket.enabled": "false",
    "spark.python.daemon.module": "pyspark.daemon",
}


def _settable(spark: SparkSession, name: str) -> bool:
    """Spark says so of the settings that it lists; two of ours are not listed, and are read all the same."""
    ours = {row.name for row in SETTINGS if row.binding is Binding.RUNTIME}
    return name in ours or bool(spark.conf.isModifiable(name))


def _at_runtime(spark: SparkSession, wanted: Mapping[str, str], *, fresh: bool) -> Iterator[Change]:
    explicit = spark.conf.getAll
    if not fresh:
        yield from _asked_for(spark, wanted, explicit)
    for row in SETTINGS:
        if row.binding is not Binding.RUNTIME or row.name in wanted:
            continue
        value = str(spark.sparkContext.defaultParallelism) if row.value == CORES else row.value
        old = _now(spark, row.name)
        if not _same(row.name, old, value):
            outcome = KEPT if _stays(row, row.name in explicit, fresh) else SET
            if outcome == SET:
                spark.conf.set(row.name, value)
            yield Change(row.name, old, value, row.why, outcome)


def _asked_for(
    spark: SparkSession, wanted: Mapping[str, str], explicit: Mapping[str, str]
) -> Iterator[Change]:
    for name, value in wanted.items():
        if _settable(spark, name) and explicit.get(name) != value:
            old = _now(spark, name)
            spark.conf.set(name, value)
            yield Change(name, old, value, "you asked for it", SET)


def _now(spark: SparkSession, name: str) -> str | None:
    """The value in force, Spark's default included; none where Spark has no default either."""
    try:
        return spark.conf.get(name)
    except PySparkException:
        return None


def _same(name: str, old: str | None, value: str) -> bool:
    utc = {"UTC", "Etc/UTC", "Z", "GMT"}
    return old == value or (name.endswith("timeZone") and old in utc and value in utc)


def _stays(row: Setting, explicit: bool, fresh: bool) -> bool:
    return {
        Claim.REQUIRED: False,
        Claim.ADVISED: explicit,
        Claim.FRESH: explicit or not fresh,
    }[row.claim]


def _without_checksums(spark: SparkSession) -> Iterator[Change]:
    """Hadoop writes a second, hidden file beside each local one, and forks for it as for the first."""
    jvm, jsc = spark.sparkContext._jvm, spark.sparkContext._jsc
    assert jvm is not None
    local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(jsc.hadoopConfiguration())
    name, why = (
        "LocalFileSystem.setWriteChecksum",
        "a .crc file for each local checkpoint file doubles the forks",
    )
    already = spark.sparkContext.getConf().get("spark.headrace.localChecksums", "true") == "false"
    if not already:
        local.setWriteChecksum(False)
        jsc.sc().conf().set("spark.headrace.localChecksums", "false")
        yield Change(name, "true", "false", why, SET)
