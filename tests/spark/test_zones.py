"""Instants in = instants out in every time zone of the session; no kind of timestamp becomes the other.

Spark hands instants to Python with the session's zone in their type. The first part makes such rows without
Spark; the second asks Spark itself, on nights when clocks are changed.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import headrace
from headrace.errors import HeadraceWarning
from headrace.runtimes.spark.driver.bounds import inputs_of
from headrace.runtimes.spark.types import of_the_kind, spark_schema
from headrace.runtimes.spark.worker.packing import to_ipc
from tests.spark.conftest import played
from tests.spark.simulated import Cluster, embedded, on_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO = dt.timedelta(microseconds=1)
HOUR = 3_600_000_000


def columns(zone: str) -> pa.Schema:
    """Both kinds of timestamp, also nested; an instant's type names a zone, as Spark has it."""
    instant, wall = pa.timestamp("us", zone), pa.timestamp("us")
    return pa.schema(
        [
            ("id", pa.int64()),
            ("ts", instant),
            ("ntz", wall),
            ("st", pa.struct([("ts", instant), ("deep", pa.struct([("ntz", wall), ("n", pa.int32())]))])),
            ("arr", pa.list_(instant)),
            ("m", pa.map_(pa.string(), wall)),
        ]
    )


@cache
def changes(zone: str) -> tuple[int, ...]:
    """The instants at which clocks were changed, 2010 to 2030; to the hour."""
    begin = (dt.datetime(2010, 1, 1, tzinfo=dt.UTC) - EPOCH) // MICRO // HOUR
    found, step, local = [], 24 * 7, ZoneInfo(zone)

    def offset(hour: int) -> dt.timedelta | None:
        return (EPOCH + dt.timedelta(hours=hour)).astimezone(local).utcoffset()

    for week in range(52 * 20):
        low, high = begin + week * step, begin + (week + 1) * step
        if offset(low) != offset(high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
            found.append(high * HOUR)
    return tuple(found)


@st.composite
def instants(draw: st.DrawFn, zone: str) -> int:
    """Any, but mostly within hours of a change of the clocks."""
    around = draw(st.sampled_from(changes(zone) or (0,)))
    return around + draw(st.integers(-3 * HOUR, 3 * HOUR))


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]], int]:
    """A zone, (time, wall clock) of rows in a little disorder, and a seed."""
    zone = draw(st.sampled_from(ZONES) | st.timezone_keys(allow_prefix=False))
    rows = draw(st.lists(st.tuples(instants(zone), instants(zone)), min_size=1, max_size=8))
    return zone, sorted(rows), draw(st.integers(0, 2**32))


HOURLY = "FROM s [RANGE 1 HOUR SLIDE 1 HOUR]"
TEXTS = {
    "rows": "SELECT id, ts, ntz FROM s",
    "nested": "SELECT * FROM s",
    "window": "SELECT ts, st, arr, m FROM s [ROWS 2]",
    "extremes": f"""SELECT min(ts) AS a, max(ts) AS b, first(ntz) AS c, last(ntz) AS d, min(ntz) AS e,
                           last(st) AS f {HOURLY}""",
    "grouped": f"SELECT ts, ntz, count(*) AS n {HOURLY} GROUP BY ts, ntz",
    "two stages": """SELECT n, max(ts) AS ts, max(ntz) AS ntz FROM
                     (SELECT id, max(ts) AS ts, min(ntz) AS ntz, count(*) AS n FROM s [RANGE 1 HOUR]
                      GROUP BY id) GROUP BY n""",
    "fields": """SELECT hour(ts) AS h, hour(ntz) AS w, date_format(ts, 'yyyy-MM-dd HH:mm') AS f,
                        cast(ts AS DATE) AS d, cast(ts AS TIMESTAMP_NTZ) AS x, cast(ntz AS TIMESTAMP) AS y,
                        date_trunc('day', ts) AS z FROM s [ROWS 1]""",
    "compared": """SELECT id, unix_micros(ts) AS u FROM s [ROWS 1]
                   WHERE ts >= TIMESTAMP '2011-12-30 10:00:00'
                   AND ntz <> TIMESTAMP_NTZ '2012-01-01 00:00:00'""",
}


