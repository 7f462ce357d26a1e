"""Sinks show commits, and nothing else, after any start."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import disk
from headrace.connectors.encode import csv_lines, json_lines
from headrace.connectors.sinks import FileSink, PartsSink
from headrace.errors import HeadraceError
from headrace.pipeline import parse
from headrace.runtimes.embedded.runner import interval_of

SCHEMA = pa.schema([("v", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"v": v} for v in values], SCHEMA)


def fresh(make: Any, path: Path, **more: Any) -> Any:
    sink = make(path, **more)
    sink.open(SCHEMA, sink.begin())
    return sink


@pytest.mark.parametrize("format", ["json", "csv"])
def test_a_file_is_cut_back_to_its_commit(format: str, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out"
    sink = fresh(FileSink, path, format=format)
    sink.write(rows(1, 2))
    commit = sink.prepare()
    sink.write(rows(3))
    sink.prepare()
    sink.close()
    again = FileSink(path, format=format)
    again.open(SCHEMA, commit)
    again.write(rows(4))
    again.prepare()
    again.close()
    expected = {"json": '{"v":1}\n{"v":2}\n{"v":4}\n', "csv": '"v"\n1\n2\n4\n'}
    assert path.read_text() == expected[format]


ROTATIONS = {
    "copied and truncated": lambda path: (shutil.copy(path, f"{path}.1"), os.truncate(path, 0)),
    "renamed": lambda path: path.rename(f"{path}.1"),
    "replaced": lambda path: (path.rename(f"{path}.1"), path.write_text("")),
}


@pytest.mark.parametrize("how", ROTATIONS)
def test_a_file_that_is_rotated_while_it_is_written_is_an_error_without_nul_bytes(
    how: str, tmp_path: Path
) -> None:
    """Defect 08: a sink that was copied and truncated went on after a hole of NUL bytes."""
    path = tmp_path / "out.jsonl"
    sink = fresh(FileSink, path)
    sink.write(rows(1, 2))
    commit = sink.prepare()
    ROTATIONS[how](path)
    sink.write(rows(3))
    with pytest.raises(HeadraceError, match="HR-C011"):
        sink.prepare()
    sink.close()
    assert b"\0" not in (path.read_bytes() if path.exists() else b"")
    now = path.read_bytes() if path.exists() else b""
    path.write_bytes(Path(f"{path}.1").read_bytes() + now)  # as the hint says
    again = FileSink(path)
    again.open(SCHEMA, commit)
    again.write(rows(3))
    again.prepare()
    again.close()
    assert path.read_text() == '{"v":1}\n{"v":2}\n{"v":3}\n'


def test_the_name_of_a_new_file_is_safe_before_its_first_commit(tmp_path: Path) -> None:
    class Noting(disk.Disk):
        def sync(self, path: Path) -> None:
            synced.append(path)
            super().sync(path)

    synced: list[Path] = []
    with disk.using(Noting()):
        fresh(FileSink, tmp_path / "deep" / "out.jsonl").close()
    assert {tmp_path, tmp_path / "deep"} <= set(synced)


def test_a_part_is_there_once_it_is_published_and_after_any_restart(tmp_path: Path) -> None:
    path = tmp_path / "out"
    sink = fresh(PartsSink, path)
    sink.write(rows(1))
    first = sink.prepare()
    assert not list(path.glob("part-*"))
    sink.close()
    again = PartsSink(path)  # the crash came between the commit and the publishing
    again.open(SCHEMA, first)
    assert [p.name for p in path.iterdir()] == ["part-000000.parquet"]
    again.write(rows(2))
    again.publish(again.prepare())
    back = PartsSink(path)  # the newer commit was torn: its part goes
    back.open(SCHEMA, first)
    assert [p.name for p in path.iterdir()] == ["part-000000.parquet"]
    assert pq.read_table(path / "part-000000.parquet").to_pylist() == [{"v": 1}]


@pytest.mark.parametrize("make", [FileSink, PartsSink])
def test_what_exists_is_kept_replaced_or_appended_to_as_asked(make: Any, tmp_path: Path) -> None:
    path = tmp_path / "out"
    for value in (1, 2):
        sink = fresh(make, path, existing="append")
        sink.write(rows(value))
        sink.publish(sink.prepare())
        sink.close()
    with pytest.raises(HeadraceError, match="HR-C010"):
        make(path).begin()
    sink = fresh(make, path, existing="replace")
    sink.write(rows(3))
    sink.publish(sink.prepare())
    sink.close()
    found = [path] if path.is_file() else sorted(path.iterdir())
    assert len(found) == 1


VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.string(): st.text(),
    pa.bool_(): st.booleans(),
    pa.list_(pa.int32()): st.lists(st.integers(0, 9)),
    pa.timestamp("us"): st.datetimes(datetime.datetime(1600, 1, 1), datetime.datetime(2500, 1, 1)),
}
SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@given(st.data(), st.sampled_from(sorted(VALUES, key=str)), st.text())
def test_json_lines_say_what_the_rows_say(data: st.DataObject, of: pa.DataType, name: str) -> None:
    values = data.draw(st.lists(st.none() | VALUES[of], max_size=8))
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, of), pa.array(range(len(values)))], [name + "a", "i"]
    )
    batch = batch.slice(len(values) // 3)
    lines = json_lines(batch).decode().split("\n")[:-1]
    found = [json.loads(line)[name + "a"] for line in lines]
    expected = [v.isoformat("T", "microseconds") if isinstance(v, datetime.datetime) else v for v in values]
    for value, wanted in zip(found, expected[len(values) // 3 :], strict=True):
        if isinstance(wanted, float) and value in SPECIAL:
            value = SPECIAL[value]
        assert value == wanted or (value != value and wanted != wanted)


def test_csv_quotes_text_and_leaves_null_empty() -> None:
    batch = pa.record_batch({"a": pa.array([1, None]), "b": pa.array(['say "hi"', None])})
    assert csv_lines(batch) == b'1,"say ""hi"""\n,\n'


