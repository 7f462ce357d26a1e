"""Delta and Iceberg tables: each row once as a sink, and each row once as a source."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog

from headrace.connectors.delta import DeltaLog, DeltaTarget
from headrace.connectors.iceberg import IcebergLog, IcebergTarget
from headrace.connectors.lakes import LakeSource
from headrace.errors import ConnectorError
from headrace.pipeline import load
from headrace.runtimes.embedded import Runner
from tests.faults.killing import run_with_kills

KILLS = int(os.environ.get("HEADRACE_KILLS", "12"))
SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def table(*rows: tuple[int, str | None]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], SCHEMA)


class Delta:
    """Delta tables in a directory."""

    type = "delta"

    def __init__(self, root: Path) -> None:
        self.root = root

    def target(self, name: str = "answers", **more: Any) -> DeltaTarget:
        return DeltaTarget(str(self.root / name), place="queries.q.sink", **more)

    def log(self, name: str = "answers", **more: Any) -> DeltaLog:
        return DeltaLog(str(self.root / name), place="streams.s.source", **more)

    def rows(self, name: str = "answers") -> list[dict[str, Any]]:
        return list(DeltaTable(self.root / name).to_pyarrow_table().to_pylist())

    def append(self, rows: pa.Table, name: str = "answers") -> None:
        write_deltalake(self.root / name, rows, mode="append")

    def delete(self, where: str, name: str = "answers") -> None:
        DeltaTable(self.root / name).delete(where)

    def compact(self, name: str = "answers") -> None:
        DeltaTable(self.root / name).optimize.compact()

    def key(self, name: str) -> str:
        return f'type = "delta", path = "{self.root / name}"'

    def drop(self) -> None:
        shutil.rmtree(self.root)


class Iceberg:
    """Iceberg tables in a catalog of SQLite."""

    type = "iceberg"

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}",
        }

    def target(self, name: str = "answers", **more: Any) -> IcebergTarget:
        return IcebergTarget("here", self.options, f"n.{name}", place="queries.q.sink", **more)

    def log(self, name: str = "answers", **more: Any) -> IcebergLog:
        return IcebergLog("here", self.options, f"n.{name}", place="streams.s.source", **more)

    def _table(self, name: str) -> Any:
        return load_catalog("here", **self.options).load_table(f"n.{name}")

    def rows(self, name: str = "answers") -> list[dict[str, Any]]:
        return list(self._table(name).scan().to_arrow().to_pylist())

    def append(self, rows: pa.Table, name: str = "answers") -> None:
        catalog = load_catalog("here", **self.options)
        catalog.create_namespace_if_not_exists("n")
        catalog.create_table_if_not_exists(f"n.{name}", rows.schema).append(rows)

    def delete(self, where: str, name: str = "answers") -> None:
        self._table(name).delete(where)

    def key(self, name: str) -> str:
        options = ", ".join(f'{key} = "{value}"' for key, value in self.options.items())
        return f'type = "iceberg", catalog = "here", table = "n.{name}", options = {{ {options} }}'

    def drop(self) -> None:
        shutil.rmtree(self.root)
        self.root.mkdir()


Lake = Delta | Iceberg


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    made: Lake = request.param(tmp_path / "lake")
    return made


def pairs(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in rows), key=str)


# --- targets


def test_a_commit_is_applied_once(lake: Lake) -> None:
    to = lake.target()
    to.open(SCHEMA, "run")
    assert to.last("run") == 0
    to.apply("run", 1, table((1, "a"), (2, None)))
    to.apply("run", 1, table((1, "a"), (2, None)))
    to.apply("run", 2, table((1, "a"), (3, "c")))
    assert to.last("run") == 2
    assert to.last("other") == 0
    assert pairs(lake.rows()) == [(1, "a"), (1, "a"), (2, None), (3, "c")]


def test_a_writer_that_was_thought_dead_adds_nothing(lake: Lake) -> None:
    """Two writers of one run have looked at the table before either of them writes commit 1."""
    one, two = lake.target(), lake.target()
    one.open(SCHEMA, "run")
    two.open(SCHEMA, "run")
    assert one.last("run") == two.last("run") == 0
    two._number = _stale(two._number)  # type: ignore[method-assign]
    one.apply("run", 1, table((1, "a")))
    two.apply("run", 1, table((1, "a")))
    assert pairs(lake.rows()) == [(1, "a")]


def _stale(look: Callable[[str], int | None]) -> Callable[[str], int | None]:
    """A first look that is over before the other writer commits."""
    looks = [None]

    def number(run: str) -> int | None:
        return looks.pop() if looks else look(run)

    return number


def test_a_row_replaces_the_one_with_the_same_key(lake: Lake) -> None:
    to = lake.target(key=("k",))
    to.open(SCHEMA, "run")
    to.apply("run", 1, table((1, "a"), (2, "b"), (1, "c")))
    to.apply("run", 2, table((2, "d"), (3, "")))
    to.apply("run", 2, table((2, "d"), (3, "")))
    assert pairs(lake.rows()) == [(1, "c"), (2, "d"), (3, "")]
    with pytest.raises(ConnectorError, match="HR-C023"):
        lake.target(key=("absent",)).open(SCHEMA, "run")


@pytest.mark.parametrize(("existing", "left"), [("append", 2), ("replace", 1)])
def test_rows_that_are_there_stay_or_go_once(lake: Lake, existing: str, left: int) -> None:
    for run in ("first", "second", "second"):
        to = lake.target(existing=existing)
        to.begin()
        to.open(SCHEMA, run)
        to.apply(run, 1, table((1, run)))
        to.close()
    assert len(lake.rows()) == left
    with pytest.raises(ConnectorError, match="HR-C010"):
        lake.target(existing="error").begin()
    lake.target("absent", existing="error").begin()


def test_values_of_every_type_arrive(lake: Lake) -> None:
    row = {
        "b": True,
        "i": -(2**62),
        "f": 0.1,
        "t": "naïve \\ ' \" \n",
        "y": b"\x00\xff",
        "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
        "w": datetime(2026, 1, 2, 3, 4, 5, 678901),
        "d": date(2026, 1, 2),
        "n": Decimal("12.34"),
        "u": 2**32 - 1,
        "l": [1, 2],
        "s": {"x": 1},
    }
    types = [
        pa.bool_(),
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.binary(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.date32(),
        pa.decimal128(10, 2),
        pa.uint32(),
        pa.list_(pa.int64()),
        pa.struct([("x", pa.int64())]),
    ]
    schema = pa.schema(list(zip(row, types, strict=True)))
    to = lake.target()
    to.open(schema, "run")
    to.apply("run", 1, pa.Table.from_pylist([row], schema))
    assert lake.rows() == [row]
    found = LakeSource(lake.log(), schema).read()
    assert found is not None
    assert found.data.to_pylist() == [row]


def test_a_table_with_other_columns_is_an_error(lake: Lake) -> None:
    lake.append(pa.table({"other": [1]}))
    to = lake.target()
    to.open(SCHEMA, "run")
    with pytest.raises(ConnectorError, match=r"HR-C022.*queries\.q\.sink"):
        to.apply("run", 1, table((1, "a")))
    assert to.last("run") == 0


# --- sources


def drained(source: LakeSource) -> list[tuple[Any, ...]]:
    found = []
    while (block := source.read()) is not None:
        found += [tuple(row.values()) for row in block.data.to_pylist()]
    return found


def test_a_source_reads_what_is_there_and_then_what_is_added(lake: Lake) -> None:
    lake.append(table((1, "a")))
    lake.append(table((2, "b")))
    source = LakeSource(lake.log(), SCHEMA, follow=True, poll=0)
    fresh = LakeSource(lake.log(), SCHEMA, follow=True, new=True, poll=0)
    assert sorted(drained(source)) == [(1, "a"), (2, "b")]
    assert drained(fresh) == []
    lake.append(table((3, "c")))
    lake.append(table((4, "d")))
    assert drained(source) == drained(fresh) == [(3, "c"), (4, "d")]
    ends = LakeSource(lake.log(), SCHEMA)
    assert len(drained(ends)) == 4
    assert ends.ended


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 9), st.data())
def test_a_source_goes_on_at_every_position(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], block: int, data: st.DataObject
) -> None:
    lake = Delta(tmp_path_factory.mktemp("lake"))
    before = data.draw(st.integers(1, len(sizes)))
    number = 0
    positions: list[tuple[Any, Any, int]] = []
    rows: list[tuple[Any, ...]] = []
    source = LakeSource(lake.log(), SCHEMA, follow=True, poll=0, block_rows=block)
    for i, size in enumerate(sizes):
        lake.append(table(*((number + j, str(i)) for j in range(size))))
        number += size
        if i + 1 < before:
            continue
        while True:
            at = source.position()
            found = source.read()
            if found is None:
                break
            positions.append((at, found.span, len(rows)))
            rows += [tuple(row.values()) for row in found.data.to_pylist()]
    assert sorted(k for k, _ in rows) == list(range(number))
    for at, span, done in positions:
        other = LakeSource(lake.log(), SCHEMA, follow=True, poll=0, block_rows=data.draw(st.integers(1, 9)))
        other.seek(json.loads(json.dumps(at)), span)
        again = other.read()
        assert again is not None
        assert [tuple(row.values()) for row in again.data.to_pylist()] == rows[done : done + span]
        assert drained(other) == rows[done + span :]


def test_rows_that_are_deleted_are_an_error_or_skipped(lake: Lake) -> None:
    lake.append(table((1, "a"), (2, "b")))
    source = LakeSource(lake.log(), SCHEMA, follow=True, poll=0)
    lenient = LakeSource(lake.log(changes="skip"), SCHEMA, follow=True, poll=0)
    assert drained(source) == drained(lenient) == [(1, "a"), (2, "b")]
    lake.delete("k = 1")
    lake.append(table((3, "c")))
    with pytest.raises(ConnectorError, match=r"HR-C024.*streams\.s\.source"):
        source.read()
    assert drained(lenient) == [(3, "c")]


def test_compaction_is_not_new_rows(tmp_path: Path) -> None:
    lake = Delta(tmp_path)
    for i in range(3):
        lake.append(table((i, "a")))
    source = LakeSource(lake.log(), SCHEMA, follow=True, poll=0)
    assert len(drained(source)) == 3
    lake.compact()
    lake.append(table((3, "a")))
    assert drained(source) == [(3, "a")]


def test_partition_columns_and_columns_of_other_types(tmp_path: Path) -> None:
    lake = Delta(tmp_path)
    days = pa.table({"k": ["1", "x"], "day": [date(2026, 1, 2), None], "p": [7, 8]})
    write_deltalake(tmp_path / "answers", days, partition_by=["day", "p"])
    schema = pa.schema([("k", pa.int64()), ("day", pa.date32()), ("p", pa.int64())])
    source = LakeSource(lake.log(), schema, follow=True, poll=0)
    good, bad = [], []
    for turn in range(2):
        while (block := source.read()) is not None:
            good += [tuple(row.values()) for row in block.data.to_pylist()]
            bad += [each.reason for each in block.bad]
        if not turn:
            write_deltalake(tmp_path / "answers", days, mode="append")
    assert good == [(1, date(2026, 1, 2), 7)] * 2
    assert len(bad) == 2
    assert all("column k" in reason for reason in bad)


def test_a_source_was_read_until_it_last_looked(lake: Lake) -> None:
    """A promise by the clock must not cover rows that came after the last look."""
    lake.append(table((1, "a")))
    ticks = iter(range(1, 100))
    often = LakeSource(lake.log(), SCHEMA, follow=True, poll=0, now=ticks.__next__)
    assert drained(often) == [(1, "a")]
    first = often.read_until()
    assert often.read() is None
    assert (often.read_until() or 0) > (first or 0) > 0
    rarely = LakeSource(lake.log(), SCHEMA, follow=True, poll=3600, now=ticks.__next__)
    assert drained(rarely) == [(1, "a")]
    assert rarely.read_until() is None


def test_a_table_that_is_missing_or_was_replaced(lake: Lake) -> None:
    lake.append(table((1, "a")), "other")
    with pytest.raises(ConnectorError, match="HR-C001"):
        LakeSource(lake.log(), SCHEMA).read()
    lake.append(table((1, "a")))
    source = LakeSource(lake.log(), SCHEMA)
    drained(source)
    at = source.position()
    lake.drop()
    lake.append(table((1, "a")))
    with pytest.raises(ConnectorError, match="HR-C002"):
        LakeSource(lake.log(), SCHEMA).seek(at)


def test_deletion_vectors_are_refused(tmp_path: Path) -> None:
    """A version that turns a feature on is looked at before its files are read."""
    lake = Delta(tmp_path)
    lake.append(table((1, "a")))
    source = LakeSource(lake.log(), SCHEMA, follow=True, poll=0)
    assert len(drained(source)) == 1
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    log = tmp_path / "answers/_delta_log/00000000000000000001.json"
    log.write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(ConnectorError, match=r"HR-C025.*deletionVectors"):
        source.read()
    with pytest.raises(ConnectorError, match=r"HR-C025.*deletionVectors"):
        LakeSource(lake.log(), SCHEMA).read()


# --- pipelines

TEXT = """
[pipeline]
name = "x"
runtime = "embedded"
checkpoint = "state"
every_rows = 60