def table(rows: list[tuple[int, int]], zone: str) -> pa.RecordBatch:
    made = [
        {
            "id": i,
            "ts": t,
            "ntz": w,
            "st": {"ts": t, "deep": {"ntz": w, "n": i}},
            "arr": [t, None],
            "m": {"k": w},
        }
        for i, (t, w) in enumerate(rows)
    ]
    made.append({**dict.fromkeys(made[0]), "id": len(rows), "ts": rows[-1][0] + HOUR})
    as_numbers = [{**row, "m": list((row["m"] or {}).items())} for row in made]
    return pa.RecordBatch.from_pylist(as_numbers, columns(zone))


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@given(given_rows=arrivals(), partitions=st.integers(1, 3))
def test_the_zone_of_a_session_changes_nothing(
    text: str, given_rows: tuple[str, list[tuple[int, int]], int], partitions: int
) -> None:
    """Law: answers, late and rejected rows are those of one engine that never heard of a zone but UTC."""
    zone, rows, seed = given_rows
    stream = headrace.StreamDef("s", columns("UTC"), time_column="ts")
    plan = headrace.query(text, [stream]).plan
    inputs = inputs_of({"s": {"disorder": "1 second"}}, ["s"], "strict", None, 1_000_000)
    ours, theirs = table(rows, "UTC"), table(rows, zone)
    times = np.array([row["ts"] for row in ours.cast(_as_ticks(ours.schema)).to_pylist()], dtype=object)
    order = random.Random(seed).sample(range(len(times)), len(times))
    cuts = [order[: len(order) // 2], order[len(order) // 2 :]]

    def batches(of: pa.RecordBatch) -> list[Any]:
        parts = [(i, of.take(pa.array(cut, pa.int64())), times[cut]) for i, cut in enumerate(cuts, 1) if cut]
        return [(i, {"s": (part, when)}) for i, part, when in parts]

    cluster = Cluster(random.Random(seed))
    with warnings_off():
        found = on_spark(plan, inputs, batches(theirs), {}, partitions, cluster, ends=True)
    assert found.sorted() == embedded(plan, inputs, batches(ours), {}, ends=True).sorted()


@contextmanager
def warnings_off() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HeadraceWarning)
        yield


def _as_ticks(schema: pa.Schema) -> pa.Schema:
    return schema.set(1, pa.field("ts", pa.int64()))


# --- which kind a column is -------------------------------------------------------------------------------

STAMPS = st.sampled_from([pa.timestamp("us"), pa.timestamp("us", "UTC")])


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return (
        inner.map(pa.list_)
        | st.builds(pa.map_, st.just(pa.string()) | STAMPS, inner)
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([(f"f{i}", of) for i, of in enumerate(types)])
        )
    )


TYPES = st.recursive(STAMPS | st.sampled_from([pa.int32(), pa.string(), pa.date32()]), nested, max_leaves=5)


def without_zones(of: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(of):
        return pa.timestamp("us")
    if pa.types.is_struct(of):
        return pa.struct([f.with_type(without_zones(f.type)) for f in of])
    if pa.types.is_map(of):
        return pa.map_(without_zones(of.key_type), without_zones(of.item_type))
    return pa.list_(without_zones(of.value_type)) if pa.types.is_list(of) else of


@given(TYPES)
def test_a_schema_written_without_zones_gets_those_of_the_dataframe(of: pa.DataType) -> None:
    assert of_the_kind(without_zones(of), of) == of
    assert of_the_kind(of, without_zones(of)) == without_zones(of)


@given(TYPES, TYPES)
def test_only_the_kind_of_timestamps_is_taken(declared: pa.DataType, given: pa.DataType) -> None:
    found = of_the_kind(declared, given)
    assert without_zones(found) == without_zones(declared)
    assert of_the_kind(found, given) == found


# --- Spark itself -----------------------------------------------------------------------------------------

NIGHTS = (
    "2026-03-29T00:30", "2026-03-29T01:30",  # Berlin: 02:00 to 03:00 is left out
    "2026-10-25T00:30", "2026-10-25T01:30",  # Berlin: both are 02:30
    "2026-11-01T04:00", "2026-11-01T05:00",  # St. John's: both are 01:30
    "2011-12-30T09:30", "2011-12-30T10:30",  # Apia: the 30th was left out
    "1969-12-31T23:59", "1700-01-01T00:00",  # before all zones, and before the epoch
)  # fmt: skip


def micros(text: str) -> int:
    return (dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC) - EPOCH) // MICRO


