"""The part of the Spark tests that every version of Spark and Spark Connect must pass: one test per feature.

`make test-spark-versions` runs it everywhere, `make test` nowhere. What a version or Spark Connect cannot do
is refused, with the code in `tests.spark.versions.REFUSED`. Nothing here uses the JVM or
expects foreachBatch to run in this process: with Spark Connect it does not.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import headrace
from headrace.errors import SparkError
from headrace.runtimes.spark.driver import lock, record
from headrace.runtimes.spark.driver.bounds import inputs_of
from headrace.runtimes.spark.versions import (
    VERSIONS,
    check_stateful,
    features,
    first_with,
    is_connect,
    number,
)
from headrace.time.ets import DisorderPromise
from tests.spark.conftest import Feed, played
from tests.spark.simulated import MicroBatch, Outcome, embedded
from tests.spark.test_zones import IN_ORDER, OPTIONS, asked, in_zone
from tests.spark.test_zones import ran as run_to_parquet
from tests.spark.test_zones import table as zoned_rows
from tests.spark.versions import EXPECTED, FEATURES, NOT_RUN, PAGE, REFUSED, page_table, reported, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Expecting = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def expecting(spark: SparkSession, record_property: Callable[[str, object], None]) -> Expecting:
    """`with expecting("apply"):` what follows works, or is refused as the table says."""

    @contextmanager
    def expect(feature: str) -> Iterator[None]:
        code = REFUSED.get((feature, (number(spark.version), is_connect(spark))))
        if code is None:
            yield
            return
        with pytest.raises(SparkError) as refused:
            yield
        assert refused.value.code == code
        assert refused.value.hint
        record_property("refused", code)

    return expect


# --- the same rows for all --------------------------------------------------------------------------------

COLUMNS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
STREAMS = [headrace.StreamDef("s", COLUMNS, time_column="ts", ticks_per_second=None)]
BOUNDS = {"s": DisorderPromise(3)}
TEXTS = {
    "windows": "SELECT k, count(*) AS n, sum(v) AS x FROM s [RANGE 10 TICKS SLIDE 5 TICKS] GROUP BY k",
    "latest": "SELECT k, max(v) AS v FROM s [RANGE 8 TICKS] GROUP BY k",
}
Row = dict[str, Any]


def batches() -> list[list[Row]]:
    """Three micro-batches, each in a little disorder; some rows are late, one has no time."""
    rng = random.Random(7)
    made = [
        [
            {"k": rng.choice("abc"), "v": rng.randrange(50), "ts": t + rng.randint(-4, 0)}
            for t in range(10 * n, 10 * n + 10)
        ]
        for n in range(3)
    ]
    made[2] += [{"k": "a", "v": 1, "ts": 4}, {"k": "b", "v": 2, "ts": None}]
    return made


BATCHES = batches()


def in_one_engine(text: str) -> Outcome:
    """What one engine in this process gives for the same micro-batches."""
    pushed: list[MicroBatch] = []
    for now, rows in enumerate(BATCHES, start=1):
        times = np.array([np.nan if row["ts"] is None else row["ts"] for row in rows], object)
        pushed.append((now, {"s": (pa.RecordBatch.from_pylist(rows, schema=COLUMNS), times)}))
    inputs = inputs_of(BOUNDS, ["s"], "strict", None, None)
    return embedded(headrace.query(text, STREAMS, ticks_per_second=None).plan, inputs, pushed, {})


@pytest.fixture
def source(feed: Callable[[str, str], Feed]) -> Feed:
    return feed("s", "k STRING, v BIGINT, ts BIGINT")


def options(**more: Any) -> headrace.spark.SparkOptions:
    return headrace.spark.SparkOptions(bounds=BOUNDS, timer=None, **more)


def query(name: str) -> headrace.Query:
    return headrace.query(TEXTS[name], STREAMS, name=name, ticks_per_second=None)


def written(path: Path) -> Counter[Any]:
    """The rows of Parquet files, in any order, without the number of their micro-batch."""
    rows = pq.read_table(path).to_pylist()
    return Counter(tuple(v for name, v in row.items() if name != "batch") for row in rows)


def answers(text: str) -> Counter[Any]:
    """What one engine answers; the time of each row is its last column."""
    return Counter(in_one_engine(text).answers)


# --- one test for each feature ----------------------------------------------------------------------------

# Before 4.2, PySpark leaves the sockets of `collect` for the garbage collector to close.
LEFT_OPEN = "ignore:.*socket:pytest.PytestUnraisableExceptionWarning"
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings(LEFT_OPEN)]


@pytest.mark.versions
def test_session(spark: SparkSession, expecting: Expecting) -> None:
    with expecting("session"):
        assert headrace.spark.session(spark=spark) is spark
        assert headrace.spark.session() is spark
        assert headrace.spark.report(spark).set == ()
        files = spark.conf.get("spark.sql.streaming.checkpointFileManagerClass")
        assert files == features(spark.version).checkpoint_files
        assert str(spark.conf.get("spark.sql.streaming.stateStore.providerClass")).endswith(
            "RocksDBStateStoreProvider"
        )
        assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.mark.versions
def test_apply(spark: SparkSession, source: Feed, expecting: Expecting, tmp_path: Path) -> None:
    for rows in BATCHES:
        source.put(*rows)
    with expecting("apply"):
        out = headrace.spark.apply(query("windows"), {"s": source.read(spark)}, options(time_column="t"))
        run_to_parquet(out, tmp_path, "windows")
        assert written(tmp_path / "windows") == answers(TEXTS["windows"]) != Counter()


@pytest.mark.versions
def test_outputs(spark: SparkSession, source: Feed, expecting: Expecting, tmp_path: Path) -> None:
    """Results, late and rejected rows, each in its own files."""
    for rows in BATCHES:
        source.put(*rows)
    with expecting("outputs"):
        out = headrace.spark.outputs(query("latest"), {"s": source.read(spark)}, options(time_column="t"))
        paths = {name: str(tmp_path / name) for name in ("result", "late", "rejected")}
        played(lambda: out.start(checkpoint=str(tmp_path / "c"), trigger={"availableNow": True}, **paths))
        expected = in_one_engine(TEXTS["latest"])
        assert written(tmp_path / "result") == Counter(expected.answers) != Counter()
        assert written(tmp_path / "late") == Counter(expected.late) != Counter()
        assert written(tmp_path / "rejected") == Counter(expected.rejected) != Counter()


@pytest.mark.versions
def test_job(spark: SparkSession, source: Feed, expecting: Expecting, tmp_path: Path) -> None:
    """Two queries under one budget, stopped half way, made again and started on their checkpoint."""

    def job() -> headrace.spark.Job:
        made = headrace.spark.job(
            {"s": source.read(spark)}, options(memory=64_000_000), checkpoint=tmp_path / "c", name="both"
        )
        for name in TEXTS:
            made.add(name, query(name), sink=tmp_path / name, time_column="t")
        return made

    for rows in BATCHES[:2]:
        source.put(*rows)
    with expecting("job"):
        first = job()
        running = first.start()
        running.processAllAvailable()
        running.stop()
        assert set(first.changes.begun) == set(TEXTS)
        for rows in BATCHES[2:]:
            source.put(*rows)
        second = job()
        played(lambda: second.start(trigger={"availableNow": True}))
        assert set(second.changes.kept) == set(TEXTS)
        for name, text in TEXTS.items():
            assert written(tmp_path / name) == answers(text) != Counter(), name
        status = second.status()
        assert (status.state, status.budget) == ("stopped", 64_000_000)
        assert status.streams["s"].rows_in == sum(map(len, BATCHES))
        assert [each.cause.name for each in second.why().found][:1] == ["stopped"]
        if is_connect(spark):
            unsent = threading.Lock()
            third = job().add("third", query("latest"), sink=lambda rows, number: unsent.acquire())
            with pytest.raises(SparkError, match="HR-SP02"):
                third.start()


@pytest.mark.versions
def test_timer(
    spark: SparkSession, feed: Callable[[str, str], Feed], expecting: Expecting, tmp_path: Path
) -> None:
    """A stream falls silent, and the clock alone releases its windows. Its source ticks at any interval."""
    source = feed("s", "k STRING, ts TIMESTAMP")
    past = datetime.now(UTC) - timedelta(minutes=5)
    source.put({"k": "a", "ts": past.isoformat()}, {"k": "a", "ts": past.isoformat()})
    rows = source.read(spark)
    text = "SELECT k, count(*) AS n FROM s [RANGE 1 SECOND SLIDE 1 SECOND] GROUP BY k"
    asking = headrace.query(text, [headrace.spark.stream("s", rows, time="ts")])
    clock = headrace.spark.SparkOptions(bounds={"s": {"latency": "1 minute"}}, timer="500 milliseconds")
    with expecting("timer"):
        out = headrace.spark.apply(asking, {"s": rows}, clock)
        writer = out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
        running = writer.start(str(tmp_path / "out"))
        try:
            found = waited(lambda: committed(spark, tmp_path / "out"))
        finally:
            running.stop()
        assert [tuple(row)[:2] for row in found] == [("a", 2)]


def committed(spark: SparkSession, path: Path) -> list[Any]:
    """The rows that a file sink has committed so far."""
    return spark.read.parquet(str(path)).collect() if any(path.glob("_spark_metadata/[0-9]*")) else []


def waited(look: Callable[[], Any], seconds: float = 120) -> Any:
    """What `look` finds, as soon as it is something."""
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.2)
    return found


@pytest.mark.versions
def test_punctuate(
    spark: SparkSession, feed: Callable[[str, str], Feed], expecting: Expecting, tmp_path: Path
) -> None:
    """Spark's own windows are answered while the source is silent: only the timer's watermark moves."""
    from pyspark.sql import functions as F

    source, timer = feed("s", "ts TIMESTAMP, v INT"), feed("timer", "now TIMESTAMP")
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def at(second: int) -> str:
        return (start + timedelta(seconds=second)).isoformat()

    source.put({"ts": at(1), "v": 1}, {"ts": at(12), "v": 2})
    source.put({"ts": at(3), "v": 4})
    source.put()
    timer.put()
    timer.put({"now": at(13)})
    timer.put({"now": at(30)})
    with expecting("punctuate"):
        marked = headrace.spark.punctuate(
            source.read(spark), time="ts", bounds="10 seconds", timer=timer.read(spark)
        )
        sums = marked.groupBy(F.window("ts", "10 seconds")).agg(F.sum("v").alias("v"))
        out = sums.select(F.unix_timestamp("window.start").alias("start"), "v")
        run_to_parquet(out, tmp_path, "sums")
        first = int(start.timestamp())
        assert written(tmp_path / "sums") == Counter([(first, 5), (first + 10, 2)])


@pytest.mark.versions
def test_listener(spark: SparkSession, source: Feed, expecting: Expecting, tmp_path: Path) -> None:
    """Spark's own figures, and those of the engine."""
    for rows in BATCHES:
        source.put(*rows)
    listener, ended = headrace.spark.listener(each=lambda progress: None), list[Any]()
    # With Connect, PySpark 4.3 hangs if the last listener is removed while an event is on its way to it.
    listener.onQueryTerminated = ended.append  # type: ignore[method-assign]
    with expecting("listener"):
        spark.streams.addListener(listener)
        try:
            out = headrace.spark.apply(query("windows"), {"s": source.read(spark)}, options())
            writer = (
                out.writeStream.format("noop")
                .queryName("seen")
                .option("checkpointLocation", str(tmp_path / "c"))
            )
            assert writer.trigger(availableNow=True).start().awaitTermination(240)
            waited(lambda: ended)
        finally:
            spark.streams.removeListener(listener)
        history = listener.history("seen")
        assert sum(each.rows for each in history) == sum(map(len, BATCHES))
        expected = in_one_engine(TEXTS["windows"])
        assert sum(each.results for each in history) == len(expected.answers)
        assert sum(each.late for each in history) == len(expected.late)
        assert sum(each.rejected for each in history) == len(expected.rejected)
        assert history[-1].heartbeat == max(row["ts"] or 0 for rows in BATCHES for row in rows) - 3


