"""Figures 7 and 8 of Bai et al. 2007 on Spark: windows that a sparse stream holds back, or does not.

Real micro-batches on a simulated clock: a micro-batch starts at its trigger with the rows that have come by
then, the clock advances by the time that it really took, and what is left until the next trigger is skipped.
What a clock tells a query is the instant of the micro-batch before, as Headrace's own timer on Spark does.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import headrace
from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.sql import StreamDef

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BASE = 1_700_000_000_000
RATE, KEYS, TRANSIT, BOUND, WINDOW = 50, 10, 150, 200, 1_000
DDL = "stream string, t bigint, k bigint, clock bigint"
FAST, SLOW, TIMER = "fast", "slow", "timer"
QUERY = """
    SELECT k, count(*) AS n, window_end AS e
    FROM (SELECT k FROM fast UNION ALL SELECT k FROM slow) [RANGE 1000 SLIDE 1000]
    GROUP BY k
"""
STREAMS = [
    StreamDef(name, pa.schema([("t", pa.int64()), ("k", pa.int64())]), time_column="t", ticks_per_second=None)
    for name in (FAST, SLOW)
]
Numbers = npt.NDArray[np.int64]
QUIET = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": 2,
}
DATA_ONLY = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Each micro-batch is one of the clock's. The next one has rows, so it comes as soon as an empty one."""


# --- the ways ---------------------------------------------------------------------------------------------


def native(rows: DataFrame) -> DataFrame:
    """A watermark on each stream, the largest time seen minus the bound; the least of both counts."""
    from pyspark.sql import functions as F

    timed = [
        _timed(rows, name).withWatermark("ts", f"{BOUND} milliseconds").select("ts", "k")
        for name in (FAST, SLOW)
    ]
    return _counted(timed, F)


def punctuated(rows: DataFrame) -> DataFrame:
    """Spark's own operators, with the watermark of a clock."""
    from pyspark.sql import functions as F

    timer = rows.where(F.col("stream") == TIMER).select(F.timestamp_millis("clock").alias("now"))
    timed = [
        headrace.spark.punctuate(
            _timed(rows, name), time="ts", bounds=f"{BOUND} milliseconds", timer=timer
        ).select("ts", "k")
        for name in (FAST, SLOW)
    ]
    return _counted(timed, F)


def applied(rows: DataFrame) -> DataFrame:
    """The same query on Headrace's engine."""
    from pyspark.sql import functions as F

    query = headrace.query(QUERY, STREAMS, ticks_per_second=None)
    frames = {name: rows.where(F.col("stream") == name).select("t", "k", "clock") for name in (FAST, SLOW)}
    timer = rows.where(F.col("stream") == TIMER).select("clock")
    options = headrace.spark.SparkOptions(
        bounds={name: {"latency": BOUND} for name in (FAST, SLOW)}, timer=timer, arrival="clock"
    )
    return headrace.spark.apply(query, frames, options)