ROWS = [(micros(night), micros(night[:-1] + "7")) for night in NIGHTS]
IN_ORDER = sorted(ROWS)


ZONE = "spark.sql.session.timeZone"
STORED = "spark.sql.parquet.outputTimestampType"


@contextmanager
def in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    """A session whose user has chosen a zone. Nothing that is done in it may choose another."""
    before = {name: str(spark.conf.get(name)) for name in (ZONE, STORED)}
    spark.conf.set(ZONE, zone)
    spark.conf.set(STORED, "TIMESTAMP_MICROS")  # so that a file tells an instant from a wall clock
    try:
        yield
        assert spark.conf.get(ZONE) == zone
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> DataFrame:
    """The rows in a file, and one that is null but for its time."""
    rows = table(IN_ORDER, "UTC")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_batches([rows]), tmp_path / "in" / "rows.parquet")
    stored = spark.read.parquet(str(tmp_path / "in"))
    return spark.readStream.schema(stored.schema).parquet(str(tmp_path / "in"))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
def test_rows_that_the_driver_takes_are_the_same_in_every_zone(spark: SparkSession, zone: str) -> None:
    from headrace.runtimes.spark.driver.unpack import Unpack, local_rows

    batch = table(IN_ORDER, "UTC")
    with in_zone(spark, zone):
        made = local_rows(spark, Unpack(batch.schema), [(1, to_ipc(batch.slice(5))), (0, to_ipc(batch[:5]))])
        whole = pa.Table.from_batches([batch.slice(5), batch[:5]])
        assert made.schema == local_rows(spark, Unpack(batch.schema), []).schema
        assert [(f.name, f.dataType.simpleString()) for f in made.schema] == [
            (f.name, f.dataType.simpleString()) for f in spark_schema(batch.schema)
        ]
        assert made.toArrow().cast(whole.schema).equals(whole)
        assert made.rdd.getNumPartitions() == 1


def asked(text: str, rows: DataFrame, **more: Any) -> headrace.Query:
    return headrace.query(text, [headrace.spark.stream("s", rows, time="ts")], **more)


def ran(out: DataFrame, home: Path, name: str) -> pa.Table:
    """What a streaming DataFrame gives, as Parquet holds it: instants in UTC."""

    def start() -> Any:
        writer = out.writeStream.format("parquet").option("checkpointLocation", str(home / f"{name}.c"))
        return writer.trigger(availableNow=True).start(str(home / name))

    played(start)
    return pq.read_table(home / name)


OPTIONS = headrace.spark.SparkOptions(bounds={"s": {"disorder": "1 second"}}, timer=None)
EXTREMES = """SELECT id, max(ts) AS ts, min(ntz) AS ntz, first(ts) AS a, last(ntz) AS b,
                     timestamp_micros(window_end) AS e
              FROM s [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY id"""


