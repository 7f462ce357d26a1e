"""NEXMark on Spark at size: each query by Headrace, and by Spark's own operators where they can answer it.

One session, the same Parquet files, equal answers; the contenders run in turns (`benchmarks/spark_runs.py`).
Events come in files, one for each stream and micro-batch. The first is small: its micro-batch starts workers
and is not counted. Before the turns each contender runs once over a few events, to warm up. A file that only
Spark's own windows read has one event of each stream long after all others, so that it answers all of them;
for Headrace, a file says that the streams have ended.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import headrace
from benchmarks import spark_runs as runs
from benchmarks.nexmark_native import NATIVE, WHY_NOT, WITHOUT_WATERMARK
from benchmarks.nexmark_runs import inputs
from benchmarks.report import Result
from benchmarks.spark_runs import Contender, started
from examples.nexmark import text
from headrace.connectors.nexmark import STREAMS, NexmarkGenerator
from headrace.runtimes.spark.types import spark_schema

SECOND: Final = 1_000_000
RATE: Final = 100_000
"""Events in a second of event time."""
COUNTED: Final = 4
"""Micro-batches that are counted."""
FEW: Final = 200_000
"""Events of the run that warms up, at most."""
LONG_AFTER: Final = 3600 * SECOND


@dataclass(frozen=True)
class Events:
    """Files of events: those that count are after the first."""

    folder: Path
    generator: NexmarkGenerator
    counted: int


def write_events(folder: Path, events: int) -> Events:
    """Events in a small first file and some equal ones, and what comes at the end."""
    generator = NexmarkGenerator(seed=1, rate=RATE, disorder=100)
    first = max(1, events // 50)
    size = -(-events // COUNTED)
    steps = [(0, first), *((first + i * size, size) for i in range(COUNTED))]
    for stream in (*STREAMS, "ending", *(f"after/{each}" for each in STREAMS)):
        (folder / stream).mkdir(parents=True)
    for number, (begin, count) in enumerate(steps):
        for stream, rows in generator.batches(begin, count).items():
            columns = [_in_utc(c) for c in rows.data.columns]
            table = pa.table(columns, names=rows.data.schema.names)
            path = folder / stream / f"{number}.parquet"
            pq.write_table(table, path, row_group_size=max(1, table.num_rows // 8))
            os.utime(path, (number + 1, number + 1))
            if number == COUNTED:
                _put_after(folder / "after" / stream, table)
        ended = folder / "ending" / f"{number}.txt"
        ended.write_text("end\n" if number == COUNTED else "")
        os.utime(ended, (number + 1, number + 1))
    return Events(folder, generator, COUNTED * size)


def _put_after(folder: Path, table: pa.Table) -> None:
    """The last row again, long after all others."""
    last = table.slice(table.num_rows - 1)
    at = table.schema.get_field_index("date_time")
    moved = pa.array([last.column(at)[0].value + LONG_AFTER], pa.int64()).cast(pa.timestamp("us", "UTC"))
    path = folder / f"{COUNTED + 1}.parquet"
    pq.write_table(last.set_column(at, "date_time", moved), path)
    os.utime(path, (COUNTED + 2, COUNTED + 2))


def _in_utc(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("us", tz="UTC")) if pt.is_timestamp(column.type) else column


def _schema(stream: str) -> pa.Schema:
    fields = ((f.name, f.type) for f in STREAMS[stream].schema)
    return pa.schema([(n, pa.timestamp("us", tz="UTC") if pt.is_timestamp(t) else t) for n, t in fields])


ROW_BY_ROW: Final = frozenset(("q0", "q1", "q2", "q14", "q21", "q22"))
"""Queries that select and project. For Spark no row is too late for them, and so it is here: `admit`."""


def ours(spark: SparkSession, name: str, events: Events) -> Contender:
    """A query by Headrace, over files read by Arrow; unordered within a micro-batch, as Spark's results are.

    `strict` makes late rows a side output. The default, an error at the first one, leaves filters to the
    engine, which must see each row.
    """
    said, at_once = inputs(events.generator), name in ROW_BY_ROW
    enforce = "admit" if at_once else "strict"
    said = replace(said, rules={each: replace(rule, enforce=enforce) for each, rule in said.rules.items()})

    def asked() -> tuple[headrace.Query, dict[str, DataFrame], headrace.spark.SparkOptions]:
        limit = {"maxFilesPerTrigger": 1}
        frames = {
            each: headrace.spark.files(
                spark, events.folder / each, format="parquet", schema=_schema(each), options=limit
            )
            for each in STREAMS
        }
        streams = [headrace.spark.stream(each, df, time="date_time") for each, df in frames.items()]
        query = headrace.query(text(name), streams, name=name, ordered=not at_once)
        wanted = {source.name for source in query.sources}
        ending = spark.readStream.options(**limit).text(str(events.folder / "ending"))
        options = headrace.spark.SparkOptions(inputs=said, timer=None, ending=ending, ordered=False)
        return query, {n: df for n, df in frames.items() if n in wanted}, options

    def start(home: Path) -> StreamingQuery:
        made = headrace.spark.outputs(*asked())
        to = {"checkpoint": str(home / "checkpoint"), "result": str(home / "out")}
        return made.start(**to, trigger={"availableNow": True})

    return Contender(start)


def native(spark: SparkSession, name: str, events: Events, settings: dict[str, str]) -> Contender:
    """A query by Spark's own operators."""
    delay = f"{-(-events.generator.skew // 1000)} milliseconds"
    windows = name not in WITHOUT_WATERMARK

    def read(stream: str) -> DataFrame:
        reader = spark.readStream.schema(spark_schema(_schema(stream))).option("maxFilesPerTrigger", 1)
        paths = f"{events.folder}/{{{stream},after/{stream}}}" if windows else f"{events.folder}/{stream}"
        found = reader.parquet(paths)
        return found.withWatermark("date_time", delay) if windows else found

    def make() -> DataFrame:
        return NATIVE[name]({stream: read(stream) for stream in STREAMS})

    return Contender(started(make), settings)