# --- what is there already --------------------------------------------------------------------------------

KINDS = {"json": FileSink, "csv": FileSink, "parquet": PartsSink, "arrow": PartsSink}
BEFORE = {
    "nothing": lambda path: None,
    "empty": lambda path: path.touch(),
    "file": lambda path: path.write_text('"v"\n7\n'),
    "no line end": lambda path: path.write_text('"v"\n7'),
    "parts": lambda path: (path.mkdir(), (path / "part-000003.parquet").write_text("precious")),
    "other parts": lambda path: (path.mkdir(), (path / "part-000003.arrow").write_text("precious")),
    "of Spark": lambda path: ((path / "batch=0").mkdir(parents=True), (path / "batch=0/a").write_text("x")),
    "foreign": lambda path: (path.mkdir(), (path / "notes.txt").write_text("precious")),
    "parts and foreign": lambda path: (
        path.mkdir(),
        (path / "part-000000.parquet").write_text("precious"),
        (path / "notes.txt").write_text("precious"),
    ),
}


def contents(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return {str(each.relative_to(path)): each.read_bytes() for each in files}


@pytest.mark.parametrize("format", KINDS)
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("existing", ["error", "append", "replace"])
def test_nothing_that_is_there_is_lost_unless_it_is_to_be_replaced(
    tmp_path: Path, format: str, before: str, existing: str
) -> None:
    """And what no run writes is never touched."""
    path = tmp_path / "out"
    BEFORE[before](path)
    found = contents(path)
    try:
        sink: Any = KINDS[format](path, format=format, existing=existing)
        sink.open(SCHEMA, sink.begin())
        sink.write(rows(1))
        sink.publish(sink.prepare())
        sink.close()
        code = None
    except HeadraceError as error:
        code = error.code
    failed = code is not None
    assert code in (None, "HR-C010", "HR-C012", "HR-C013")
    now = contents(path)
    foreign = {name: content for name, content in found.items() if name == "notes.txt"}
    kept = found if existing != "replace" or failed else foreign
    assert all(now.get(name, b"").startswith(content) for name, content in kept.items())
    if existing == "replace" and not foreign:
        assert not failed
        assert len(now) == 1
    if before in ("nothing", "empty"):
        assert not failed
    elif existing == "error" and "foreign" not in before:
        assert failed


def test_what_is_appended_begins_a_line_and_has_the_columns_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("v\n7")
    sink = fresh(FileSink, path, format="csv", existing="append")
    sink.write(rows(8))
    sink.prepare()
    sink.close()
    assert path.read_text() == "v\n7\n8\n"
    path.write_text('"v","w"\n7,7\n')
    with pytest.raises(HeadraceError, match="HR-C014"):
        fresh(FileSink, path, format="csv", existing="append")
    assert path.read_text() == '"v","w"\n7,7\n'


@pytest.mark.parametrize(
    ("sink", "seconds"),
    [
        ('"out.jsonl"', 0.5),
        ('{ path = "out", format = "parquet" }', 0.5),
        ('{ type = "delta", path = "t" }', 10),
    ],
)
def test_answers_in_files_can_be_seen_within_a_second_by_default(sink: str, seconds: float) -> None:
    text = f"""
        [pipeline]
        name = "x"
        runtime = "embedded"
        [streams.s]
        source = "in.jsonl"
        schema = "k BIGINT, at TIMESTAMP"
        time = "at"
        [[queries]]
        name = "q"
        sql = "SELECT k FROM s"
        sink = {sink}
    """
    assert interval_of(parse(text)) == seconds
    kept = text.replace('name = "x"', 'name = "x"\n        interval = "3 s"')
    assert interval_of(parse(kept)) == 3
