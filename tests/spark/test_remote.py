"""Objects of a store as input and output of a job: each row once, and the rows of the embedded runtime."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.pipeline import load
from tests.connectors.test_remote import READ, STORAGE, Store
from tests.servers.s3 import KEY, SECRET, s3
from tests.spark.test_pipeline import bag, lines, on_both

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

FILE = """
[pipeline]
name = "remote"
checkpoint = "state"
[streams.s]
source = {{ path = "in", format = "json" }}
schema = "id BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
[[queries]]
name = "all"
sql = "SELECT id FROM s WHERE id % 3 <> 0"
sink = {{ path = "s3://{bucket}/out", format = "parquet", {storage} }}
"""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A bucket of its own for each test: servers in one process share their content."""
    monkeypatch.setenv("TEST_KEY", KEY)
    monkeypatch.setenv("TEST_SECRET", SECRET)
    pytest.importorskip("moto.server", reason="moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    with s3() as options:
        yield Store(options, request.node.name.replace("_", "-")[:60])


def test_a_job_writes_objects_once(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    from headrace.runtimes.embedded.factory import target_of
    from headrace.runtimes.spark.driver.pipeline import Runner
    from headrace.runtimes.spark.driver.sinks import Run, Targets

    (tmp_path / "in").mkdir()
    rows = "".join(json.dumps({"id": i, "at": i}) + "\n" for i in range(30))
    (tmp_path / "in/1.jsonl").write_text(rows)
    text = FILE.format(bucket=store.bucket, storage=STORAGE.format(**store.options))
    (tmp_path / "p.toml").write_text(text)
    pipeline = load(tmp_path / "p.toml")
    assert Runner(pipeline, spark).run().state == "finished"
    expected = [i for i in range(30) if i % 3]
    assert written(store) == expected

    run = Run(tmp_path / "state/spark/outputs/all.sink")
    sink = pipeline.queries[0].spec.sink
    again = Targets(target_of(pipeline, sink, "queries.all.sink"), pa.schema([("id", pa.int64())]), run)
    again(spark.createDataFrame([(99,)], "id long"), 0)
    assert written(store) == expected
    assert Runner(load(tmp_path / "p.toml"), spark).run().queries["all"].answers == 0
    assert written(store) == expected
    for path in (tmp_path / "state").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def written(store: Store) -> list[int]:
    """The rows of all objects."""
    parts = store.content("out").values()
    return sorted(i for part in parts for i in READ["parquet"](part).column("id").to_pylist())


READING = """
[pipeline]
name = "remote"
checkpoint = "state"
[streams.s]
source = {{ path = "s3://{bucket}/in/**/*.jsonl", follow = {follow}, poll = "0.1 s", {storage} }}
schema = "id BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
bounds = {{ disorder = 100 }}
[[queries]]
name = "all"
ordered = false
sql = "SELECT id FROM s WHERE id % 3 <> 0"
sink = "all.jsonl"
rejected = "rejected.jsonl"
"""
PATIENCE = 300


def test_objects_have_the_same_rows_on_both_runtimes(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    for i, key in enumerate(("a", "deep/b", "deep/er/c", "_hidden")):
        store.rows(f"in/{key}.jsonl", range(10 * i, 10 * i + 10))
    store.put("in/d.jsonl", b'{"id": 30, "at": "x"}\n{"id": 31, "at": 31}\n')
    here = tmp_path / "here"
    here.mkdir()
    text = READING.format(bucket=store.bucket, follow="false", storage=STORAGE.format(**store.options))
    (here / "p.toml").write_text(text)
    there = on_both(here, here / "p.toml", spark)
    assert bag(there / "all.jsonl") == bag(here / "all.jsonl")
    expected = [i for i in range(30) if i % 3] + [31]
    assert sorted(json.loads(line)["id"] for line in lines(here / "all.jsonl")) == expected
    rejected = [
        Counter(json.loads(line)["reason"] for line in lines(root / "rejected.jsonl"))
        for root in (here, there)
    ]
    assert rejected[0] == rejected[1] != Counter()
    for path in (there / "state").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


def test_a_job_follows_a_store_and_continues(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    from headrace.runtimes.spark.driver.pipeline import Runner

    text = READING.format(bucket=store.bucket, follow="true", storage=STORAGE.format(**store.options))
    (tmp_path / "p.toml").write_text(text)
    for start in range(2):
        runner = Runner(load(tmp_path / "p.toml"), spark)
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            for i in range(2 * start, 2 * start + 2):
                store.rows(f"in/{i}.jsonl", range(10 * i, 10 * i + 10))
                wait_for(tmp_path, [n for n in range(10 * i + 10) if n % 3], thread)
        finally:
            runner.stop()
            thread.join(PATIENCE)


def wait_for(root: Path, ids: list[int], thread: threading.Thread) -> None:
    """Until these are all the answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        written = lines(root / "all.jsonl") if (root / "all.jsonl").exists() else []
        found = [json.loads(line)["id"] for line in written if line.endswith("}")]
        if sorted(found) == ids:
            return
        assert thread.is_alive()
        assert time.monotonic() < deadline, found
        time.sleep(0.1)