@pytest.mark.versions
def test_zones(spark: SparkSession, expecting: Expecting, tmp_path: Path) -> None:
    """Instants and wall-clock times come out as they went in, on nights when clocks are changed."""
    (tmp_path / "in").mkdir()
    given = pa.Table.from_batches([zoned_rows(IN_ORDER, "UTC")]).select(["id", "ts", "ntz"])
    pq.write_table(given, tmp_path / "in" / "rows.parquet")
    stored = spark.read.parquet(str(tmp_path / "in"))
    rows = spark.readStream.schema(stored.schema).parquet(str(tmp_path / "in"))
    with expecting("zones"), in_zone(spark, "Europe/Berlin"):
        text = "SELECT id, ts, ntz FROM s [PARTITION BY id ROWS 1]"
        out = headrace.spark.apply(asked(text, rows), {"s": rows}, OPTIONS)
        assert [f.dataType.simpleString() for f in out.schema] == ["bigint", "timestamp", "timestamp_ntz"]
        results = headrace.spark.outputs(asked(text, rows), {"s": rows}, OPTIONS)
        sink, now = str(tmp_path / "sink"), {"availableNow": True}
        played(lambda: results.start(checkpoint=str(tmp_path / "c"), result=sink, trigger=now))
        last = given.num_rows - 1  # waits for what may come at its time
        for found in (run_to_parquet(out, tmp_path, "out"), pq.read_table(sink).drop_columns("batch")):
            assert found.schema.types == given.schema.types
            assert found.sort_by("id").to_pylist() == given.slice(0, last).to_pylist()