@pytest.mark.parametrize("zone", ZONES)
def test_instants_in_are_instants_out(
    spark: SparkSession, source: DataFrame, tmp_path: Path, zone: str
) -> None:
    """Regression: in Berlin, instants came out 1 or 2 h off, and two of a night as one."""
    with in_zone(spark, zone):
        nested_rows = headrace.spark.apply(asked("SELECT * FROM s", source), {"s": source}, OPTIONS)
        flat_rows = headrace.spark.apply(
            asked("SELECT id, ts, ntz FROM s [PARTITION BY id ROWS 1]", source), {"s": source}, OPTIONS
        )
        minutes = headrace.spark.apply(asked(EXTREMES, source), {"s": source}, OPTIONS)
        assert nested_rows.schema.simpleString() == source.schema.simpleString()
        assert [f.dataType.simpleString() for f in minutes.schema] == [
            "bigint", "timestamp", "timestamp_ntz", "timestamp", "timestamp_ntz", "timestamp",
        ]  # fmt: skip
        whole = ran(nested_rows, tmp_path, "nested")
        flat = ran(flat_rows, tmp_path, "flat")
        windows = ran(minutes, tmp_path, "windows")
    given = pa.Table.from_batches([table(IN_ORDER, "UTC")])
    assert _sorted(whole) == _sorted(given)[:-1]  # the last row waits for what may come at its time
    assert _sorted(flat) == _sorted(given.select(["id", "ts", "ntz"]))[:-1]
    expected = {i: (t, w) for i, (t, w) in enumerate(IN_ORDER)}
    assert windows.num_rows == len(ROWS)
    for row in windows.cast(_numbers(windows.schema)).to_pylist():
        time, wall = expected[row["id"]]
        end = time // 60_000_000 * 60_000_000 + 60_000_000
        assert (row["ts"], row["ntz"], row["a"], row["b"], row["e"]) == (time, wall, time, wall, end)


def _sorted(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


def _numbers(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(f.name, pa.int64()) for f in schema])


def test_late_and_rejected_rows_tell_their_instants(spark: SparkSession, tmp_path: Path) -> None:
    rows = [("2026-10-25T00:30", 1), ("2026-10-25T02:30", 2), ("2026-10-25T01:30", 3), (None, 4)]
    (tmp_path / "in").mkdir()
    for i, (time, k) in enumerate(rows):
        instant = None if time is None else micros(time)
        batch = pa.RecordBatch.from_pylist(
            [{"k": k, "ts": instant, "ntz": instant}],
            pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us"))]),
        )
        path = tmp_path / "in" / f"{i}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), path)
        os.utime(path, (i + 1, i + 1))  # Spark reads files in the order of their times
    with in_zone(spark, "Europe/Berlin"):
        reader = spark.readStream.schema("k BIGINT, ts TIMESTAMP, ntz TIMESTAMP_NTZ")
        source = reader.option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
        query = asked("SELECT k, ts, ntz FROM s", source, name="late_in_berlin")
        made = headrace.spark.outputs(query, {"s": source}, OPTIONS)
        places = {kind: str(tmp_path / kind) for kind in ("result", "late", "rejected")}
        played(lambda: made.start(checkpoint=str(tmp_path / "c"), trigger={"availableNow": True}, **places))
    result = pq.read_table(tmp_path / "result").select(["k", "ts", "ntz"])
    assert [(f.name, f.type) for f in result.schema][1:] == [
        ("ts", pa.timestamp("us", "UTC")),
        ("ntz", pa.timestamp("us")),
    ]
    instants = sorted(row["ts"].isoformat() for row in result.to_pylist())
    assert instants[0] == "2026-10-25T00:30:00+00:00"
    (late,) = pq.read_table(tmp_path / "late").to_pylist()
    (rejected,) = pq.read_table(tmp_path / "rejected").to_pylist()
    row = json.loads(late["row"])
    assert late["time"] == micros("2026-10-25T01:30")
    assert dt.datetime.fromisoformat(row["ts"]) == EPOCH + micros("2026-10-25T01:30") * MICRO
    assert dt.datetime.fromisoformat(row["ntz"]) == dt.datetime(2026, 10, 25, 1, 30)
    assert json.loads(rejected["row"]) == {"k": 4, "ts": None, "ntz": None}


