"""Tables of a lake, and a past before a live source, on a real Spark: the rows of the embedded runtime."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from headrace.control import Reload, submit
from headrace.pipeline import load
from tests.connectors.test_lakes import Delta, Iceberg
from tests.spark.test_pipeline import bag, lines, on_both

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
PATIENCE = 1200

BOTH = """
[pipeline]
name = "lakes"
checkpoint = "state"
[streams.d]
source = {{ {delta} }}
schema = "k BIGINT, v BIGINT, at BIGINT"
time = {{ column = "at", unit = "s" }}
bounds = {{ disorder = "3 s" }}
[streams.i]
source = {{ {iceberg} }}
schema = "k BIGINT, v BIGINT, at BIGINT"
time = {{ column = "at", unit = "s" }}
bounds = {{ disorder = "1 minute" }}
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, sum(v) AS v FROM d [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
sink = "counts.jsonl"
rejected = "rejected.jsonl"
[[queries]]
name = "pairs"
sql = "SELECT d.k, d.v, i.v AS w FROM d [RANGE 5 SECONDS] AS d, i [RANGE 5 SECONDS] AS i WHERE d.k = i.k"
sink = "pairs.jsonl"
"""


def test_tables_have_the_same_rows_on_both_runtimes(spark: SparkSession, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    delta, iceberg = Delta(tmp_path / "delta"), Iceberg(tmp_path / "iceberg")
    for n in range(3):
        rows = [{"k": i % 4, "v": i, "at": 20 * n + i - i % 3} for i in range(20)]
        iceberg.append(pa.Table.from_pylist(rows))
        bad = [{**each, "k": str(each["k"]) if each["v"] else "none"} for each in rows]
        delta.append(pa.Table.from_pylist(bad))
    text = BOTH.format(delta=delta.key("answers"), iceberg=iceberg.key("answers"))
    (here / "p.toml").write_text(text)
    there = on_both(here, here / "p.toml", spark)
    for name in ("counts", "pairs"):
        assert bag(there / f"{name}.jsonl") == bag(here / f"{name}.jsonl") != Counter()
    rejected = [
        [json.loads(line)["reason"] for line in lines(root / "rejected.jsonl")] for root in (here, there)
    ]
    assert sorted(rejected[0]) == sorted(rejected[1]) != []


SEAM = """
[pipeline]
name = "seam"
checkpoint = "state"
[streams.s]
source = {{ history = {{ {past} }}, live = {{ path = "live" }}, until = 1970-01-12T13:47:10Z }}
schema = "k BIGINT, at BIGINT"
time = {{ column = "at", unit = "s" }}
bounds = {{ disorder = "6 s" }}
[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"
sink = "counts.jsonl"
late = "late.jsonl"
[[queries]]
name = "ids"
sql = "SELECT k, at FROM s"
sink = "ids.jsonl"
"""


@pytest.mark.parametrize("past", [pytest.param("files", marks=pytest.mark.slow), "delta"])
def test_a_past_and_then_a_live_source_are_one_stream(spark: SparkSession, tmp_path: Path, past: str) -> None:
    """Both have rows of the other side; the state of windows around the cut goes on."""
    here = tmp_path / "here"
    (here / "live").mkdir(parents=True)
    rows = [{"k": i % 3, "at": 1_000_000 + i - (i % 5)} for i in range(60)]
    lake = Delta(tmp_path / "lake")
    lake.append(pa.Table.from_pylist(rows[:40]))
    (here / "past.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows[:40]))
    (here / "live" / "1.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows[20:]))
    keys = {"files": 'path = "past.jsonl"', "delta": lake.key("answers")}
    (here / "p.toml").write_text(SEAM.format(past=keys[past]))
    there = on_both(here, here / "p.toml", spark)
    for name in ("counts", "ids"):
        assert bag(there / f"{name}.jsonl") == bag(here / f"{name}.jsonl")
    found = [json.loads(line) for line in lines(there / "ids.jsonl")]
    assert sorted(each["at"] for each in found) == sorted(each["at"] for each in rows)
    assert lines(there / "late.jsonl") == lines(here / "late.jsonl") == []
    assert {path.name for path in (there / "state/spark/history").iterdir()} == {"s.read"}


LOOKUP = """
[pipeline]
name = "lookup"
checkpoint = "state"
[streams.bids]
source = {{ {delta}, follow = true, poll = "0.1 s" }}
schema = "item BIGINT, at BIGINT"
time = {{ column = "at", unit = "tick" }}
[tables.items]
type = "sqlite"
database = "items.db"
query = "SELECT id, name FROM items"
schema = "id BIGINT, name STRING"
reload = true
[[queries]]
name = "named"
sql = "SELECT at, name FROM bids [NOW], items WHERE item = id"
sink = "named.jsonl"
"""


@pytest.mark.slow
def test_a_lookup_table_is_reloaded_while_a_table_of_a_lake_is_followed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The reload counts from tick 7 on, whenever the rows before it come."""
    from headrace.runtimes.spark.driver.pipeline import Runner

    lake = Delta(tmp_path / "lake")
    (tmp_path / "p.toml").write_text(LOOKUP.format(delta=lake.key("answers")))
    named(tmp_path, "old")
    bids(lake, range(4))
    done = threading.Semaphore(0)
    runner = Runner(load(tmp_path / "p.toml"), spark)
    thread = threading.Thread(target=runner.run, kwargs={"on_progress": lambda _: done.release()})
    thread.start()
    try:
        wait_for(done, lambda: answered(tmp_path) == 3)
        named(tmp_path, "new")
        submit(load(tmp_path / "p.toml"), Reload("items", 7))
        for _ in range(3):  # a micro-batch that began after the command has read it
            assert done.acquire(timeout=PATIENCE)
        bids(lake, range(4, 8))
        bids(lake, range(8, 12))
        wait_for(done, lambda: answered(tmp_path) == 11)
    finally:
        runner.stop()
        thread.join(120)
    found = [json.loads(line) for line in lines(tmp_path / "named.jsonl")]
    assert [(each["at"], each["name"]) for each in found] == [
        (at, "old" if at < 7 else "new") for at in range(11)
    ]


def bids(lake: Delta, ticks: range) -> None:
    lake.append(pa.Table.from_pylist([{"item": 1, "at": at} for at in ticks]))


def answered(root: Path) -> int:
    out = root / "named.jsonl"
    return len(lines(out)) if out.exists() else 0


def named(root: Path, name: str) -> None:
    """The item has a name in the database."""
    with sqlite3.connect(root / "items.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS items (id INTEGER PRIMARY KEY, name TEXT)")
        database.execute("INSERT OR REPLACE INTO items VALUES (1, ?)", (name,))
    database.close()


def wait_for(done: threading.Semaphore, holds: Callable[[], bool]) -> None:
    """Look after each micro-batch."""
    while not holds():
        assert done.acquire(timeout=PATIENCE), f"no micro-batch in {PATIENCE} s"