@pytest.mark.versions
def test_sources(
    spark: SparkSession, feed: Callable[[str, str], Feed], expecting: Expecting, tmp_path: Path
) -> None:
    """A second stream joins a job and its checkpoint; the first goes on where it was."""
    from headrace.runtimes.spark.driver.source_names import named_sources, reader

    streams = [headrace.StreamDef(n, COLUMNS, time_column="ts", ticks_per_second=None) for n in ("s", "a")]
    feeds = {name: feed(name, "k STRING, v BIGINT, ts BIGINT") for name in ("s", "a")}
    text = "SELECT k, count(*) AS n FROM s [RANGE 10 TICKS SLIDE 10 TICKS] GROUP BY k"

    def run(*names: str, rows: range) -> None:
        for name in names:
            feeds[name].put(*({"k": name, "v": i, "ts": i} for i in rows))
        with named_sources(spark):
            frames = {n: reader(spark, n).schema(feeds[n].schema).json(str(feeds[n].folder)) for n in names}
            bounds = headrace.spark.SparkOptions(
                bounds={name: DisorderPromise(0) for name in names}, timer=None
            )
            job = headrace.spark.job(frames, bounds, checkpoint=tmp_path / "c", name="named")
            for name in names:
                asking = headrace.query(
                    text.replace("FROM s", f"FROM {name}"), streams, ticks_per_second=None
                )
                job.add(name, asking, sink=tmp_path / name)
            running = job.start(trigger={"availableNow": True})
        assert running.awaitTermination(240)
        assert running.exception() is None

    with expecting("sources"):
        run("s", rows=range(15))
        run("s", "a", rows=range(15, 35))
        assert written(tmp_path / "s") == Counter({("s", 10): 3})
        assert written(tmp_path / "a") == Counter({("a", 5): 1, ("a", 10): 1})


