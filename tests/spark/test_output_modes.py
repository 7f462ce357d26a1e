"""Output modes of a job: `update` is what a micro-batch has changed by key, `complete` the table after it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headrace
from headrace.errors import SparkError
from headrace.time.ets import DisorderPromise
from tests.spark.conftest import Feed, played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = tuple[Any, ...]
Batches = dict[int, list[Row]]
STREAM = "CREATE STREAM c (k BIGINT, name STRING, v BIGINT, gone BOOLEAN, t BIGINT) TIME t; "
TABLE = STREAM + "CREATE TABLE t PRIMARY KEY (k, name) FROM c DELETE WHEN gone; "
LOG = TABLE + "CHANGELOG(SELECT name, k, v FROM t WHERE v <> 3) PRIMARY KEY (k, name)"
COUNTS = TABLE + "SELECT name, count(*) AS n FROM t GROUP BY name"


# ------------------------------------------------------------------------------------------- what is refused

REFUSED = {
    "replace": (LOG, "one of append, update, complete"),
    "update": (COUNTS, "PRIMARY KEY (name)"),
    "complete": (f"{TABLE} CHANGELOG(SELECT k FROM t)", "PRIMARY KEY (…)"),
}


@pytest.mark.parametrize("mode", REFUSED)
def test_a_mode_that_a_query_cannot_have_is_refused(mode: str) -> None:
    pytest.importorskip("pyspark", reason="the spark extra is not installed")
    text, hint = REFUSED[mode]
    job = headrace.spark.Job({}, headrace.spark.SparkOptions(), "checkpoint")
    with pytest.raises(SparkError, match="HR-SP66") as error:
        job.add("q", headrace.query(text, ticks_per_second=None), sink="out", output_mode=mode)
    assert hint in str(error.value)
    with pytest.raises(SparkError, match="no sink"):
        job.add("q", headrace.query(LOG, ticks_per_second=None), late="late", output_mode="update")
    assert not job.queries


# ------------------------------------------------------------------------------------------------- on Spark


def log_of(rng: random.Random, table: dict[Row, Row], changes: int) -> list[Row]:
    """Random changes (op, name, k, v) of a table of few keys, some of them null."""
    now, log = dict(table), list[Row]()
    for _ in range(changes):
        key = (rng.choice("ab"), rng.choice((0, 1, None)))
        if key in now and rng.random() < 0.4:
            log.append(("-D", *now.pop(key)))
            continue
        op = "+U" if key in now else "+I"
        now[key] = (*key, rng.randrange(5))
        log.append((op, *now[key]))
    return log


def applied(table: dict[Row, Row], log: list[Row]) -> dict[Row, Row]:
    """The table after these changes: rows (name, k, v) by their key."""
    made = dict(table)
    for op, *row in log:
        made.pop(tuple(row[:2]), None)
        made |= {} if op == "-D" else {tuple(row[:2]): tuple(row)}
    return made


def net(before: dict[Row, Row], after: dict[Row, Row], log: list[Row]) -> Counter[Row]:
    """The change of each key of `log`; what has gone is shown by its key alone."""
    found = Counter[Row]()
    for key in {tuple(row[1:3]) for row in log}:
        if key in after:
            found[("+U" if key in before else "+I", *after[key])] += 1
        elif key in before:
            found[("-D", *key)] += 1
    return found


def shown(rows: list[Row]) -> Counter[Row]:
    return Counter(row[:3] if row[0] == "-D" else row for row in rows)


def test_updates_and_the_whole_table_are_those_of_the_changes(spark: SparkSession, tmp_path: Path) -> None:
    """Also of a micro-batch that runs again; a table goes on, or begins empty, with its query."""
    from headrace.runtimes.spark.driver.output_modes import in_mode, settle

    got: dict[str, Batches] = {"update": {}, "complete": {}}

    def keeping(mode: str) -> Any:
        return lambda rows, batch: got[mode].update({batch: [tuple(row) for row in rows.collect()]})

    asked = headrace.query(LOG, ticks_per_second=None)
    sinks = {mode: in_mode(mode, keeping(mode), asked, "a/b", str(tmp_path)) for mode in got}
    settle(spark, str(tmp_path), sinks, kept=())
    rng, table = random.Random(5), dict[Row, Row]()
    for batch in (0, 1, 4, 5, 5):
        log = log_of(rng, table, 0 if batch == 0 else 12)
        after = applied(table, log)
        rows = spark.createDataFrame(log, "op STRING, name STRING, k BIGINT, v BIGINT").coalesce(1)
        for mode, sink in sinks.items():
            assert sink is not None
            sink(rows, batch)
            assert len(got[mode][batch]) <= max(len(log), len(after)), (mode, batch)
        assert shown(got["update"][batch]) == net(table, after, log)
        assert Counter(got["complete"][batch]) == Counter(after.values())
        table = after if batch < 5 else table  # the next one begins where this one began
    assert sum(len(rows) for rows in got["complete"].values()) > 4
    home = tmp_path / "_headrace.tables"
    assert sorted(each.name for each in home.rglob("batch=*")) == ["batch=4", "batch=5"]

    settle(spark, str(tmp_path), {"a/b": sinks["complete"]}, kept=("a/b",))  # so its table is kept
    assert len(list(home.rglob("batch=*"))) == 2
    settle(spark, str(tmp_path), {"a/b": sinks["update"]}, kept=("a/b",))
    assert not list(home.iterdir())
    with pytest.raises(SparkError, match="HR-SP66"):
        settle(spark, str(tmp_path), {"a/b": sinks["complete"]}, kept=("a/b",))


def test_a_job_has_output_modes(spark: SparkSession, feed: Callable[..., Feed], tmp_path: Path) -> None:
    source = feed("c", "k BIGINT, name STRING, v BIGINT, gone BOOLEAN, t BIGINT")
    got: dict[str, Batches] = {}

    def keeping(name: str) -> Any:
        kept = got.setdefault(name, {})
        return lambda rows, batch: kept.update({batch: [tuple(row) for row in rows.collect()]})

    options = headrace.spark.SparkOptions(bounds={"c": DisorderPromise(0)}, timer=None)
    job = headrace.spark.job({"c": source.read(spark)}, options, checkpoint=tmp_path / "checkpoint")
    for name, mode in (("log", "append"), ("changed", "update"), ("table", "complete")):
        job.add(name, headrace.query(LOG, ticks_per_second=None), sink=keeping(name), output_mode=mode)
    for first in (0, 20):
        rng = random.Random(first)
        source.put(
            *(
                {"k": t % 3, "name": "ab"[t % 2], "v": rng.randrange(5), "gone": rng.random() < 0.3, "t": t}
                for t in range(first, first + 20)
            )
        )
    assert played(lambda: job.start(trigger={"availableNow": True})).exception() is None
    table: dict[Row, Row] = {}
    for batch, log in sorted(got["log"].items()):
        after = applied(table, log)
        assert shown(got["changed"][batch]) == net(table, after, log)
        assert Counter(got["table"][batch]) == Counter(after.values())
        table = after
    assert len(got["log"]) == 2
    assert len(table) > 1
