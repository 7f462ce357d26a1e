"""The state of a job moves to another number of partitions, and its answers stay those of one run."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import HeadraceError
from headrace.runtimes.spark.driver.moving import fixed_shards, partitions_for
from headrace.runtimes.spark.driver.record import Record
from headrace.runtimes.spark.driver.topology import Placed
from headrace.runtimes.spark.worker.shards import _murmur3, _signed, shard_keys_for_any
from headrace.runtimes.spark.worker.state_store import HEADER, Layout, Store
from tests.spark.simulated import Cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.runtimes.spark.driver.job import Job

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 24])
def test_shards_are_divided_evenly_among_any_number_of_partitions(partitions: int) -> None:
    keys = shard_keys_for_any(16)
    more = shard_keys_for_any(16, keys)
    assert len({*keys, *more}) == 32
    assert shard_keys_for_any(16) == keys, "the same in every process"
    for some in (keys, more):
        held = Counter(_signed(_murmur3(key, 42)) % partitions for key in some)
        assert max(held.values()) - min(held.values()) <= 1
        assert len(held) == min(partitions, 16)


def test_there_are_no_more_partitions_than_shards() -> None:
    record = Record(partitions=2, shards=4, placed=(Placed(0, {"s": ("k",)}, (1, 2, 3, 4), ("q",)),))
    assert [partitions_for(record, n) for n in (1, 2, 4, 9)] == [1, 2, 4, 4]


def test_fewer_shards_are_fewer_partitions_and_more_have_no_state() -> None:
    record = Record(partitions=2, shards=4, placed=(Placed(0, {"s": ("k",)}, (1, 2, 3, 4), ("q",)),))
    assert [partitions_for(record, 4, n) for n in (1, 3, 4, 9)] == [1, 3, 4, 4]
    assert [fixed_shards(record, n) for n in (None, 1, 4)] == ["", "", ""]
    assert fixed_shards(None, 9) == ""
    assert "the state stays in 4 shards" in fixed_shards(record, 9)


def test_a_record_of_the_first_format_knows_its_shards() -> None:
    before = Record(
        partitions=5,
        placed=(Placed(0, {"s": ("k",)}, (1, 2, 3), ("q",)), Placed(0, None, (4,), ("r",))),
    )
    text = before.text().partition("\n")[2]
    plain = {k: v for k, v in json.loads(text).items() if k not in ("shards", "moving")} | {"format": 1}
    assert Record.of(_signed_text(plain), "record") == replace(before, shards=3)


def test_a_newer_format_is_refused() -> None:
    """Of the record, before anything runs; and of the state, if the record is older."""
    plain = json.loads(Record(partitions=2).text().partition("\n")[2]) | {"format": 9}
    with pytest.raises(HeadraceError, match="HR-SP21") as caught:
        Record.of(_signed_text(plain), "record")
    assert "has format 9, and this version of Headrace reads 1 and 2" in str(caught.value)
    cells = Cells()
    cells.updateValue(HEADER, ("", b"HR9" + bytes(8)))
    with pytest.raises(HeadraceError, match="HR-SP21") as caught:
        Store(cells, Layout()).head()
    assert "has format HR9, and this version of Headrace reads HR3" in str(caught.value)
    assert "continue with the version that wrote it" in str(caught.value)


def _signed_text(plain: dict[str, object]) -> str:
    import zlib

    body = json.dumps(plain)
    return f"{zlib.crc32(body.encode()):08x}\n{body}\n"


# --- on Spark ---------------------------------------------------------------------------------------------

SCHEMA = "k BIGINT, j BIGINT, v BIGINT, t BIGINT"
TEXTS = {
    "counted": "SELECT k, count(*) AS n, sum(v) AS v FROM s [RANGE 40 TICKS SLIDE 40 TICKS] GROUP BY k",
    "pairs": "SELECT a.k, a.v, b.v AS w FROM s [RANGE 30 TICKS] AS a, s [RANGE 20 TICKS] AS b "
    "WHERE a.k = b.k AND a.v < b.v",
    "all": "SELECT max(v) AS v FROM s [RANGE 50 TICKS SLIDE 50 TICKS]",
    "twice": "SELECT n, count(*) AS m FROM ISTREAM(SELECT k, count(*) AS n "
    "FROM s [RANGE 25 TICKS SLIDE 25 TICKS] GROUP BY k) [RANGE 100 TICKS SLIDE 100 TICKS] GROUP BY n",
}


def rows(part: int) -> str:
    """One of four parts of the input."""
    rng = random.Random(part)
    times = range(100 * part, 100 * part + 100, 3)
    made = (
        {"k": rng.randrange(12), "j": rng.randrange(5), "v": rng.randrange(50), "t": t - rng.randrange(4)}
        for t in times
    )
    return "".join(json.dumps(row) + "\n" for row in made)


def job(spark: SparkSession, root: Path, shards: int | None = 4) -> Job:
    from headrace.plan.nodes.core import TimeKind

    df = spark.readStream.schema(SCHEMA).json(str(root / "s"))
    stream = headrace.spark.stream("s", df, time="t", kind=TimeKind.EXTERNAL)
    stream = replace(stream, ticks_per_second=None)
    options = headrace.spark.SparkOptions(bounds={"s": {"disorder": 5}}, shards=shards, timer=None)
    made = headrace.spark.job({"s": df}, options, checkpoint=root / "checkpoint")
    for name, text in TEXTS.items():
        made.add(name, headrace.query(text, [stream], name=name), sink=root / name)
    return made


def run(spark: SparkSession, root: Path, *parts: int, partitions: int, shards: int | None = 4) -> Job:
    """Run over more parts of the input, in a session with so many partitions."""
    (root / "s").mkdir(parents=True, exist_ok=True)
    for part in parts:
        (root / "s" / f"{part}.json").write_text(rows(part))
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, partitions)
    try:
        made = job(spark, root, shards)
        made.start(trigger={"availableNow": True}).awaitTermination()
    finally:
        spark.conf.set(PARTITIONS, before)
    return made


def answers(spark: SparkSession, root: Path) -> dict[str, Counter[tuple[object, ...]]]:
    found = {name: spark.read.parquet(str(root / name)).drop("batch").collect() for name in TEXTS}
    return {name: Counter(map(tuple, each)) for name, each in found.items()}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_state_moves_to_more_and_to_fewer_partitions(spark: SparkSession, tmp_path: Path) -> None:
    """One level and two, with a key and without: all answers are those of one run."""
    run(spark, tmp_path / "once", 0, 1, 2, 3, partitions=2)
    here = tmp_path / "here"
    said = [run(spark, here, part, partitions=n).moved for part, n in enumerate((2, 4, 1, 9))]
    assert said == [
        "",
        "the state was moved from 2 partitions to 4",
        "the state was moved from 4 partitions to 1",
        "the state was moved from 1 partitions to 4",
    ]
    states = [path for path in (here / "checkpoint" / "state" / "0").iterdir() if path.name.isdecimal()]
    assert len(states) == 4
    assert answers(spark, here) == answers(spark, tmp_path / "once")
    assert all(answers(spark, here).values())


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_a_move_that_was_interrupted_is_completed(spark: SparkSession, tmp_path: Path) -> None:
    """The driver died after Spark had noted the move and before it was done, then the machine changed."""
    from headrace.runtimes.spark.driver.record import read, write

    run(spark, tmp_path / "once", 0, 1, partitions=2)
    here = tmp_path / "here"
    run(spark, here, 0, partitions=2)
    checkpoint = str(here / "checkpoint")
    record = read(spark, checkpoint)
    assert record is not None
    write(spark, checkpoint, replace(record, moving=4))
    spark._streamingCheckpointManager.repartition(checkpoint, 4)  # type: ignore[attr-defined]
    last = max((here / "checkpoint" / "commits").iterdir(), key=lambda path: int(path.name))
    last.unlink()  # as if it had not been done
    assert run(spark, here, 1, partitions=2).moved == "the state was moved from 4 partitions to 2"
    assert answers(spark, here) == answers(spark, tmp_path / "once")


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::headrace.errors.HeadraceWarning")
def test_another_number_of_shards_goes_on_with_the_state(spark: SparkSession, tmp_path: Path) -> None:
    """Fewer are fewer tasks; more have no state."""
    run(spark, tmp_path / "once", 0, 1, 2, partitions=2)
    here = tmp_path / "here"
    run(spark, here, 0, partitions=2)
    assert run(spark, here, 1, partitions=4, shards=1).moved == "the state was moved from 2 partitions to 1"
    moved, stays = run(spark, here, 2, partitions=4, shards=8).moved.split("; ", 1)
    assert moved == "the state was moved from 1 partitions to 4"
    assert stays.startswith("the state stays in 4 shards")
    assert answers(spark, here) == answers(spark, tmp_path / "once")