def test_a_schema_without_zones_and_a_table_keep_their_instants(
    spark: SparkSession, source: DataFrame, tmp_path: Path
) -> None:
    """What was declared by hand as `pa.timestamp("us")` is what the DataFrame has: here an instant."""
    plain = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us")), ("ntz", pa.timestamp("us"))])
    stream = headrace.StreamDef("s", plain, time_column="ts")
    since = headrace.TableDef("since", pa.schema([("id", pa.int64()), ("since", pa.timestamp("us"))]))
    text = "SELECT s.id, s.ts, s.ntz, t.since FROM s [NOW] AS s JOIN since AS t ON s.id = t.id"
    with in_zone(spark, "Europe/Berlin"):
        rows = source.select("id", "ts", "ntz")
        known = spark.createDataFrame(rows_of(spark, tmp_path), "id BIGINT, since TIMESTAMP")
        out = headrace.spark.apply(
            headrace.query(text, [stream, since]), {"s": rows, "since": known}, OPTIONS
        )
        kinds = [field.dataType.simpleString() for field in out.schema]
        found = ran(out, tmp_path, "joined")
    assert kinds == ["bigint", "timestamp", "timestamp_ntz", "timestamp"]
    assert found.num_rows == len(ROWS)
    for row in found.cast(_numbers(found.schema)).to_pylist():
        assert (row["ts"], row["ntz"], row["since"]) == (*IN_ORDER[row["id"]], IN_ORDER[row["id"]][0])


def rows_of(spark: SparkSession, tmp_path: Path) -> list[tuple[int, dt.datetime]]:
    return [(i, EPOCH + time * MICRO) for i, (time, _) in enumerate(IN_ORDER)]


@pytest.mark.parametrize("native", [True, False])
def test_fields_are_those_in_utc_in_every_session(
    spark: SparkSession, source: DataFrame, tmp_path: Path, native: bool
) -> None:
    """One rule for both runtimes, and for what Spark computes itself: an hour is that in UTC."""
    text = """SELECT id, hour(ts) AS h, hour(ntz) AS w, date_format(ts, 'HH:mm') AS f, cast(ts AS DATE) AS d
              FROM s WHERE ts > TIMESTAMP '2026-01-01 00:00:00'"""
    with in_zone(spark, "Europe/Berlin"):
        out = headrace.spark.apply(asked(text, source), {"s": source}, replace(OPTIONS, native=native))
        found = ran(out, tmp_path, "fields").to_pylist()
    assert len(found) == 6
    for row in found:
        time, wall = (EPOCH + ticks * MICRO for ticks in IN_ORDER[row["id"]])
        assert (row["h"], row["w"], row["f"], row["d"]) == (
            time.hour, wall.hour, f"{time:%H:%M}", time.date(),
        )  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_punctuate_goes_by_instants(
    spark: SparkSession, source: DataFrame, tmp_path: Path, zone: str
) -> None:
    """Spark's own windows behind `punctuate`: no row is dropped, none is in the window of another hour."""
    from pyspark.sql import functions as F

    with in_zone(spark, zone):
        clock = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        timer = clock.select(F.timestamp_micros(F.lit(IN_ORDER[0][0])).alias("now"))
        marked = headrace.spark.punctuate(source, time="ts", bounds="0 seconds", timer=timer)
        out = marked.where("ts is not null").select(
            "id", "ts", "ntz", F.window("ts", "10 minutes").start.alias("w")
        )
        played(
            lambda: out.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
            .trigger(once=True).start(str(tmp_path / "out"))
        )  # fmt: skip
    found = pq.read_table(tmp_path / "out")
    rows = sorted(found.cast(_numbers(found.schema)).to_pylist(), key=lambda row: row["id"])[: len(ROWS)]
    ten = 600_000_000
    assert [(r["ts"], r["ntz"], r["w"]) for r in rows] == [(t, w, t // ten * ten) for t, w in IN_ORDER]
