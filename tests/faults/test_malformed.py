"""Malformed input never stops a pipeline and never loses the good rows around it; each bad row has a code."""

from __future__ import annotations

import resource
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.runtimes.embedded.running import run_small

T = 1_700_000_000_000_000


def line(k: int, v: str = "x") -> bytes:
    return b'{"k": %d, "v": "%s", "at": %d}' % (k, v.encode(), T + k)


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b'{"k": 1, "v": "x"', "HR-R101"),
        (b"not json at all", "HR-R101"),
        (b"[1, 2, 3]", "HR-R101"),
        (b'{"k": 1, "v": "x", "at": 5}{"k": 2, "v": "x", "at": 6}', "HR-R101"),
        (b'{"k": "one", "v": "x", "at": 5}', "HR-R102"),
        (b'{"k": 1.5, "v": "x", "at": 5}', "HR-R102"),
        (b'{"k": "\\ud800", "v": "x", "at": 5}', "HR-R102"),
        (b'{"k": 99999999999999999999, "v": "x", "at": 5}', "HR-R102"),
        (b'{"k": 1, "v": {"nested": 1}, "at": 5}', "HR-R102"),
        (b'{"k": 1, "v": "x", "at": true}', "HR-R102"),
        (b'{"k": 1, "v": "\xff\xfe", "at": 5}', "HR-R103"),
        (b"\x00\x01\x02", "HR-R101"),
        (b'{"k": 1, "at": 5}', "HR-R105"),
        (b'{"k": 1, "v": "x", "at": null}', "HR-R001"),
        (b'{"k": 1, "v": "x", "at": 9223372036854775807}', "HR-R003"),
        (b'{"k": 1, "v": "%s", "at": 5}' % (b"y" * 40_000), "HR-R104"),
    ],
    ids=lambda value: value[:30].decode("ascii", "replace") if isinstance(value, bytes) else value,
)
def test_a_bad_json_line_is_rejected_and_its_neighbours_are_not(
    bad: bytes, code: str, tmp_path: Path
) -> None:
    lines = [line(k) for k in range(40)]
    for at in (35, 20, 0):
        lines.insert(at, bad)
    (tmp_path / "in.jsonl").write_bytes(b"\n".join([*lines, bad]))
    out = run_small(tmp_path, '{ path = "in.jsonl", max_line = 20_000 }')
    assert [row["k"] for row in out.rows] == list(range(40))
    assert out.codes == [code] * 4
    assert all(len(each["row"]) < 1100 and each["reason"] for each in out.rejected)


@pytest.mark.parametrize("block", [1, 60, 130, 4096])
def test_blocks_of_any_size_give_the_same_rows(block: int, tmp_path: Path) -> None:
    lines = [line(k) if k % 7 else b'{"k": ' for k in range(60)]
    (tmp_path / "in.jsonl").write_bytes(b"\r\n\n".join(lines))
    out = run_small(tmp_path, f'{{ path = "in.jsonl", block_bytes = {block} }}')
    assert [row["k"] for row in out.rows] == [k for k in range(60) if k % 7]
    assert out.codes == ["HR-R101"] * 9


