"""One pipeline file over JSON lines, CSV and Parquet, on both runtimes: the same rows in the same types.

Answers are the same in their order: with one shard that of all, with several that of each key. Late and
rejected rows are the same to the letter, whatever the time zone of the session is.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.connectors.spellings import SPELLINGS, expected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = {
    "id": "BIGINT",
    "k": "STRING",
    "x": "DOUBLE",
    "small": "INT",
    "b": "BOOLEAN",
    "d": "DATE",
    "m": "DECIMAL(10, 2)",
    "at": "TIMESTAMP",
    "seen": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
}
STREAM = """
[streams.{name}]
source = {source}
schema = "{schema}"
time = {{ column = "at", earliest = "2000-01-01" }}
bounds = {bounds}
arrival = "came"

[[queries]]
name = "rows_{name}"
sql = "SELECT * FROM {name}"
sink = {{ path = "rows_{name}.parquet", time = "holds" }}
late = "late_{name}.jsonl"
rejected = "rejected_{name}.jsonl"
"""
PIPELINE = """
[pipeline]
name = "formats"
runtime = "embedded"
strategy = "bfs(64)"
level = "query"
propagation = "in_band"

[skew]
timeout = "1 minute"
tick = "1 ms"
bounds = [{ of = "j", on = "c", pairs = [["2 s", "9 s"], ["3 rows", "6 s"]] }]
"""
WINDOWS = '''
[[queries]]
name = "windows"
sql = """SELECT k, count(*) AS n, max(seen) AS seen, min(d) AS d, sum(m) AS m, window_start, window_end
         FROM j [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY k"""
sink = { path = "windows.jsonl", time = "holds" }
'''
BOUNDS = {
    "j": '{ disorder = "3 seconds" }',
    "c": '{ disorder = "3 seconds" }\nidle = "periodic(1 second)"',
    "p": '{ slack = "2 rows", transit = "1 second" }',
}
SOURCES = {"j": '"rows.jsonl"', "c": '{ path = "rows.csv", delimiter = ";" }', "p": '"rows.parquet"'}

FIRST = datetime(2026, 3, 8, 4, 59, 30, tzinfo=UTC)
"""Half a minute before the clocks of St. John's spring forward."""


@dataclass(frozen=True)
class World:
    """How the session is: its time zone, how many shards there are, how large the pieces of files are."""

    zone: str
    shards: int
    piece: int


WORLDS = [World("America/St_Johns", 1, 1 << 27), World("Asia/Kathmandu", 2, 2_000)]


def spelled(rng: random.Random, at: datetime) -> str:
    """An instant, spelled in one of the ways there are."""
    away = rng.choice([None, 0, 60, -210, 345])
    wall = at if away is None else at.astimezone(timezone(timedelta(minutes=away)))
    zone = "" if away is None else rng.choice(["Z", "+00", "+0000"]) if not away else wall.strftime("%z")
    fraction = f".{wall:%f}" + rng.choice(["", "999"]) if wall.microsecond else rng.choice(["", ".000"])
    return f"{wall:%Y-%m-%d}{rng.choice('T ')}{wall:%H:%M:%S}{fraction}{zone}"


def made(rng: random.Random) -> list[dict[str, Any]]:
    """Sound rows in the order of their arrival; some come too late."""
    rows = []
    good = [text for text, said in SPELLINGS.items() if said is not None]
    for i in range(90):
        came = FIRST + timedelta(milliseconds=700 * i, microseconds=i)
        at = came - timedelta(milliseconds=rng.choice([0, 900, 2_500, 9_000]))
        rows.append(
            {
                "id": i,
                "k": rng.choice(["a", "b", "c", "", 'q"q', "ü, x"]),
                "x": rng.choice([0.1, -1e300, 3.0]),
                "small": rng.choice([i, None]),
                "b": rng.choice([True, False]),
                "d": f"2026-03-{1 + i % 28:02d}",
                "m": f"{i}.25",
                "at": spelled(rng, at),
                "seen": good[i] if i < len(good) else spelled(rng, FIRST + timedelta(minutes=i)),
                "wall": f"{came + timedelta(hours=i):%Y-%m-%d %H:%M:%S}",
                "came": spelled(rng, came),
            }
        )
    return rows


def bad_rows(sound: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows with something wrong in one value each."""
    wrong = [text for text, said in SPELLINGS.items() if said is None]
    times = [{"at": text} for text in wrong] + [
        {"seen": wrong[0]},
        {"came": "soon"},
        {"wall": "2026-01-02T03:04:05Z"},
        {"d": "2026-02-30"},
    ]
    others = [{"id": "one"}, {"id": "99999999999999999999"}, {"x": "1,5"}, {"b": "maybe"}, {"small": "1.0"}]
    early = [{"at": "1999-12-31T23:59:59Z"}, {"at": None}]
    return [{**sound, **change} for change in (*times, *others, *early)]


def json_file(rows: list[dict[str, Any]]) -> bytes:
    lines = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    whole = json.dumps(rows[0])
    odd = [
        "no json",
        "[1]",
        whole[:-9],
        "",
        " ",
        whole.replace('"b"', '"bb"'),
        whole.replace('"k"', '"kk"', 1),
    ]
    lines[5:5] = [text.encode() for text in odd] + [b'{"k": "\xff"}']
    return b"\xef\xbb\xbf" + b"\r\n".join(lines)


def csv_file(rows: list[dict[str, Any]]) -> bytes:
    """The columns in another order, one more than is read, and a blank beside numbers and times."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=";", lineterminator="\n")
    names = ["more", *reversed(rows[0])]
    writer.writerow(names)
    for row in rows:
        values = (row.get(name) for name in names)
        writer.writerow(["" if v is None else f" {v}" if isinstance(v, int) else v for v in values])
    lines = out.getvalue().encode().splitlines()
    lines[5:5] = [b"1;2", b"", b" ", b'"open;;', b"\xff", lines[1] + b";9", lines[1].replace(b";", b"\r;", 1)]
    return b"\n".join(lines) + b"\n"


def parquet_file(rows: list[dict[str, Any]], path: Path) -> None:
    times = {n: [expected(row[n]) for row in rows] for n in ("at", "seen", "came")}
    stamp = pa.timestamp("us", "UTC")
    columns = {
        "id": pa.array([row["id"] for row in rows], pa.int64()),
        "k": pa.array([row["k"] for row in rows]),
        "x": pa.array([row["x"] for row in rows]),
        "small": pa.array([row["small"] for row in rows], pa.int32()),
        "b": pa.array([row["b"] for row in rows]),
        "d": pa.array([row["d"] for row in rows]).cast(pa.date32()),
        "m": pa.array([row["m"] for row in rows]).cast(pa.decimal128(10, 2)),
        **{name: pa.array(values, stamp) for name, values in times.items()},
        "wall": pa.array([expected(row["wall"]) for row in rows], pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), path)


def written(root: Path) -> Path:
    """The pipeline and its files."""
    rng = random.Random(15)
    sound = made(rng)
    mixed = list(sound)
    for bad in bad_rows(sound[0]):
        mixed.insert(rng.randrange(len(mixed)), bad)
    (root / "rows.jsonl").write_bytes(json_file(mixed))
    (root / "rows.csv").write_bytes(csv_file(mixed))
    early = {**sound[0], "at": "1999-12-31T23:59:59Z"}
    parquet_file([sound[0], early, *sound[1:]], root / "rows.parquet")
    schema = ", ".join(f"{name} {of}" for name, of in COLUMNS.items())
    streams = [
        STREAM.format(name=n, source=source, schema=schema, bounds=BOUNDS[n]) for n, source in SOURCES.items()
    ]
    (root / "pipeline.toml").write_text("".join((PIPELINE, *streams, WINDOWS)))
    return root


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = written(tmp_path_factory.mktemp("here"))
    result = Runner(load(root / "pipeline.toml")).run()
    for account in result.progress.streams.values():
        assert account.rows_in == account.rows_processed + account.rows_late + account.rows_rejected
    return root


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: f"{world.zone}-{world.shards}")
def there(request: pytest.FixtureRequest, spark: SparkSession, here: Path) -> Iterator[tuple[World, Path]]:
    from headrace.runtimes.spark.driver.pipeline import Runner as SparkRunner

    world: World = request.param
    settings = {
        "spark.sql.session.timeZone": world.zone,
        "spark.sql.shuffle.partitions": world.shards,
        "spark.sql.files.maxPartitionBytes": world.piece,
        "spark.sql.files.openCostInBytes": 0,
    }
    before = {name: spark.conf.get(name) for name in settings}
    root = here.with_name(f"{here.name}-{world.shards}")
    root.mkdir()
    for name in ("rows.jsonl", "rows.csv", "rows.parquet", "pipeline.toml"):
        shutil.copy(here / name, root)
    for name, value in settings.items():
        spark.conf.set(name, str(value))
    try:
        result = SparkRunner(load(root / "pipeline.toml"), spark).run()
        assert result.state == "finished"
        for name in SOURCES:
            account = result.queries[f"rows_{name}"]
            assert account.rows[name] == account.answers + account.late + account.rejected
        yield world, root
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))