@pytest.mark.versions
def test_lock(spark: SparkSession, expecting: Expecting, tmp_path: Path) -> None:
    """While one driver holds a checkpoint, another process cannot lock it; afterwards it can."""
    take = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"

    def taken() -> bool:
        file = str(tmp_path / "c" / "_headrace.lock")
        return (
            subprocess.run([sys.executable, "-c", take, file], capture_output=True, check=False).returncode
            != 0
        )

    with expecting("lock"):
        with headrace.spark.lock(tmp_path / "c", spark):
            assert taken()
            assert "process" in json.loads((tmp_path / "c" / "_headrace.lock").read_text())
        assert not taken()


PIPELINE = """
[pipeline]
name = "small"
[streams.s]
source = { path = "in.jsonl" }
schema = "k STRING, v BIGINT, ts BIGINT"
time = { column = "ts", unit = "s" }
bounds = { disorder = "3 s" }
[[queries]]
name = "sums"
sql = "SELECT k, sum(v) AS x FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
sink = "out.jsonl"
"""


@pytest.mark.versions
def test_pipeline(spark: SparkSession, expecting: Expecting, tmp_path: Path) -> None:
    from tests.spark.test_pipeline import bag, on_both

    here = tmp_path / "here"
    here.mkdir()
    (here / "in.jsonl").write_text("\n".join(json.dumps(row) for rows in BATCHES[:2] for row in rows))
    (here / "p.toml").write_text(PIPELINE)
    with expecting("pipeline"):
        there = on_both(here, here / "p.toml", spark)
        assert bag(there / "out.jsonl") == bag(here / "out.jsonl") != Counter()


# --- what needs no Spark ----------------------------------------------------------------------------------


def test_the_page_has_the_table_of_these_tests() -> None:
    """What was not run yet says so; everything else is as the tests expect it."""
    pairs = zip(page_table().splitlines(), table(EXPECTED).splitlines(), strict=True)
    for shown, expected in pairs:
        cells = zip(shown.strip("| ").split(" | "), expected.strip("| ").split(" | "), strict=True)
        assert all(cell in (wanted, NOT_RUN) for cell, wanted in cells), "make test-spark-versions writes it"


