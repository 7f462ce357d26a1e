"""Runs of Headrace on Spark beside Spark's own operators: one session, the same files, equal answers.

A comparison has several contenders. In every turn each of them runs to the end of the data; who is first
changes from turn to turn, and the first turn warms up and is not counted. The time is that of all
micro-batches after the first, which starts workers and compiles; empty ones, in which Spark answers, count.
The CPU time is that of all processes in the same span, from the commit of the first micro-batch to the end:
the driver, its JVM and the Python workers.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from benchmarks.report import Result

SECOND: Final = 1_000_000
BASE: Final = 1_700_000_000 * SECOND
DDL: Final = "ts timestamp, k bigint, v double"
DISORDER: Final = 2
LONG_AFTER: Final = 600 * SECOND
TURNS: Final = 5
FIRST: Final = 100_000
"""Rows of the first file: its micro-batch starts the workers, and is not counted."""

LOOK: Final = 0.02
"""How often the commit of the first micro-batch is looked for."""

SHOWN: Final = (
    "spark.master",
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.streaming.noDataMicroBatches.enabled",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.python.udf.pipelined.enabled",
    "spark.driver.memory",
)
"""The settings that are printed for both sides."""
MEMORY_STORE: Final = (
    "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"  # Spark's default
)
STORES: Final[dict[str, dict[str, str]]] = {
    "session": {},
    "default": {"spark.sql.streaming.stateStore.providerClass": MEMORY_STORE},
}
"""Settings of Spark's own queries: as the session, or with the state store that Spark has by default."""


def session(**more: Any) -> SparkSession:
    """The session of all contenders."""
    quiet = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
    return headrace.spark.session("spark_bench", "local[2]", **{**quiet, "spark.driver.memory": "4g", **more})


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, Any]) -> Iterator[None]:
    """While this lasts, the session has these settings; a query takes those of the moment it starts."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, str(value))
    try:
        yield
    finally:
        for name, former in before.items():
            if former is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, former)


def shown_settings(spark: SparkSession, who: str, settings: Mapping[str, Any]) -> str:
    """The settings of one side, in a line."""
    with configured(spark, settings):
        found = {name: spark.conf.get(name, None) for name in SHOWN}
    short = (f"{k.removeprefix('spark.')}={str(v).rpartition('.')[2]}" for k, v in found.items() if v)
    return f"    {who}: {' '.join(short)}"


# --- data -------------------------------------------------------------------------------------------------


def write_files(
    folder: Path,
    files: int,
    rows: int,
    keys: int,
    seconds: int,
    seed: int,
    first: int | None = None,
    copies: int = 1,
) -> int:
    """Files in order of time, each `seconds` long, rows up to DISORDER seconds late; then a row long after.

    With the last row all that came before it is proven complete, for Spark and for us. The first file may
    have another number of rows. With `copies`, each row comes so often, at places of its own. Returns the
    number of rows after the first file.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    total = 0
    for i in range(files + 1):
        begin = BASE + i * seconds * SECOND
        n = (rows if i or first is None else first) // copies
        times = rng.integers(begin, begin + seconds * SECOND, n)
        columns = [times, rng.integers(0, keys, n), rng.integers(0, 400, n) / 4.0]
        if i == files:
            columns = [np.array([begin + LONG_AFTER]), np.array([-seed]), np.array([0.0])]
        elif copies > 1:
            columns = [np.tile(each, copies) for each in columns]
        came = np.argsort(columns[0] + rng.integers(0, DISORDER * SECOND, len(columns[0])), kind="stable")
        times = pa.array(columns[0][came], pa.timestamp("us", tz="UTC"))
        table = pa.table([times, columns[1][came], columns[2][came]], names=["ts", "k", "v"])
        path = folder / f"{i:05d}.parquet"
        # Row groups as wide as a core takes them: a file with a single one is read by a single task.
        pq.write_table(table, path, row_group_size=max(1, rows // 8))
        os.utime(path, (i + 1, i + 1))
        total += len(table) if i else 0
    return total


def dataframe(spark: SparkSession, folder: Path) -> DataFrame:
    """The files as an ordinary DataFrame."""
    return spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder))


def by_arrow(spark: SparkSession, folder: Path) -> DataFrame:
    """The files, read by Arrow."""
    limit = {"maxFilesPerTrigger": 1}
    return headrace.spark.files(spark, folder, format="parquet", schema=DDL, options=limit)


def bounds(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"disorder": f"{DISORDER} seconds"} for name in names}


# --- runs -------------------------------------------------------------------------------------------------


_SPENT: Final[dict[tuple[int, float], float]] = {}
"""By process, the CPU time that was seen last."""


def cpu_seconds() -> float:
    """CPU time of this process and all below it: the JVM, Python workers, and those that have ended.

    Spark ends workers that were idle for a minute, and the parent of its workers does not take over their
    time: what was seen last counts.
    """
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            spent = times.user + times.system + times.children_user + times.children_system
            _SPENT[process.pid, process.create_time()] = spent
    return sum(_SPENT.values())


def memory_bytes() -> int:
    """Memory that this process and all below it hold now."""
    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


Start = Callable[[Path], StreamingQuery]
"""Starts a query that keeps its checkpoint and its answers (`out`) in a folder, and ends with the data."""