def lines(path: Path) -> list[str]:
    files = sorted(path.glob("batch=*/part-*")) if path.is_dir() else [path]
    return [line for each in files for line in each.read_text().splitlines()]


def table(path: Path) -> pa.Table:
    """A directory of Parquet files, those of Spark in their order."""
    files = sorted(path.glob("batch=*/part-*.parquet")) or sorted(path.glob("*.parquet"))
    return pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def in_order(rows: list[dict[str, Any]], time: str) -> list[tuple[Any, list[str]]]:
    """Rows by their time as they came; rows of one time have no order."""
    return [(at, sorted(map(repr, group))) for at, group in groupby(rows, key=lambda row: row[time])]


def by_key(rows: list[dict[str, Any]], key: str) -> dict[Any, list[dict[str, Any]]]:
    found = defaultdict(list)
    for row in rows:
        found[row[key]].append(row)
    return found


def assert_same_order(
    world: World, given: list[dict[str, Any]], wanted: list[dict[str, Any]], key: str
) -> None:
    if world.shards == 1:
        assert in_order(given, "holds") == in_order(wanted, "holds")
        return
    mine, theirs = by_key(given, key), by_key(wanted, key)
    assert mine.keys() == theirs.keys()
    for each, rows in mine.items():
        assert in_order(rows, "holds") == in_order(theirs[each], "holds"), each


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOURCES)
def test_rows_of_files_are_the_same_in_the_same_types(
    name: str, here: Path, there: tuple[World, Path]
) -> None:
    world, root = there
    given, wanted = table(root / f"rows_{name}.parquet"), table(here / f"rows_{name}.parquet")
    assert given.schema.equals(wanted.schema), f"{given.schema}\n---\n{wanted.schema}"
    assert_same_order(world, given.to_pylist(), wanted.to_pylist(), "id")
    assert wanted.num_rows > 50


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("kind", ["late", "rejected"])
def test_rows_set_apart_are_the_same_to_the_letter(
    kind: str, name: str, here: Path, there: tuple[World, Path]
) -> None:
    _, root = there
    wanted = sorted(lines(here / f"{kind}_{name}.jsonl"))
    assert sorted(lines(root / f"{kind}_{name}.jsonl")) == wanted
    assert wanted


@pytest.mark.timeout(600)
def test_windows_over_files_are_the_same(here: Path, there: tuple[World, Path]) -> None:
    world, root = there
    given, wanted = (list(map(json.loads, lines(each / "windows.jsonl"))) for each in (root, here))
    assert_same_order(world, given, wanted, "k")
    assert len(wanted) > 20


@pytest.mark.parametrize("name", ["j", "c"])
def test_a_rejected_line_is_shown_as_it_was_with_column_and_value(name: str, here: Path) -> None:
    rejected = list(map(json.loads, lines(here / f"rejected_{name}.jsonl")))
    text = (
        (here / {"j": "rows.jsonl", "c": "rows.csv"}[name]).read_bytes().decode("utf-8", "backslashreplace")
    )
    by_time = [each for each in rejected if each["reason"].startswith('column at: "')]
    assert len(by_time) == sum(said is None for said in SPELLINGS.values())
    for each in rejected:
        if each["code"] in ("HR-R101", "HR-R102", "HR-R103", "HR-R105"):
            assert each["row"] in text
    codes = {each["code"] for each in rejected}
    assert codes == {"HR-R001", "HR-R101", "HR-R102", "HR-R103", "HR-R105", "HR-R107"}