def test_there_is_one_test_for_each_feature() -> None:
    marked = {
        name.removeprefix("test_")
        for name, each in globals().items()
        if any(mark.name == "versions" for mark in getattr(each, "pytestmark", []))
    }
    assert marked == set(FEATURES)


def test_a_report_says_what_was_refused(tmp_path: Path) -> None:
    """Regression: `make test-spark-versions` failed in every test, because pytest warned of the report."""
    tests = tmp_path / "test_small.py"
    lines = [
        "def test_apply(record_property):",
        "    record_property('refused', 'HR-SP35')",
        "def test_job(): 1 / 0",
    ]
    tests.write_text("\n".join(lines))
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tests)]
    assert reported(command, os.environ) == {"apply": "refused, HR-SP35", "job": "FAILED"}


def test_versions_are_found_by_their_numbers() -> None:
    assert features("4.0.5") is VERSIONS[4, 0]
    assert features("4.3.0.dev1") is VERSIONS[4, 3]
    assert features("4.9.1") is features("5.0") is VERSIONS[4, 3]
    with pytest.raises(SparkError, match="HR-SP65") as old:
        features("3.5.9")
    assert "Spark 4.0 to 4.3" in str(old.value)
    assert (first_with("named_sources"), first_with("stateful_connect")) == ("4.2", "4.1")


def test_an_old_pyspark_is_refused_at_the_first_use() -> None:
    words = "import pyspark; pyspark.__version__ = '3.5.9'; import headrace; headrace.spark.apply"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert "HR-SP65" in done.stderr


class Server:
    """A session of Spark Connect, as far as the files beside a checkpoint need one."""

    version = "4.3.0"

    def __init__(self, sees: bool) -> None:
        self.session_id, self.read, self._sees = str(id(self)), self, sees

    def text(self, path: str) -> Server:
        from pyspark.errors import PySparkException

        if not self._sees:
            raise PySparkException("there is no such file")
        self._lines = Path(path.removeprefix("file://")).read_text().splitlines()
        return self

    def collect(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(value=line) for line in self._lines]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Any]:
    monkeypatch.setattr(Server, "__module__", "pyspark.sql.connect.session")
    return Server


def test_with_connect_files_beside_a_checkpoint_are_local_where_the_server_sees_them(
    server: Callable[[bool], Any], tmp_path: Path
) -> None:
    spark, checkpoint = server(True), str(tmp_path / "new" / "c")
    assert record.read(spark, checkpoint) is None
    held = lock.hold(spark, checkpoint)
    assert held is not None
    record.write(spark, checkpoint, record.Record(generation=3))
    held.release()
    found = record.read(spark, checkpoint)
    assert found is not None
    assert found.generation == 3
    assert {path.name for path in Path(checkpoint).iterdir()} == {record.NAME, lock.NAME}
    assert lock.local_directory(spark, f"file://{checkpoint}") == Path(checkpoint)


@pytest.mark.parametrize("scheme", ["", "hdfs://nowhere"])
def test_with_connect_a_job_is_refused_where_the_server_sees_other_files(
    server: Callable[[bool], Any], tmp_path: Path, scheme: str
) -> None:
    spark, checkpoint = server(False), f"{scheme}{tmp_path}/c"
    assert lock.hold(spark, checkpoint) is None
    for use in (
        lambda: record.read(spark, checkpoint),
        lambda: record.write(spark, checkpoint, record.Record()),
    ):
        with pytest.raises(SparkError, match="HR-SP02") as refused:
            use()
        assert refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_connect_without_stateful_operators_is_refused(server: Callable[[bool], Any]) -> None:
    """A server of 4.0; with an older client it is the same."""
    spark = server(True)
    check_stateful(spark)
    spark.version = "4.0.5"
    with pytest.raises(SparkError, match="HR-SP02") as refused:
        check_stateful(spark)
    assert "4.1 or later" in str(refused.value)


def test_what_users_are_promised_is_what_is_tested() -> None:
    """The classifiers of the package cannot name versions of Spark; its extra and the README do."""
    root = PAGE.parent.parent.parent
    assert '"pyspark>=4.0,<4.4"' in (root / "pyproject.toml").read_text()
    assert "PySpark 4.0 to 4.3" in (root / "README.md").read_text()
    assert "SPARK_VERSIONS := 4.0 4.1 4.2" in (root / "Makefile").read_text()
