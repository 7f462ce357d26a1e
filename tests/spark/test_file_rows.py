"""The rows of a file, in however many pieces it is read, are those that the embedded runtime reads.

Without Spark: `FileRows` runs in its tasks, and is given here what it is given there.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from headrace.connectors.files import FilesSource
from headrace.connectors.formats import Format
from headrace.connectors.pieces import Piece, PieceReader, Storage, directories
from headrace.errors import HeadraceError
from headrace.runtimes.embedded.timing import Timing
from headrace.runtimes.spark.worker.file_rows import FileRows
from headrace.runtimes.spark.worker.partitioner import BAD
from headrace.runtimes.spark.worker.task_rows import Arrivals, TaskRows
from tests.connectors.spellings import TIMES

SCHEMA = pa.schema(
    [("i", pa.int64()), ("s", pa.string()), ("at", pa.timestamp("us", "UTC")), ("came", pa.int64())]
)
TIMING = Timing("at", None, ("i", "s", "at"), earliest=0)
FORMATS = {
    "json": Format("json", longest=300),
    "csv": Format("csv", longest=300),
    "bare csv": Format("csv", header=False, longest=300),
}

_i = st.sampled_from(["1", " 2", "x", "", "99999999999999999999", "7"])
_s = st.sampled_from(["a", "", "é", '"q"', '"', "x" * 400, "\x00"])
_csv = st.builds("{},{},{},{}".format, _i, _s, TIMES, _i) | st.sampled_from(["", " ", "1,2", '"open', "a\rb"])
_rows = st.fixed_dictionaries(
    {
        "i": st.integers(-9, 9) | st.text(max_size=2),
        "s": _s | st.none(),
        "at": TIMES | st.none(),
        "came": st.just(5),
    }
)
_json = _rows.map(json.dumps) | st.sampled_from(["", " ", "{", "[1]", '{"i": 1}', '{"i": 1}{"i": 2}'])


def embedded(path: Path, how: Format) -> tuple[list[Any], list[Any]]:
    rows, bad = [], []
    source = FilesSource(str(path), SCHEMA, how)
    while (block := source.read()) is not None:
        timed = TIMING.of(block.data)
        times = timed.times.to_pylist()
        rows += [(row, at) for row, at in zip(timed.data.to_pylist(), times, strict=True)]
        bad += [(str(each.code), each.reason, each.raw) for each in (*block.bad, *timed.bad)]
    source.close()
    return rows, bad


def on_spark(path: Path, how: Format, count: int) -> tuple[list[Any], list[Any]]:
    columns = [*SCHEMA, pa.field("t", pa.int64()), pa.field("now", pa.int64()), pa.field(BAD, pa.string())]
    reader = PieceReader(SCHEMA, how, base=str(path.parent))
    read = TaskRows(FileRows(reader), pa.schema(columns), TIMING, "t", Arrivals("came", None, "now"))
    rows, bad = [], []
    for number in range(count):
        piece = {"uri": f"file:{path}", "number": number, "count": count, "written": 0}
        batches = [pa.RecordBatch.from_pylist([piece])]
        for row in pa.Table.from_batches(read(batches), read.leaving).to_pylist():
            told, at, now = row.pop(BAD), row.pop("t"), row.pop("now")
            if told is None:
                assert now == (row["came"] or 0)
                rows.append((row, at))
            else:
                assert set(row.values()) == {None}
                bad.append(tuple(json.loads(told)))
    return rows, bad


@pytest.mark.parametrize("name", FORMATS)
@given(
    data=st.data(),
    count=st.integers(1, 9),
    crlf=st.booleans(),
    ended=st.booleans(),
    block=st.integers(8, 600),
)
def test_lines_in_pieces_are_the_rows_of_the_embedded_runtime(
    name: str, data: st.DataObject, count: int, crlf: bool, ended: bool, block: int
) -> None:
    how = replace(FORMATS[name], block=block)
    lines = data.draw(st.lists(_json if name == "json" else _csv, max_size=8))
    if name == "csv":
        header = st.sampled_from(
            ["i,s,at,came", "came, at,s,i", "i,at,came", "i,i,s,at,came", 'i,"s', "", "a\rb"]
        )
        lines.insert(0, data.draw(header))
    line_end = "\r\n" if crlf else "\n"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a file.txt")
        text = line_end.join(lines) + line_end * ended
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        wanted, given = embedded(path, how), on_spark(path, how, count)
    assert list(map(repr, given[0])) == list(map(repr, wanted[0]))
    assert sorted(given[1]) == sorted(wanted[1])


@pytest.mark.parametrize("name", ["parquet", "arrow", "arrow stream"])
@given(sizes=st.lists(st.integers(0, 5), max_size=6), count=st.integers(1, 9), rows=st.integers(1, 4))
def test_columns_in_pieces_are_the_rows_of_the_embedded_runtime(
    name: str, sizes: list[int], count: int, rows: int
) -> None:
    wide = pa.schema([("i", pa.string()), ("at", pa.int64()), ("came", pa.int64()), ("other", pa.int8())])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a file")
        with _writer(name, path, wide) as writer:
            for first, size in enumerate(sizes):
                numbers = [10 * first + i for i in range(size)]
                values = [str(n) if n % 7 else "x" for n in numbers]
                data = pa.table([values, numbers, numbers, [1] * size], schema=wide)
                writer.write_table(data) if size or name != "parquet" else None
        how = Format(name.split(maxsplit=1)[0], rows=rows)
        wanted, given = embedded(path, how), on_spark(path, how, count)
    assert list(map(repr, given[0])) == list(map(repr, wanted[0]))
    assert sorted(given[1]) == sorted(wanted[1])


def _writer(name: str, path: Path, schema: pa.Schema) -> Any:
    if name == "parquet":
        return pq.ParquetWriter(path, schema)
    return (pa.ipc.new_file if name == "arrow" else pa.ipc.new_stream)(str(path), schema)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 nothing PAR1", b"ARROW1\0\0 nothing"])
@pytest.mark.parametrize("name", ["parquet", "arrow"])
def test_a_damaged_file_is_rejected_once_whatever_its_pieces(
    tmp_path: Path, name: str, content: bytes
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    wanted, given = embedded(path, Format(name)), on_spark(path, Format(name), 3)
    assert given == wanted


def test_directories_are_columns(tmp_path: Path) -> None:
    schema = pa.schema([("x", pa.int64()), ("k", pa.int32()), ("day", pa.date32())])
    folder = tmp_path / "x=9/base"
    for day, k in (("2026-01-02", "1"), ("__HIVE_DEFAULT_PARTITION__", "%32"), ("2026-01-02", "one")):
        below = folder / f"day={day}" / f"k={k}"
        below.mkdir(parents=True)
        (below / "a.jsonl").write_text('{"x": 1, "k": 8}\n{"x": 2}\n')
    reader = PieceReader(schema, Format("json"), base=str(folder))
    found, bad = [], []
    for path in sorted(folder.rglob("*.jsonl")):
        for block in reader.read(Piece(f"file:{path}")):
            found += [tuple(row.values()) for row in block.data.to_pylist()]
            bad += [each.reason for each in block.bad]
    day = date(2026, 1, 2)
    assert found == [(1, 1, day), (2, 1, day), (1, 2, None), (2, 2, None)]
    assert bad == ["column k: one is not a INT"]


@pytest.mark.parametrize(
    ("uri", "base", "expected"),
    [
        ("file:/a/b=1/c=2/f", "/a", {"b": "1", "c": "2"}),
        ("file:/a/b=1/c=2/f", "/a/b=1", {"c": "2"}),
        ("file:///a/b=%C3%BC x/f=1", "file:/a/", {"b": "ü x"}),
        ("s3a://bucket/a/b=1/f", "s3a://bucket/a", {"b": "1"}),
        ("/a/f", "/a", {}),
    ],
)
def test_directories_below_the_path_have_values(uri: str, base: str, expected: dict[str, str]) -> None:
    assert directories(uri, base) == expected


def test_a_file_is_opened_by_the_given_file_system(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n' * 100)
    store = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    reader = PieceReader(pa.schema([("x", pa.int64())]), Format("json"), Storage(store))
    found = [b for number in range(3) for b in reader.read(Piece("s3a://a.jsonl", number, 3))]
    assert sum(len(block) for block in found) == 100


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    reader = PieceReader(SCHEMA, Format("json"))
    with pytest.raises(HeadraceError, match="HR-C006"):
        list(reader.read(Piece(f"file:{tmp_path}/a.jsonl")))
