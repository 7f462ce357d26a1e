"""`headrace.sql`: every kind of input and output, the law that it equals the oracle, and its errors."""

from __future__ import annotations

import builtins
import datetime as dt
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace import tuning
from headrace.errors import HeadraceError
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

PER_MINUTE = """
    SELECT item, count(*) AS n, sum(price) AS total
    FROM clicks [RANGE 1 MINUTE SLIDE 1 MINUTE] GROUP BY item
"""
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> dt.datetime:
    return START + dt.timedelta(seconds=seconds)


ROWS = [
    {"item": "lamp", "price": 2, "at": at(70)},
    {"item": "lamp", "price": 3, "at": at(5)},
    {"item": "desk", "price": 7, "at": at(50)},
    {"item": "lamp", "price": 4, "at": at(59)},
]
TABLE = pa.Table.from_pylist(ROWS)
ANSWER = [
    {"item": "lamp", "n": 2, "total": 7},
    {"item": "desk", "n": 1, "total": 7},
    {"item": "lamp", "n": 1, "total": 2},
]


def by_content(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: sorted(map(str, row.items())))


def texts() -> list[dict[str, Any]]:
    return [{**row, "at": row["at"].strftime("%Y-%m-%dT%H:%M:%SZ")} for row in ROWS]


# --- what goes in

OBJECTS: dict[str, Callable[[], Any]] = {
    "arrow table": lambda: TABLE,
    "record batch": lambda: TABLE.combine_chunks().to_batches()[0],
    "record batch reader": lambda: TABLE.to_reader(max_chunksize=1),
    "list of dicts": lambda: ROWS,
    "list of dicts with text": texts,
    "tuple of dicts": lambda: tuple(ROWS),
    "dict of lists": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "dict of arrays": lambda: {
        "item": pa.array([row["item"] for row in ROWS]).dictionary_encode(),
        "price": np.array([row["price"] for row in ROWS], np.uint8),
        "at": TABLE.column("at"),
    },
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas with its index": lambda: pd.DataFrame(ROWS).set_index("at"),
    "pandas with categories": lambda: pd.DataFrame(ROWS).astype({"item": "category"}),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars categorical": lambda: pl.DataFrame(ROWS).with_columns(pl.col("item").cast(pl.Categorical)),
    "duckdb": lambda: duckdb.from_arrow(TABLE),
    "duckdb text": lambda: duckdb.from_arrow(pa.Table.from_pylist(texts())),
    "a result": lambda: headrace.sql("SELECT item, price, at FROM clicks", clicks=ROWS, time="at"),
    "milliseconds": lambda: TABLE.set_column(2, "at", TABLE.column("at").cast(pa.timestamp("ms", "UTC"))),
    "another zone": lambda: TABLE.set_column(
        2, "at", TABLE.column("at").cast(pa.timestamp("ns", "Asia/Tokyo"))
    ),
}


@pytest.mark.parametrize("kind", OBJECTS)
def test_every_kind_of_object_gives_the_same_answer(kind: str) -> None:
    found = headrace.sql(PER_MINUTE, clicks=OBJECTS[kind](), time="at")
    assert by_content(found.to_dicts()) == by_content(ANSWER)
    assert (found.late.num_rows, found.rejected.num_rows) == (0, 0)


def arrow_stream(path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, TABLE.schema) as writer:
        writer.write_table(TABLE)


FILES: dict[str, Callable[[Path], Any]] = {
    "rows.csv": lambda path: pa.csv.write_csv(TABLE, path),
    "rows.jsonl": lambda path: path.write_text(pl.DataFrame(texts()).write_ndjson()),
    "rows.ndjson": lambda path: path.write_text(pl.DataFrame(texts()).write_ndjson()),
    "rows.parquet": lambda path: pa.parquet.write_table(TABLE, path),
    "rows.feather": lambda path: pa.feather.write_feather(TABLE, path, compression="uncompressed"),
    "rows.arrow": arrow_stream,
    "rows.arrows": arrow_stream,
    "rows.ipc": arrow_stream,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("as_text", [True, False])
def test_every_kind_of_file_gives_the_same_answer(name: str, as_text: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    FILES[name](path)
    found = headrace.sql(PER_MINUTE, clicks=str(path) if as_text else path)
    assert by_content(found.to_dicts()) == by_content(ANSWER)
    assert found.rejected.num_rows == 0


def test_bad_lines_of_a_file_are_rejected_with_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "item,price,at\nlamp,2,2026-01-01 00:00:05\nlamp,1,2,3,4\ndesk,3,\nlamp,4,2026-01-01 00:00:06\n"
    )
    found = headrace.sql(PER_MINUTE, clicks=path)
    assert found.to_dicts() == [{"item": "lamp", "n": 2, "total": 6}]
    assert {row["code"] for row in found.rejected.to_pylist()} == {"HR-R001", "HR-R105"}
    assert "2 rejected" in repr(found)
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"item":"a","price":1,"at":"2026-01-01T00:00:00Z"}\nnot json\n')
    found = headrace.sql(PER_MINUTE, clicks=lines)
    assert len(found) == 1
    assert [row["code"] for row in found.rejected.to_pylist()] == ["HR-R101"]