def started(make: Callable[[], DataFrame]) -> Start:
    """A DataFrame, written as Parquet files."""

    def start(home: Path) -> StreamingQuery:
        writer = make().writeStream.format("parquet").option("checkpointLocation", str(home / "checkpoint"))
        return writer.option("path", str(home / "out")).trigger(availableNow=True).start()

    return start


@dataclass(frozen=True)
class Contender:
    """One way to answer a query, with settings of its own."""

    start: Start
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Run:
    """Milliseconds of each micro-batch by phase, most memory of the run, and its answers.

    `cpu` are the CPU seconds of all micro-batches after the first.
    """

    batches: list[dict[str, int]]
    cpu: float
    memory: int
    answers: tuple[Any, ...]

    @property
    def seconds(self) -> float:
        """The time of all micro-batches after the first."""
        return sum(each["triggerExecution"] for each in self.batches[1:]) / 1000


def run(spark: SparkSession, contender: Contender, answers: Callable[[Path], tuple[Any, ...]]) -> Run:
    """Run to the end of the data."""
    home = Path(tempfile.mkdtemp(prefix="spark_bench"))
    most, first = 0, home / "checkpoint/commits/0"
    try:
        with configured(spark, contender.settings):
            query = contender.start(home)
        while not first.exists() and query.isActive:
            time.sleep(LOOK)
        before = cpu_seconds()
        while not query.awaitTermination(1):
            most = max(most, memory_bytes())
            cpu_seconds()  # a worker may end
        spent = cpu_seconds() - before
        progress = [dict(p.durationMs) for p in query.recentProgress if "addBatch" in p.durationMs]
        return Run(progress, spent, max(most, memory_bytes()), answers(home / "out"))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def fingerprint(spark: SparkSession, out: Path, columns: Sequence[str]) -> tuple[Any, ...]:
    """The number of rows, and the sum of their hashes."""
    if not any(out.rglob("*.parquet")):
        return (0, None)
    rows = spark.read.parquet(str(out)).select(*columns)
    same = [
        F.col(f.name).cast("double" if isinstance(f.dataType, T.NumericType) else "string")
        for f in rows.schema
    ]
    return tuple(rows.agg(F.count("*"), F.sum(F.hash(*same))).first() or ())


@dataclass
class Measured:
    """The counted runs of one contender."""

    runs: list[Run] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return statistics.median(each.seconds for each in self.runs)

    @property
    def cpu(self) -> float:
        return statistics.median(each.cpu for each in self.runs)

    @property
    def memory(self) -> int:
        return max(each.memory for each in self.runs)


def turns_of(
    name: str,
    spark: SparkSession,
    contenders: Mapping[str, Contender],
    columns: Sequence[str],
    turns: int,
    warm: bool = False,
) -> dict[str, Measured]:
    """Runs of all contenders in turns. Stops if answers differ, or if there are none.

    `warm`: they have run before, so that the first turn counts.
    """
    for who, contender in contenders.items():
        print(shown_settings(spark, who, contender.settings), flush=True)
    found = {who: Measured() for who in contenders}
    answers: dict[Any, str] = {}
    for turn in range(int(warm), turns + 1):
        order = list(contenders.items())
        for who, contender in order if turn % 2 else reversed(order):
            made = run(spark, contender, lambda out: fingerprint(spark, out, columns))
            answers.setdefault(made.answers, who)
            if turn:  # the first warms up
                found[who].runs.append(made)
    if len(answers) != 1 or not next(iter(answers))[0]:
        raise SystemExit(f"{name}: the answers differ, or there are none: {answers}")
    return found


def compared(
    name: str,
    spark: SparkSession,
    contenders: Mapping[str, Contender],
    rows: int,
    floors: Mapping[str, float],
    columns: Sequence[str] = ("k", "n", "s"),
    turns: int = TURNS,
    warm: bool = False,
) -> list[Result]:
    """The rate of each contender over that of `native`, by medians over turns, with the CPU time of both.

    The result of `ours` is named `spark.NAME.vs_native`, that of another one `spark.NAME.OTHER.vs_native`.
    """
    print(f"  {name}: {rows:,} rows, {turns} turns", flush=True)
    measured = turns_of(name, spark, contenders, columns, turns, warm)
    native = measured["native"]
    results: list[Result] = []
    for who, each in measured.items():
        per_million = 1e6 * each.cpu / rows
        wall, cpu = native.seconds / each.seconds, native.cpu / each.cpu
        spread = sorted(n.seconds / o.seconds for n, o in zip(native.runs, each.runs, strict=True))
        print(
            f"    {who}: {rows / each.seconds / 1e6:.3f} M rows/s, {per_million:.2f} CPU s per M rows; "
            f"x {wall:.2f} ({spread[0]:.2f} to {spread[-1]:.2f}), by CPU time x {cpu:.2f}",
            flush=True,
        )
        label = f"spark.{name}" if who == "ours" else f"spark.{name}.{who}"
        if who != "native":
            ratio: Result = {"name": f"{label}.vs_native", "value": wall, "unit": "x"}
            if who in floors:
                ratio["floor"] = floors[who]
            results += [ratio, {"name": f"{label}.cpu_vs_native", "value": cpu, "unit": "x"}]
        results += [
            {"name": f"{label}.rows_per_s", "value": rows / each.seconds, "unit": "rows/s"},
            {"name": f"{label}.cpu_s", "value": each.cpu, "unit": "s"},
        ]
    return results