def columns_of(name: str) -> list[str]:
    """The columns of a query, in a form in which equal values are equal texts."""
    streams = [headrace.StreamDef(each, _schema(each), time_column="date_time") for each in STREAMS]
    found = headrace.query(text(name), streams, name=name).schema
    return [each.name for each in found]


def on_spark(
    spark: SparkSession, names: Sequence[str], events: int, turns: int, settings: dict[str, str]
) -> list[Result]:
    """Each query in turns, and the numbers that all of them make."""
    results: list[Result] = []
    rates: list[float] = []
    ratios: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="nexmark") as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        began = time.monotonic()
        many = write_events(Path(folder, "many"), events)
        few = write_events(Path(folder, "few"), min(events, FEW))
        print(f"{many.counted:,} events a query; writing them took {time.monotonic() - began:.0f} s")
        for who, given in (("ours", {}), ("native", settings)):
            print(runs.shown_settings(spark, who, given), flush=True)
        head = f"{'query':5}  {'events/s':>10}  {'CPU s/M':>8}  {'memory':>7}"
        print(f"{head}  {'native':>10}  {'CPU s/M':>8}  {'memory':>7}  ratio  by CPU", flush=True)
        for name in names:
            try:
                measured = _measured(spark, name, few, many, turns, settings)
            except Exception as error:
                print(f"{name:5}  failed: {str(error).partition(chr(10))[0][:200]}", flush=True)
                results.append(
                    {"name": f"spark.nexmark.{name}.equal", "value": 0.0, "unit": "", "floor": 1.0}
                )
                continue
            mine, its = measured["ours"], measured.get("native")
            rates.append(many.counted / mine.seconds)
            results += _results(name, mine, its, many.counted)
            if its is not None:
                ratios[name] = its.seconds / mine.seconds
            print(_line(name, mine, its, many.counted), flush=True)
        tempfile.tempdir = before
    if rates:
        middle = statistics.median(rates)
        median: Result = {"name": "spark.nexmark.median_events_per_s", "value": middle, "unit": "events/s"}
        results.append(median | {"floor": 1e6})  # type: ignore[arg-type]
    if ratios:
        worst = min(ratios, key=lambda name: ratios[name])
        print(f"the worst ratio is that of {worst}")
        least: Result = {"name": "spark.nexmark.least_vs_native", "value": ratios[worst], "unit": "x"}
        results.append(least | {"floor": 1.0})  # type: ignore[arg-type]
    return results


def _measured(
    spark: SparkSession, name: str, few: Events, many: Events, turns: int, settings: dict[str, str]
) -> dict[str, runs.Measured]:
    """The runs of one query. Stops if the answers of the contenders differ."""
    found: dict[str, runs.Measured] = {}
    answers: dict[tuple[object, ...], str] = {}
    columns = columns_of(name)
    for turn in range(turns + 1):
        events = many if turn else few
        contenders = {"ours": ours(spark, name, events)}
        if name in NATIVE:
            contenders["native"] = native(spark, name, events, settings)
        order = list(contenders.items())
        for who, contender in order if turn % 2 else reversed(order):
            made = runs.run(spark, contender, lambda out: runs.fingerprint(spark, out, columns))
            answers.setdefault((turn > 0, *made.answers), who)
            if turn:
                found.setdefault(who, runs.Measured()).runs.append(made)
    if len(answers) != 2:
        raise ValueError(f"the answers differ: {answers}")
    return found


def _results(name: str, mine: runs.Measured, its: runs.Measured | None, events: int) -> list[Result]:
    label = f"spark.nexmark.{name}"
    results: list[Result] = [{"name": f"{label}.equal", "value": 1.0, "unit": "", "floor": 1.0}]
    for who, each in (("", mine), (".native", its)):
        if each is not None:
            results += [
                {"name": f"{label}{who}.events_per_s", "value": events / each.seconds, "unit": "events/s"},
                {"name": f"{label}{who}.cpu_s_per_m", "value": 1e6 * each.cpu / events, "unit": "s"},
                {"name": f"{label}{who}.memory", "value": each.memory / 2**20, "unit": "MiB"},
            ]
    if its is not None:
        results += [
            {"name": f"{label}.vs_native", "value": its.seconds / mine.seconds, "unit": "x"},
            {"name": f"{label}.cpu_vs_native", "value": its.cpu / mine.cpu, "unit": "x"},
        ]
    return results


def _line(name: str, mine: runs.Measured, its: runs.Measured | None, events: int) -> str:
    def side(each: runs.Measured) -> str:
        rate, cpu = events / each.seconds, 1e6 * each.cpu / events
        return f"{rate:10,.0f}  {cpu:8.2f}  {each.memory / 2**20:7,.0f}"

    if its is None:
        return f"{name:5}  {side(mine)}  {WHY_NOT.get(name, '')}"
    ratios = f"{its.seconds / mine.seconds:5.2f}  {its.cpu / mine.cpu:6.2f}"
    return f"{name:5}  {side(mine)}  {side(its)}  {ratios}"