def _timed(rows: DataFrame, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    return rows.where(F.col("stream") == name).select(F.timestamp_millis("t").alias("ts"), "k")


def _counted(timed: list[DataFrame], F: Any) -> DataFrame:
    """Rows of both streams by key and second."""
    counts = timed[0].union(timed[1]).groupBy(F.window("ts", f"{WINDOW} milliseconds"), "k").count()
    return counts.select("k", F.col("count").alias("n"), F.unix_millis("window.end").alias("e"))


WAYS: dict[str, Callable[[Any], Any]] = {"native": native, "punctuate": punctuated, "apply": applied}
LABELS = {"native": "Spark's watermarks", "punctuate": "punctuate", "apply": "apply"}


# --- the rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows in order of arrival; times in ms since the beginning."""

    stream: Numbers
    sent: Numbers
    came: Numbers
    key: Numbers

    def between(self, after: float, until: float) -> slice:
        """Those that came in (after, until]."""
        return slice(*np.searchsorted(self.came, (after, until), side="right"))

    def answers(self, until: int) -> set[tuple[int, int]]:
        """The window's end and the key of each answer about windows that end by `until`."""
        ends = self.sent // WINDOW * WINDOW + WINDOW
        counts = (self.sent >= 0) & (ends <= until)
        return set(zip(ends[counts].tolist(), self.key[counts].tolist(), strict=True))


def arrivals(gap: int, beyond: int) -> Rows:
    """Fast rows from 3 s before the beginning until `beyond`, and a slow row at each multiple of `gap`."""
    rng = np.random.default_rng(91)
    fast = np.sort(rng.integers(-3_000, beyond, (beyond + 3_000) * RATE // 1_000))
    slow = np.concatenate([np.arange(-3_000, 0, 1_000), np.arange(0, beyond, gap)])
    sent = np.concatenate([fast, slow])
    came = sent + np.concatenate([rng.integers(0, TRANSIT, len(fast)), np.full(len(slow), TRANSIT)])
    stream = np.repeat([0, 1], [len(fast), len(slow)])
    key = rng.integers(0, KEYS, len(sent))
    order = np.argsort(came, kind="stable")
    return Rows(stream[order], sent[order], came[order], key[order])


# --- a run ------------------------------------------------------------------------------------------------


class BatchClock:
    """Milliseconds since the beginning; a micro-batch takes what it takes, or always the same."""

    def __init__(self, service: int | None) -> None:
        self.start = 0.0
        self._fixed = None if service is None else service / 1e6
        self._began = 0.0

    def begin(self, start: float) -> None:
        """A micro-batch begins."""
        self.start, self._began = start, time.perf_counter()

    @property
    def now(self) -> float:
        """The instant, while or after a micro-batch runs."""
        took = (time.perf_counter() - self._began) * 1e3 if self._fixed is None else self._fixed
        return self.start + took


@dataclass
class Played:
    """What a run showed."""

    came: dict[tuple[int, int], float] = field(default_factory=dict)
    batches: list[float] = field(default_factory=list)
    state_rows: int = 0
    engine_bytes: int = 0
    ended: float = 0.0

    def delay(self, expected: set[tuple[int, int]]) -> float:
        """Mean ms from the end of a window to its answer; one that never came counts as at the end."""
        return float(np.mean([self.came.get(each, self.ended) - each[0] for each in expected]))

    @property
    def batch_ms(self) -> float:
        """What a micro-batch takes, usually."""
        return float(np.median(self.batches))


class Run:
    """A query over a folder of files, each of which is a micro-batch."""

    def __init__(
        self, spark: SparkSession, way: str, rows: Rows, trigger: int, folder: Path, conditions: Conditions
    ) -> None:
        self._rows, self._trigger, self._folder = rows, trigger, folder / "rows"
        self._folder.mkdir(parents=True)
        self._clock = BatchClock(conditions.service)
        self._files = 0
        self.found = Played()
        read = spark.readStream.schema(DDL).json(str(self._folder))
        writer = WAYS[way](read).writeStream.foreachBatch(self._keep)
        self._query: StreamingQuery = writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    def play(self, until: float) -> Played:
        """Warm up; then every micro-batch until this instant."""
        try:
            for second in (-2, -1, 0):
                self._batch(second * 1_000 - 1_000, second * 1_000)
            self.found = Played()
            before, now = 0.0, 0.0
            while now < until:
                now = max(
                    now, before // self._trigger * self._trigger + self._trigger if self._trigger else now
                )
                self._batch(before, now)
                before, now = now, self._clock.now
                self.found.batches.append(now - before)
            self.found.ended = now
        finally:
            self._query.stop()
        return self.found

    def _batch(self, before: float, now: float) -> None:
        """The rows that came since the micro-batch before, and the clock's; until they are worked off."""
        part = self._rows.between(before, now)
        clock = BASE + int(before)
        columns = (self._rows.stream[part], self._rows.sent[part], self._rows.key[part])
        lines = [
            {"stream": (FAST, SLOW)[stream], "t": BASE + sent, "k": key, "clock": clock}
            for stream, sent, key in zip(*(each.tolist() for each in columns), strict=True)
        ]
        lines.append({"stream": TIMER, "t": clock, "k": 0, "clock": clock})
        self._files += 1
        draft = self._folder / f".{self._files}"
        draft.write_text("\n".join(map(json.dumps, lines)))
        self._clock.begin(now)
        os.replace(draft, self._folder / f"{self._files}.json")
        self._query.processAllAvailable()
        self._look()

    def _keep(self, batch: DataFrame, number: int) -> None:
        """The sink: when each answer came."""
        rows = batch.collect()
        now = self._clock.now
        self.found.came.update({(row["e"] - BASE, row["k"]): now for row in rows})

    def _look(self) -> None:
        """What the query holds after a micro-batch."""
        from headrace.runtimes.spark.driver.progress import read

        if self._query.lastProgress is not None:
            progress = read(self._query.lastProgress)
            self.found.state_rows = max(self.found.state_rows, progress.state_rows)
            self.found.engine_bytes = max(self.found.engine_bytes, progress.engine_bytes)


@contextmanager
def session() -> Iterator[SparkSession]:
    """The session that is active, or one for as long as this lasts."""
    from pyspark.sql import SparkSession

    from benchmarks.spark_runs import configured

    active = SparkSession.getActiveSession()
    spark = active or headrace.spark.session("experiments", "local[2]", **QUIET)
    try:
        with configured(spark, DATA_ONLY):
            yield spark
    finally:
        if active is None:
            spark.stop()


def run(conditions: Conditions) -> Result:
    """Each way under each trigger, over the same arrivals."""
    triggers = conditions.of((0,), (0, 2_000, 5_000, 10_000), (0, 1_000, 2_000, 5_000, 10_000))
    gap = conditions.of(10_000, 60_000, 60_000)
    least, until = conditions.of(2.5, 10.0, 10.0), conditions.of(gap, gap, 3 * gap)
    beyond = until + 4 * max(triggers) + 3_000
    rows = arrivals(gap, beyond)
    expected = rows.answers(until - WINDOW)
    found: dict[tuple[str, int], Played] = {}
    with tempfile.TemporaryDirectory() as folder, session() as spark:
        for trigger in triggers:
            for way in WAYS:
                end = until + 3 * trigger + 1_500
                made = Run(spark, way, rows, trigger, Path(folder, f"{way}-{trigger}"), conditions)
                found[way, trigger] = made.play(end)
    delay = {key: played.delay(expected) for key, played in found.items()}
    held = {way: found[way, 0].state_rows for way in ("native", "punctuate")}
    ratio = delay["native", 0] / delay["apply", 0]
    seconds = [trigger / 1_000 for trigger in triggers]
    lines = [
        Line(LABELS[way], seconds, [delay[way, trigger] / 1_000 for trigger in triggers]) for way in WAYS
    ]
    waiting = [
        Line(LABELS[way], seconds, [float(found[way, trigger].state_rows) for trigger in triggers])
        for way in ("native", "punctuate")
    ]
    return Result(
        [
            *(
                Measure(f"spark.fig7.{way}_{trigger // 1_000}s_ms", delay[way, trigger], "ms")
                for trigger in triggers
                for way in WAYS
            ),
            *(Measure(f"spark.{way}_batch_ms", found[way, 0].batch_ms, "ms") for way in WAYS),
            Measure("spark.fig7.native_over_headrace", ratio, "×", floor=least),
            Measure("spark.fig7.native_over_punctuate", delay["native", 0] / delay["punctuate", 0], "×"),
            Measure("spark.fig8.native_peak", held["native"], "windows"),
            Measure("spark.fig8.punctuate_peak", held["punctuate"], "windows"),
            Measure("spark.fig8.apply_peak_kib", found["apply", 0].engine_bytes / 1_024, "KiB"),
            Measure(
                "spark.fig8.native_over_punctuate",
                held["native"] / max(1, held["punctuate"]),
                "×",
                floor=conditions.of(1.5, 5.0, 5.0),
            ),
        ],
        [
            Panel("(a) latency", "Trigger (s)", "Delay of a window (s)", lines, y_scale="log"),
            Panel("(b) memory", "Trigger (s)", "Peak of open windows", waiting, from_zero=True),
        ],
        f"without a trigger, windows are answered {delay['native', 0] / 1e3:.1f} s after their end under "
        f"Spark's watermarks, {delay['punctuate', 0] / 1e3:.1f} s with `punctuate` and "
        f"{delay['apply', 0] / 1e3:.1f} s with `apply`; Spark holds at most {held['native']} open windows "
        f"under its own watermarks and {held['punctuate']} with `punctuate`",
    )


EXPERIMENT = Experiment(
    name="spark",
    figure="Bai et al. 2007, Figures 7 and 8, on Spark",
    claim="on Spark too, a sparse stream delays what is computed from a busy one, and open windows pile up, "
    "under the watermark that follows the data; a clock, which both `punctuate` and `apply` bring, ends that",
    method="50 rows/s and one row a minute, up to 150 ms on their way, counted together by key in windows of "
    "a second with a bound of 200 ms; local[2], one micro-batch after the other and with triggers of 2 to "
    "10 s; mean time from the end of a window to its answer in `foreachBatch`, after three micro-batches "
    "that warm up; micro-batches are real, on a simulated clock that advances by what each took and skips "
    "what is left until the next trigger; what the clock says to `punctuate` and `apply` is the instant of "
    "the micro-batch before; memory is the peak of Spark's state rows, one for each open window and key",
    differs="On Spark a union does not wait, so the figure is of windows, which do. A watermark of Spark "
    "takes effect in the next micro-batch, and a clock is one micro-batch old: with long triggers that is "
    "most of the delay, and the ways come close. `apply` keeps its state as bytes, which are not compared.",
    run=run,
)
