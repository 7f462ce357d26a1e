"""Parquet files that Arrow writes for a micro-batch: complete, in order, and replaced if it runs again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtimes.spark.driver.parquet_files import ParquetFolder, WriteParquet, is_plain
from headrace.runtimes.spark.driver.unpack import Unpack, as_batch
from headrace.runtimes.spark.worker.answers import AT
from headrace.runtimes.spark.worker.packing import PACKED, Package, Route, packed, packed_batch, to_ipc

SCHEMA = pa.schema([("k", pa.int64()), ("text", pa.string())])


def body(*rows: tuple[int, str, int]) -> bytes:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return to_ipc(pa.table(columns, schema=SCHEMA.append(pa.field(AT, pa.int64()))))


def written(folder: Path) -> dict[str, list[tuple[object, ...]]]:
    """What a reader of the folder sees, by micro-batch."""
    found = {}
    for batch in sorted(folder.glob("batch=*")):
        rows = ds.dataset(batch, format="parquet").to_table()
        found[batch.name] = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return found


def test_rows_of_all_shards_are_one_file_in_order(tmp_path: Path) -> None:
    folder = ParquetFolder(tmp_path / "out", "snappy")
    packed_rows = as_batch([(1, body((3, "c", 30))), (0, body((1, "a", 10), (4, "d", 40)))])
    folder.write(7, Unpack(SCHEMA, ordered=True), packed_rows)
    assert written(tmp_path / "out") == {"batch=7": [(1, "a"), (3, "c"), (4, "d")]}
    assert len(list((tmp_path / "out/batch=7").glob("*.parquet"))) == 1
    assert (tmp_path / "out/batch=7/_SUCCESS").exists()


def test_a_micro_batch_that_runs_again_replaces_its_files(tmp_path: Path) -> None:
    folder = ParquetFolder(tmp_path, "zstd")
    for text in ("first", "second"):
        folder.write(0, Unpack(SCHEMA), as_batch([(0, body((1, text, 1)))]))
    assert written(tmp_path) == {"batch=0": [(1, "second")]}
    assert [each.name for each in tmp_path.iterdir()] == ["batch=0"]


def test_no_rows_are_a_file_with_the_columns(tmp_path: Path) -> None:
    ParquetFolder(tmp_path, "none").write(0, Unpack(SCHEMA, ordered=True), as_batch([]))
    assert ds.dataset(tmp_path / "batch=0", format="parquet").to_table().schema == SCHEMA


def test_files_of_attempts_that_failed_are_not_shown(tmp_path: Path) -> None:
    folder = ParquetFolder(tmp_path, "snappy")
    write = WriteParquet(Unpack(SCHEMA), str(folder._draft(3)), "snappy")
    list(write([as_batch([(0, body((1, "given up", 1)))])]))
    folder.write(3, Unpack(SCHEMA), as_batch([(0, body((1, "counts", 1)))]))
    assert written(tmp_path) == {"batch=3": [(1, "counts")]}


@pytest.mark.parametrize(
    ("type", "same"),
    [
        (pa.int64(), True),
        (pa.timestamp("us", "UTC"), True),
        (pa.decimal128(20, 2), True),
        (pa.duration("us"), False),
        (pa.list_(pa.int64()), False),
        (pa.timestamp("us", "Europe/Berlin"), False),
    ],
)
def test_arrow_writes_only_what_spark_would_write_the_same_way(type: pa.DataType, same: bool) -> None:
    assert is_plain(pa.schema([("a", type)])) is same


@given(st.lists(st.tuples(st.lists(st.integers(-9, 9)), st.booleans()), max_size=4), st.integers(0, 5))
def test_packages_as_a_batch_are_packages_as_columns(
    given_rows: list[tuple[list[int], bool]], number: int
) -> None:
    packages = [
        Package(
            0, 5, pa.RecordBatch.from_pydict({"a": pa.array(values, pa.int64())}), reached=3 if late else None
        )
        for values, late in given_rows
    ]
    keys, route = list(range(len(packages))), Route(tuple(range(len(packages))))
    columns = packed(route, keys, 1, number, packages)
    assert packed_batch(route, keys, 1, number, packages) == pa.RecordBatch.from_pydict(columns, PACKED)