def test_one_object_on_two_lines_does_not_make_up_for_two_on_one(tmp_path: Path) -> None:
    head, tail = line(3)[:20], line(3)[20:]
    lines = [line(0), head, tail, line(1) + line(2), line(4)]
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    out = run_small(tmp_path, '"in.jsonl"')
    assert [row["k"] for row in out.rows] == [0, 4]
    assert len(out.rejected) == 3


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        ("1,x", "HR-R105"),
        ("1,x,5,6", "HR-R105"),
        ("one,x,5", "HR-R102"),
        ('1,"open,5', "HR-R101"),
        ("1,\udcff,5", "HR-R103"),
        ("1,x,", "HR-R001"),
    ],
)
def test_a_bad_csv_line_is_rejected_and_its_neighbours_are_not(bad: str, code: str, tmp_path: Path) -> None:
    lines = [f'{k},"a,b",{T + k}' for k in range(30)]
    lines[10:10] = [bad]
    lines[20:20] = ["", bad]
    text = "k,v,at\n" + "\n".join(lines) + "\n"
    (tmp_path / "in.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
    out = run_small(tmp_path, '"in.csv"')
    assert [row["k"] for row in out.rows] == list(range(30))
    assert {row["v"] for row in out.rows} == {"a,b"}
    assert out.codes == [code] * 2


def test_empty_files_and_files_without_a_column_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("")
    (tmp_path / "in" / "1.csv").write_text(f"k,v,at\n1,x,{T}\n")
    (tmp_path / "in" / "2.csv").write_text(f"k,at\n2,{T}\n3,{T}\n")
    (tmp_path / "in" / "3.csv").write_text("k,v,at\n")
    (tmp_path / "in" / "4.csv").write_text(f"at,v,extra,k\n{T},y,z,4")
    (tmp_path / "in" / "_5.csv").write_text("not there yet")
    out = run_small(tmp_path, '"in"')
    assert [row["k"] for row in out.rows] == [1, 4]
    assert out.codes == ["HR-R105", "HR-R105"]


def test_times_in_another_unit_are_found_by_earliest_and_by_the_guard(tmp_path: Path) -> None:
    times = [T, T // 1000, T * 1000, T + 1]
    rows = [f'{{"k": {k}, "v": "x", "at": {t}}}' for k, t in enumerate(times)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    out = run_small(
        tmp_path,
        '"in.jsonl"',
        time='{ column = "at", unit = "us", earliest = "2000-01-01" }',
        stream='guard = "1 hour"',
    )
    assert [row["k"] for row in out.rows] == [0, 3]
    assert out.codes == ["HR-R107", "HR-R107"]
    assert not out.late


def test_a_missing_column_may_be_null_if_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(line(0) + b"\n" + b'{"k": 1, "at": %d}\n' % T)
    out = run_small(tmp_path, '{ path = "in.jsonl", missing = "null" }')
    assert sorted((row["k"], row["v"]) for row in out.rows) == [(0, "x"), (1, None)]


def test_a_torn_parquet_file_is_one_rejected_row_and_the_next_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        table = pa.table({"k": [part], "v": ["x"], "at": [T + part]})
        pq.write_table(table, tmp_path / "in" / f"{part}.parquet")
    torn = tmp_path / "in" / "1.parquet"
    torn.write_bytes(torn.read_bytes()[:-20])
    out = run_small(tmp_path, '"in"')
    assert [row["k"] for row in out.rows] == [0, 2]
    assert out.codes == ["HR-R106"]


def test_parquet_values_that_do_not_fit_are_rejected_row_by_row(tmp_path: Path) -> None:
    table = pa.table({"k": ["1", "two", "3"], "v": ["x", "y", "z"], "at": [T, T, T], "more": [1, 2, 3]})
    pq.write_table(table, tmp_path / "in.parquet")
    out = run_small(tmp_path, '"in.parquet"')
    assert [row["k"] for row in out.rows] == [1, 3]
    assert out.codes == ["HR-R102"]


@pytest.mark.slow
def test_a_gigabyte_on_one_line_costs_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "in.jsonl").open("wb") as file:
        file.write(line(0) + b'\n{"k": 1, "v": "')
        for _ in range(1024):
            file.write(b"y" * (1 << 20))
        file.write(b'", "at": 5}\n' + line(2) + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    out = run_small(tmp_path, '"in.jsonl"')
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    (tmp_path / "in.jsonl").unlink()
    assert [row["k"] for row in out.rows] == [0, 2]
    assert out.codes == ["HR-R104"]
    assert grown < 200_000, f"{grown} KiB more"


def test_a_parquet_bomb_is_one_rejected_row_that_says_its_size(tmp_path: Path) -> None:
    """A few KB on disk, 256 MB in one page: pages are decoded as a whole."""
    (tmp_path / "in").mkdir()
    bomb = pa.table({"k": range(4), "v": ["x" * (64 << 20)] * 4, "at": range(T, T + 4)})
    pq.write_table(bomb, tmp_path / "in" / "0.parquet", compression="zstd", use_dictionary=False)
    good = pa.table({"k": [7], "v": ["x"], "at": [T + 7]})
    pq.write_table(good, tmp_path / "in" / "1.parquet")
    out = run_small(tmp_path, '{ path = "in", format = "parquet" }')
    assert [row["k"] for row in out.rows] == [7]
    assert out.codes == ["HR-R108"]
    assert "4 rows" in out.rejected[0]["reason"]