def test_texts_that_are_not_times_are_rejected() -> None:
    rows = [{"item": "a", "price": 1, "at": text} for text in ("2026-01-01T00:00:00Z", "yesterday", None)]
    found = headrace.sql(PER_MINUTE, clicks=rows, time="at")
    assert found.to_dicts() == [{"item": "a", "n": 1, "total": 1}]
    told = {row["code"]: row["reason"] for row in found.rejected.to_pylist()}
    assert told["HR-R102"] == 'column at: "yesterday" is not a TIMESTAMP'
    assert "HR-R001" in told


def test_a_key_that_a_row_does_not_have_is_null() -> None:
    rows = [{"at": 1, "a": 5}, {"at": 2, "b": "x"}]
    found = headrace.sql("SELECT a, b FROM s", s=rows, time="at")
    assert found.to_dicts() == [{"a": 5, "b": None}, {"a": None, "b": "x"}]


def test_integers_are_sequence_numbers() -> None:
    found = headrace.sql(
        "SELECT count(*) AS n FROM s [RANGE 10 SLIDE 10]", s={"t": np.arange(25, dtype=np.int32)}, time="t"
    )
    assert [row["n"] for row in found] == [10, 10, 5]
    assert found.times.to_pylist() == [9, 19, 29]


def test_an_empty_table_has_an_empty_answer_with_its_columns() -> None:
    found = headrace.sql(PER_MINUTE, clicks=TABLE.slice(0, 0), time="at")
    assert len(found) == 0
    assert found.columns == ["item", "n", "total"]
    assert "0 rows" in repr(found)
    assert bool(found)


# --- streams and tables

SHELF = [{"item": "lamp", "colour": "red"}, {"item": "desk", "colour": "blue"}]
JOINED = "SELECT c.item, s.colour FROM clicks [NOW] AS c, shelf AS s WHERE c.item = s.item"


@pytest.mark.parametrize("time", ["at", {"clicks": "at"}, None])
def test_a_source_without_a_time_is_a_table(time: Any) -> None:
    found = headrace.sql(JOINED, clicks=ROWS, shelf=SHELF, time=time)
    assert [row["colour"] for row in found] == ["red", "blue", "red", "red"]


def test_two_streams_and_names_that_are_not_python_names() -> None:
    found = headrace.sql(
        "SELECT a.item FROM `time` [RANGE 1 MINUTE] AS a, clicks [NOW] AS c WHERE a.item = c.item",
        {"time": [{"item": "lamp", "when": at(0)}], "clicks": ROWS},
        time={"time": "when", "clicks": "at"},
    )
    assert found.to_dicts() == [{"item": "lamp"}] * 2


def test_the_package_is_still_a_package() -> None:
    import headrace.sql as package

    assert headrace.sql is package
    assert package.Query is headrace.Query
    assert callable(headrace.sql)
    assert "clicks=df" in str(inspect.getdoc(headrace.frames.sql))


# --- what comes out


def test_the_answer_in_every_form() -> None:
    found = headrace.sql(PER_MINUTE, clicks=ROWS, time="at")
    as_arrow = found.to_arrow()
    assert pa.table(found) == as_arrow
    assert found.to_polars().to_dicts() == found.to_dicts()
    assert pl.DataFrame(found).to_dicts() == found.to_dicts()
    assert found.to_pandas().to_dict("records") == found.to_dicts()
    assert duckdb.sql("SELECT sum(n) FROM found").fetchall() == [(4,)]
    assert found.times.to_pylist() == [at(60) - dt.timedelta(microseconds=1)] * 2 + [
        at(120) - dt.timedelta(microseconds=1)
    ]


def test_show_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    headrace.sql("SELECT item, price, price > 3 AS dear FROM clicks", clicks=ROWS, time="at").show(2)
    assert capsys.readouterr().out.splitlines() == [
        "item  price  dear",
        "────  ─────  ─────",
        "lamp      3  false",
        "desk      7  true",
        "4 rows, 2 shown",
    ]


