"""On real Spark: no row is late because Spark started late, stopped, was slow, was rate-limited or failed.

Every row is written at its own time, so it reaches its source within any bound. Six queries read them, each
another way, and their session has two cores: they fall behind by themselves.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.pipeline import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TEXT = """
    SELECT k, count(*) AS n, window_end AS e FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k"""
SCHEMA = "ts TIMESTAMP, k INT"
LATENCY = "2 seconds"
SLOW = {"processingTime": "5 seconds"}
PATIENCE = 240

FILE = """
[pipeline]
name = "late"
runtime = "spark"
checkpoint = "state"
[streams.s]
source = {{ type = "spark", format = "json", path = "{path}", options = {{ {limit} }} }}
schema = "ts TIMESTAMP, k INT"
time = "ts"
bounds = {{ latency = "{latency}" }}
enforcement = "{enforce}"
[[queries]]
name = "file{number}"
sql = "{text}"
sink = {{ path = "answers", format = "json" }}
late = {{ path = "late", format = "json" }}
"""


@dataclass
class Writer:
    """Rows of a stream, written as they happen: one file for each call."""

    folder: Path
    rows: int = 0
    files: int = 0

    def put(self, times: list[float]) -> None:
        self.files += 1
        draft = self.folder / f".{self.files}"
        lines = ({"ts": datetime.fromtimestamp(t, UTC).isoformat(), "k": i % 2} for i, t in enumerate(times))
        draft.write_text("\n".join(map(json.dumps, lines)))
        draft.rename(self.folder / f"{self.files:05d}.json")
        self.rows += len(times)

    def keep_on(self, seconds: float) -> None:
        """A file each half second, of rows that happen now."""
        until = time.time() + seconds
        while time.time() < until:
            self.put([time.time() for _ in range(3)])
            time.sleep(0.5)


class Once(RuntimeError):
    """A sink that fails, once."""


@dataclass
class Way:
    """A query over the rows, by one of the ways there are, that can be stopped and started again."""

    spark: SparkSession
    rows: Path
    home: Path
    enforce: str
    limit: dict[str, Any]
    running: StreamingQuery | None = None
    late: int = 0
    answered: dict[int, list[Any]] = field(default_factory=dict)
    fails_first: bool = False

    def __post_init__(self) -> None:
        self.failed = False

    def read(self) -> DataFrame:
        return self.spark.readStream.schema(SCHEMA).options(**self.limit).json(str(self.rows))

    def start(self, trigger: dict[str, Any] | None = None) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        assert self.running is not None
        self.count()
        self.running.stop()

    def count(self) -> None:
        """Count late rows of the micro-batches so far; each once, for a restarted query starts over."""
        from headrace.runtimes.spark.driver.progress import read

        assert self.running is not None
        self.late += sum(read(each).late for each in self.running.recentProgress)

    def total(self) -> int:
        return sum(row.n for rows in self.answered.values() for row in rows)

    def keep(self, rows: DataFrame, batch: int) -> None:
        found = rows.collect()
        if self.fails_first and found and not self.failed:
            self.failed = True
            raise Once("the sink fails once")
        self.answered[batch] = found

    def asked(self, rows: DataFrame) -> headrace.Query:
        return headrace.query(TEXT, [headrace.spark.stream("s", rows, time="ts")])

    @property
    def options(self) -> headrace.spark.SparkOptions:
        return headrace.spark.SparkOptions(bounds={"s": {"latency": LATENCY}}, enforce=self.enforce)


class Applied(Way):
    """By `apply`."""

    def start(self, trigger: dict[str, Any] | None = None) -> None:
        rows = self.read()
        answers = headrace.spark.apply(self.asked(rows), {"s": rows}, self.options)
        writer = answers.writeStream.foreachBatch(self.keep)
        writer = writer.trigger(**trigger) if trigger else writer
        self.running = writer.option("checkpointLocation", str(self.home / "checkpoint")).start()


class Put(Way):
    """By `outputs`, whose sink fails in the first run."""

    def start(self, trigger: dict[str, Any] | None = None) -> None:
        rows = self.read()
        outputs = headrace.spark.outputs(self.asked(rows), {"s": rows}, self.options)
        checkpoint = str(self.home / "checkpoint")
        self.running = outputs.start(
            checkpoint=checkpoint,
            result=self.keep,
            late=str(self.home / "late"),
            trigger=trigger,
            name=f"put{self.home.name}",
        )


class FromFile(Way):
    """By a pipeline file, which has no trigger."""

    thread: threading.Thread | None = None

    def start(self, trigger: dict[str, Any] | None = None) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        limit = ", ".join(f"{name} = {value}" for name, value in self.limit.items())
        text = FILE.format(
            path=self.rows,
            limit=limit,
            latency=LATENCY,
            enforce=self.enforce,
            text=" ".join(TEXT.split()),
            number=self.home.name,
        )
        (self.home / "p.toml").write_text(text)
        self.runner = headrace.spark.Runner(load(self.home / "p.toml"), self.spark)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        result = self.runner.run()
        self.late += sum(account.late for account in result.queries.values())

    def stop(self) -> None:
        assert self.thread is not None
        self.runner.stop()
        self.thread.join(PATIENCE)

    def total(self) -> int:
        files = (self.home / "answers").glob("batch=*/part-*")
        return sum(json.loads(line)["n"] for f in files for line in f.read_text().splitlines())


@pytest.fixture
def ways(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Writer, list[Way]]]:
    folder = tmp_path / "rows"
    folder.mkdir()
    few, small = {"maxFilesPerTrigger": 3}, {"maxBytesPerTrigger": 600}
    made: list[Way] = [
        Applied(spark, folder, tmp_path / "1", "strict", {}),
        Applied(spark, folder, tmp_path / "2", "admit", few),
        Put(spark, folder, tmp_path / "3", "strict", small, fails_first=True),
        Put(spark, folder, tmp_path / "4", "admit", {}, fails_first=True),
        FromFile(spark, folder, tmp_path / "5", "strict", few),
        FromFile(spark, folder, tmp_path / "6", "admit", {}),
    ]
    yield Writer(folder), made
    for each in spark.streams.active:
        each.stop()


@pytest.mark.timeout(900)
def test_no_row_is_late_because_spark_is(ways: tuple[Writer, list[Way]]) -> None:
    rows, queries = ways
    began = time.time()
    rows.put([began - 20 + i / 10 for i in range(200)])  # a backlog
    for query in queries:
        query.start()
    rows.keep_on(8)
    _until(lambda: all(query.total() >= 100 or query.failed for query in queries), queries)
    assert [query.failed for query in queries] == [query.fails_first for query in queries]
    for query in queries:
        _stop(query)
    rows.keep_on(6)  # nobody reads
    for query in queries:
        query.start(SLOW)
    rows.keep_on(12)
    _until(lambda: all(query.total() >= rows.rows for query in queries), queries)
    for query in queries:
        query.stop()
    assert [query.total() for query in queries] == [rows.rows] * len(queries)
    assert [query.late for query in queries] == [0] * len(queries)


def _stop(query: Way) -> None:
    """Stop a query, which may have failed by itself, as it was to."""
    from pyspark.errors import StreamingQueryException

    with suppress(StreamingQueryException):
        query.stop()


def _until(done: Callable[[], bool], queries: list[Way]) -> None:
    deadline = time.time() + PATIENCE
    while not done():
        assert time.time() < deadline, [(query.total(), query.late) for query in queries]
        time.sleep(0.5)
