"""One rule for times in text: every spelling, by the kernel, by JSON lines and by CSV."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.connectors.conform import times_of
from headrace.connectors.contract import Block
from headrace.connectors.csv_lines import CsvLines
from headrace.connectors.json_lines import JsonLines
from headrace.connectors.tables import read_table
from headrace.errors import HeadraceError
from headrace.expressions.types import sql_name
from tests.connectors.spellings import SPELLINGS, TIMES, expected

INSTANT, WALL = pa.timestamp("us", "UTC"), pa.timestamp("us")
KINDS = [INSTANT, WALL]


def schema(of: pa.DataType) -> pa.Schema:
    return pa.schema([("i", pa.int64()), ("at", of)])


def as_json(texts: list[str], of: pa.DataType) -> Block:
    lines = [json.dumps({"i": i, "at": text}, ensure_ascii=False) for i, text in enumerate(texts)]
    return JsonLines(schema(of)).decode("\n".join(lines).encode())


def as_csv(texts: list[str], of: pa.DataType) -> Block:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(enumerate(texts))
    return CsvLines(schema(of), ["i", "at"]).decode(out.getvalue().encode())


READERS = {"json": as_json, "csv": as_csv}


def read(block: Block) -> dict[int, dt.datetime]:
    return {row["i"]: row["at"].replace(tzinfo=None) for row in block.data.to_pylist()}


def wanted(texts: list[str], of: pa.DataType = INSTANT) -> dict[int, dt.datetime]:
    times = {i: expected(text, wall=of.tz is None) for i, text in enumerate(texts)}
    return {i: time for i, time in times.items() if time is not None}


def test_the_table_says_what_the_rule_says() -> None:
    for text, said in SPELLINGS.items():
        assert expected(text) == (None if said is None else dt.datetime.fromisoformat(said)), text


@pytest.mark.parametrize("of", KINDS, ids=str)
@pytest.mark.parametrize("name", READERS)
def test_every_spelling_in_every_format(name: str, of: pa.DataType) -> None:
    texts = list(SPELLINGS)
    block = READERS[name](texts, of)
    assert read(block) == wanted(texts, of)
    bad = [text for i, text in enumerate(texts) if i not in wanted(texts, of)]
    assert [each.reason for each in block.bad] == [
        f"column at: {json.dumps(text, ensure_ascii=False)} is not a {sql_name(of).upper()}" for text in bad
    ]
    assert all(each.code == "HR-R102" for each in block.bad)
    assert all(text.strip() in each.raw for text, each in zip(bad, block.bad, strict=True))


@given(st.lists(TIMES, min_size=1, max_size=20), st.sampled_from(KINDS))
@example(list(SPELLINGS), INSTANT)
def test_all_formats_read_the_same_times(texts: list[str], of: pa.DataType) -> None:
    made, bad = times_of(pa.array(texts), of)
    times = [None if time is None else time.replace(tzinfo=None) for time in made.to_pylist()]
    assert {i: time for i, time in enumerate(times) if not bad[i]} == wanted(texts, of)
    assert all(times[i] is None for i in range(len(texts)) if bad[i])
    for reader in READERS.values():
        assert read(reader(texts, of)) == wanted(texts, of)


@given(st.lists(TIMES, min_size=1, max_size=20))
def test_a_date_is_a_time_of_ten_characters(texts: list[str]) -> None:
    days = {i: t.date() for i, t in wanted(texts).items() if len(texts[i].strip(" \t")) == 10}
    for reader in READERS.values():
        rows = reader(texts, pa.date32()).data.to_pylist()
        assert {row["i"]: row["at"] for row in rows} == days


def test_null_is_null_and_slices_are_read_from_where_they_begin() -> None:
    texts = pa.array(["x", None, "2026-01-02", None, "y"])
    made, bad = times_of(texts.slice(1, 3), pa.timestamp("us"))
    assert made.to_pylist() == [None, dt.datetime(2026, 1, 2), None]
    assert not bad.any()
    assert as_csv(["", "  "], pa.timestamp("us")).data.column("at").null_count == 2


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_tables_read_times_by_the_same_rule(ending: str, tmp_path: Path) -> None:
    good = [text for text, said in SPELLINGS.items() if said is not None]
    path = tmp_path / f"times.{ending}"

    def write(texts: list[str]) -> None:
        rows = [json.dumps({"at": text}) for text in texts]
        path.write_text("\n".join(["at", *(f'"{t}"' for t in texts)] if ending == "csv" else rows))

    write(good)
    found = read_table(path, pa.schema([("at", INSTANT)])).column("at").to_pylist()
    assert [time.replace(tzinfo=None) for time in found] == [expected(text) for text in good]
    write([good[0], "2026-02-30"])
    with pytest.raises(HeadraceError, match=r'HR-I023.*column at: "2026-02-30" is not a') as raised:
        read_table(path, pa.schema([("at", INSTANT)]))
    assert raised.value.place == str(path)