def test_html_is_escaped_and_text_has_no_control_characters() -> None:
    rows = [{"at": 1, "a": "<script>\n\x1b[31m"}]
    found = headrace.sql("SELECT a FROM s", s=rows, time="at")
    assert "<script>" not in found._repr_html_()
    assert "&lt;script&gt;" in found._repr_html_()
    assert "\x1b" not in repr(found)
    assert "1 row" in found._repr_html_()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = headrace.sql(PER_MINUTE, clicks=ROWS, time="at")
    for package in ("pandas", "polars"):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(HeadraceError, match=rf"\[HR-I078\] {package} is not installed") as caught:
            getattr(found, f"to_{package}")()
        assert f"pip install {package}" in caught.value.hint


def test_no_other_library_is_imported() -> None:
    program = """
import sys, headrace
rows = [{"at": 1, "a": 1}]
assert len(headrace.sql("SELECT a FROM s", s=rows, time="at")) == 1
assert not {"polars", "duckdb", "pyspark"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- bounds

LATE = [{"v": v, "t": t} for v, t in enumerate([0, 100, 95, 5, 200, 120])]


def test_without_bounds_nothing_is_late() -> None:
    found = headrace.sql("SELECT v FROM s", s=LATE, time="t")
    assert [row["v"] for row in found] == [0, 3, 2, 1, 5, 4]
    assert found.late.num_rows == 0


def test_with_bounds_rows_come_in_the_order_of_the_table() -> None:
    found = headrace.sql("SELECT v FROM s [RANGE 10]", s=LATE, time="t", bounds={"s": {"disorder": 10}})
    assert [row["v"] for row in found] == [0, 2, 1, 4]
    assert [(row["time"], row["stream"]) for row in found.late.to_pylist()] == [(5, "s"), (120, "s")]
    assert "2 late" in repr(found)


def test_a_stream_that_bounds_do_not_name_is_taken_in_order() -> None:
    text = "SELECT v FROM s [NOW] UNION ALL SELECT v FROM r [NOW]"
    found = headrace.sql(text, s=LATE, r=LATE, time="t", bounds={"s": {"disorder": 10}})
    assert {row["stream"] for row in found.late.to_pylist()} == {"s"}
    assert len(found) == 10


# --- laws

QUERIES = (
    "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 8 SLIDE 4] GROUP BY k",
    "SELECT k, v FROM s WHERE v > 1",
    "SELECT k, max(v) AS most FROM s [RANGE 6] GROUP BY k",
    "SELECT a.v AS one, b.v AS two FROM s [RANGE 5] AS a, r [RANGE 7] AS b WHERE a.k = b.k",
    "SELECT k, count(*) AS n FROM s [SESSION 3] GROUP BY k",
)
some_rows = st.lists(
    st.fixed_dictionaries(
        {"t": st.integers(0, 30), "k": st.sampled_from("ab"), "v": st.none() | st.integers(-3, 3)}
    ),
    max_size=12,
)
SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.string()), ("v", pa.int64())])


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def events(found: headrace.Result) -> list[tuple[int, tuple[Any, ...]]]:
    return [(time, tuple(row.values())) for time, row in zip(found.times.to_pylist(), found, strict=True)]


def expected(text: str, given: dict[str, list[dict[str, Any]]]) -> list[tuple[int, tuple[Any, ...]]]:
    streams = [headrace.StreamDef(name, SCHEMA, time_column="t", ticks_per_second=None) for name in given]
    plan = headrace.query(text, streams, ticks_per_second=None).logical
    return oracle.stream(
        plan, {n: sorted(((r["t"], r) for r in rows), key=lambda e: e[0]) for n, rows in given.items()}
    )


@given(st.sampled_from(QUERIES), some_rows, some_rows, st.integers(1, 5))
def test_the_answer_over_tables_is_that_of_the_oracle(
    text: str, s: list[dict[str, Any]], r: list[dict[str, Any]], block: int
) -> None:
    with tuning.using(batch_rows=block):
        found = headrace.sql(text, s=table(s), r=table(r), time="t")
    assert_same_stream(events(found), expected(text, {"s": s, "r": r}))
    assert (found.late.num_rows, found.rejected.num_rows) == (0, 0)


@given(st.sampled_from(QUERIES), some_rows, some_rows, st.integers(1, 31), st.integers(1, 5))
def test_with_bounds_the_rows_that_are_not_late_give_the_answer(
    text: str, s: list[dict[str, Any]], r: list[dict[str, Any]], disorder: int, block: int
) -> None:
    """A row is late if it is more than `disorder` behind the newest row before it; the rest is the input."""
    bounds = {"s": {"disorder": disorder}}
    with tuning.using(batch_rows=block):
        found = headrace.sql(text, s=table(s), r=table(r), time="t", bounds=bounds)
    newest = [max((row["t"] for row in s[:i]), default=-1_000) for i in range(len(s))]
    is_late = [row["t"] < most - disorder for row, most in zip(s, newest, strict=True)]
    kept = [row for row, late in zip(s, is_late, strict=True) if not late]
    assert found.late.num_rows == sum(is_late)
    assert_same_stream(events(found), expected(text, {"s": kept, "r": r}))


# --- errors


def refused(code: str, *args: Any, **kwargs: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        headrace.sql(*args, **kwargs)
    assert caught.value.code == code, caught.value
    assert caught.value.hint
    return caught.value


def test_a_time_column_that_does_not_exist() -> None:
    error = refused("HR-I076", PER_MINUTE, clicks=ROWS, time="att")
    assert "did you mean 'at'?" in error.hint
    assert error.place == "clicks"
    refused("HR-I076", PER_MINUTE, clicks=ROWS, time={"clicks": "when"})


def test_no_time_column_and_several() -> None:
    assert "time=" in refused("HR-I076", "SELECT a FROM s", s=[{"a": 1}]).hint
    several = [{"a": at(1), "b": at(2)}]
    assert "a, b" in refused("HR-I076", "SELECT a FROM s", s=several).message
    assert "clicks=rows" in refused("HR-I076", "SELECT a FROM s").hint


def test_a_window_on_a_table_names_the_remedy() -> None:
    text = "SELECT c.item FROM clicks [NOW] AS c, shelf [RANGE 1 MINUTE] AS s WHERE c.item = s.item"
    error = refused("HR-Q022", text, clicks=ROWS, shelf=SHELF)
    assert "time=" in error.hint
    assert "shelf (item string" in error.hint
    assert "^" in str(error)


def test_an_unknown_stream() -> None:
    assert "clicks" in refused("HR-Q010", "SELECT item FROM click", clicks=ROWS).hint
    assert "did you mean 'clicks'?" in refused("HR-I077", PER_MINUTE, clicks=ROWS, time={"click": "at"}).hint
    refused("HR-I077", PER_MINUTE, {"clicks": ROWS}, clicks=ROWS)


@pytest.mark.parametrize(
    "data", [7, b"bytes", [1, 2], object(), {1, 2}, {"a": [1, 2], "b": [1]}, [{"a": 1}, {"a": "x"}]]
)
def test_an_object_without_rows(data: Any) -> None:
    assert refused("HR-I075", "SELECT a FROM s", s=data, time="a").place == "s"


def test_sources_that_have_no_name() -> None:
    refused("HR-I075", PER_MINUTE, ROWS)


def test_a_wrong_file(tmp_path: Path) -> None:
    assert "nowhere.csv" in refused("HR-I021", PER_MINUTE, clicks=tmp_path / "nowhere.csv").place
    (tmp_path / "rows.xlsx").write_text("")
    assert ".parquet" in refused("HR-I020", PER_MINUTE, clicks=tmp_path / "rows.xlsx").hint
    (tmp_path / "rows.parquet").write_text("not parquet")
    refused("HR-I022", PER_MINUTE, clicks=tmp_path / "rows.parquet")
    (tmp_path / "rows.csv").write_text("")
    refused("HR-I022", PER_MINUTE, clicks=tmp_path / "rows.csv")
    (tmp_path / "rows.jsonl").write_text("nothing\n")
    refused("HR-I022", PER_MINUTE, clicks=tmp_path / "rows.jsonl")


def test_a_column_that_cannot_be_the_time() -> None:
    assert "'v' is a DOUBLE" in refused("HR-I079", "SELECT v FROM s", s=[{"v": 1.5}], time="v").message
    refused("HR-I079", "SELECT v FROM s", s={"v": np.array([2**63], np.uint64)}, time="v")


def test_wrong_bounds() -> None:
    bad: Any = {"clicks": {"disordr": "1 second"}}
    assert "disorder" in refused("HR-T075", PER_MINUTE, clicks=ROWS, time="at", bounds=bad).hint
    refused("HR-T075", PER_MINUTE, clicks=ROWS, time="at", bounds={"click": {"disorder": "1 second"}})


def test_printing_needs_no_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_rich(name: str, *args: Any, **kwargs: Any) -> Any:
        assert not name.startswith("rich")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_rich)
    assert "lamp" in repr(headrace.sql(PER_MINUTE, clicks=ROWS, time="at"))