[streams.s]
source = {{ {rows}, block_rows = 50 }}
schema = "k BIGINT, v BIGINT, at BIGINT"
time = {{ column = "at", unit = "ms" }}

[[queries]]
name = "counts"
sql = "SELECT k, count(*) AS n, sum(v) AS v FROM s [RANGE 50 MILLISECONDS SLIDE 50 MILLISECONDS] GROUP BY k"
sink = {{ {counts}, time = "at" }}

[[queries]]
name = "newest"
sql = "SELECT k, v FROM s"
sink = {{ {newest}, key = "k" }}
"""
TABLES = ("counts", "newest")


def write(root: Path, lake: Lake, rows: int = 600) -> Path:
    root.mkdir(exist_ok=True)
    made = [{"k": i % 7, "v": i, "at": i} for i in range(rows)]
    source = type(lake)(root / "input")
    source.append(pa.Table.from_pylist(made))
    path = root / "pipeline.toml"
    keys = {name: lake.key(name) for name in TABLES}
    path.write_text(TEXT.format(rows=source.key("answers"), **keys))
    return path


def content(lake: Lake) -> dict[str, Any]:
    return {name: pairs(lake.rows(name)) for name in TABLES}


def test_a_pipeline_reads_and_writes_tables(lake: Lake, tmp_path: Path) -> None:
    Runner(load(write(tmp_path / "p", lake))).run()
    found = content(lake)
    assert sum(n for _, n, _, _ in found["counts"]) == 600
    assert [k for k, _ in found["newest"]] == list(range(7))
    assert max(v for _, v in found["newest"]) == 599


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_tables_of_killed_runs_equal_those_of_one_run(lake: Lake, tmp_path: Path) -> None:
    path = write(tmp_path / "p", lake)
    Runner(load(path)).run()
    expected = content(lake)

    def clear() -> None:
        lake.drop()
        shutil.rmtree(path.parent / "state")

    def look_and_clear() -> None:
        assert content(lake) == expected
        clear()

    clear()
    run_with_kills(path, max(2, KILLS // 4), KILLS, look_and_clear)


def test_a_secret_of_a_store_is_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_SECRET", "s3cr3t-value")
    lake = Delta(tmp_path / "lake")
    path = write(tmp_path / "p", lake, 100)
    text = path.read_text().replace('/counts"', '/counts", storage = { secret = "${LAKE_SECRET}" }')
    path.write_text(text)
    pipeline = load(path)
    result = Runner(pipeline).run()
    assert "s3cr3t-value" not in str(result) + str(pipeline) + json.dumps(pipeline.tables())
    for each in path.parent.rglob("*"):
        assert each.is_dir() or b"s3cr3t-value" not in each.read_bytes(), each
    assert pq.ParquetFile(next((tmp_path / "lake/counts").glob("*.parquet"))).metadata.num_rows
