"""No row and no query text makes an expression take all memory or time."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Engine, query
from headrace.errors import ExpressionError, HeadraceError
from headrace.expressions import col, compile, evaluate, fn
from headrace.expressions.growth import LONGEST

S = pa.schema([("s", pa.string()), ("p", pa.string()), ("n", pa.int64())])


def both(expression: Any, rows: list[dict[str, Any]]) -> list[Any]:
    """The values of the compiled form, which are those of the naive one."""
    batch = pa.RecordBatch.from_pylist(rows, S)
    found = compile(expression, S)(batch).to_pylist()
    assert found == [evaluate(expression, row, S) for row in batch.to_pylist()]
    return found


# --- regular expressions


def test_a_regular_expression_that_backtracks_elsewhere_takes_no_time_here() -> None:
    """Python's `re` needs 2 to the power of the length for this."""
    engine = Engine(now=-1)
    sql = "SELECT regexp_extract(s, '(a+)+$', 1) AS x, regexp_count(s, '(a|a)*!$') AS n FROM t"
    engine.add("q", query(sql, {"t": pa.schema([("s", pa.string())])}, ticks_per_second=1))
    engine.push(
        "t", pa.RecordBatch.from_pylist([{"s": "a" * 50_000 + "!"}], pa.schema([("s", pa.string())])), [1]
    )
    engine.run()
    rows = [row for batch in engine.drain("q") for row in batch.data.to_pylist()]
    assert [(row["x"], row["n"]) for row in rows] == [("", 1)]


def test_a_pattern_that_is_data_takes_no_time_either() -> None:
    rows = [{"s": "a" * 50_000 + "!", "p": "(a+)+$", "n": 1}, {"s": "x", "p": "(", "n": 1}]
    assert both(fn("regexp_extract", col("s"), col("p"), col("n")), rows) == ["", None]
    assert both(fn("regexp_count", col("s"), col("p")), rows) == [0, None]


atoms = st.sampled_from(
    ["a", "b", "[ab]", "[^a]", ".", r"\d", r"\w", "(a)", "(ab|b)", "(?:ba)", r"[\]a]", "[]a]"]
)
pieces = st.tuples(atoms, st.sampled_from(["", "", "+", "?", "*", "{2}", "+?"])).map("".join)
patterns = st.lists(pieces, min_size=1, max_size=4).map("".join)
subjects = st.text("ab]1 ", max_size=12)


@given(pattern=patterns, text=subjects, group=st.integers(0, 2))
def test_regular_expressions_agree_with_python_on_what_both_know(pattern: str, text: str, group: int) -> None:
    regex = re.compile(pattern, re.ASCII)
    match = regex.search(text)
    expected = None if group > regex.groups else (match[group] or "") if match else ""
    row = {"s": text, "p": None, "n": None}
    if not _repeats_a_group(pattern):
        assert both(fn("regexp_extract", col("s"), pattern, group), [row]) == [expected]
    matches = list(regex.finditer(text))
    adjacent = sum(m.end() == m.start() == before.end() for before, m in pairwise(matches))
    assert both(fn("regexp_count", col("s"), pattern), [row]) == [len(matches) - adjacent]


def _repeats_a_group(pattern: str) -> bool:
    """What a group holds that was repeated and matched nothing the last time differs between libraries."""
    return re.search(r"\)[+*?{]", pattern) is not None


@pytest.mark.parametrize("pattern", ["(a)\\1", "a(?=b)", "(?<!a)b", "a*+b", "(", "[a", "a{2000}"])
def test_what_re2_does_not_take_is_an_error_with_its_place(pattern: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        query(f"SELECT regexp_extract(s, r'{pattern}', 1) AS x FROM t", {"t": S})
    assert "is not a valid regular expression" in str(caught.value)
    assert "line 1, column 8" in str(caught.value)
    assert "RE2" in caught.value.hint


@pytest.mark.parametrize(
    ("pattern", "group", "found"),
    [
        (r"(?P<year>\d+)-(\d+)", 1, "2026"),
        (r"(?<year>\d+)-(\d+)", 2, "11"),
        (r"[(]?(\d+)", 1, "2026"),
        (r"\((\d+)", 1, ""),
        (r"[[:digit:](]+-(\d)", 1, "1"),
        (r"\Q(\E|(\d)", 1, "2"),
        (r"(?i)(\d)", 0, "2"),
    ],
)
def test_groups_are_counted_as_re2_counts_them(pattern: str, group: int, found: str) -> None:
    row = {"s": "2026-11", "p": None, "n": None}
    assert both(fn("regexp_extract", col("s"), pattern, group), [row]) == [found]


# --- long texts


@pytest.mark.parametrize(
    "sql",
    [
        "length(lpad('x', 2000000000, 'z'))",
        "lpad(s, 2000000000, 'z')",
        "rpad('x', 9223372036854775807, 'é')",
        "replace(lpad('a', 20000, 'a'), 'a', lpad('b', 20000, 'b'))",
        "concat(lpad('a', 9000000, 'a'), s, lpad('a', 9000000, 'a'))",
    ],
)
def test_a_constant_text_that_is_too_long_is_an_error_with_its_place(sql: str) -> None:
    with pytest.raises(HeadraceError, match=r"would return a string of .* bytes.*\(at line 1, column"):
        query(f"SELECT {sql} AS n FROM t", {"t": S})


def test_a_text_that_a_row_makes_too_long_is_null() -> None:
    rows = [{"s": "x", "p": "z", "n": n} for n in (3, LONGEST + 5, 2**62, -1)]
    assert both(fn("lpad", col("s"), col("n"), "z"), rows) == ["zzx", None, None, ""]
    assert both(fn("rpad", col("s"), col("n"), col("p")), rows) == ["xzz", None, None, ""]
    long = [{"s": "a" * 5000, "p": "b" * 5000, "n": 0}, {"s": "ca", "p": "b" * 3, "n": 0}]
    assert both(fn("replace", col("s"), "a", col("p")), long) == [None, "cbbb"]
    assert both(fn("replace", col("s"), "a", "b" * 4000), long) == [None, "c" + "b" * 4000]
    halves = [
        {"s": "a" * (LONGEST // 2 + 1), "p": "b" * (LONGEST // 2), "n": 0},
        {"s": "a", "p": "b", "n": 0},
    ]
    assert both(fn("concat", col("s"), col("p")), halves) == [None, "ab"]


@pytest.mark.parametrize(
    "width", [fn("lpad", col("s"), 10_000_000, "z"), fn("lpad", col("s"), col("n"), "z")]
)
def test_a_batch_of_long_texts_is_refused_before_it_is_made(width: Any) -> None:
    batch = pa.RecordBatch.from_pylist([{"s": "x", "p": None, "n": 10_000_000}] * 200, S)
    with pytest.raises(ExpressionError, match="HR-E016"):
        compile(width, S)(batch)


def test_a_query_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(HeadraceError, match="HR-Q006"):
        query(f"SELECT '{'x' * 140_000}' AS n FROM t", {"t": S})


def test_a_number_of_many_digits_is_refused_at_once() -> None:
    """It took two minutes: the pattern of numbers tried every way to cut the digits."""
    with pytest.raises(HeadraceError, match="HR-Q019") as caught:
        query(f"SELECT {'9' * 100_000} AS n FROM t", {"t": S})
    assert len(str(caught.value)) < 2000


def test_a_text_of_many_digits_that_is_no_number_is_null_at_once() -> None:
    rows = [{"s": "9" * 300_000 + "x", "p": None, "n": None}]
    for kind in (pa.float64(), pa.decimal128(38, 2), pa.int64()):
        assert both(col("s").cast(kind), rows) == [None]


def test_positions_and_widths_at_the_edge_of_their_type() -> None:
    """An OverflowError each, found by `make fuzz`."""
    rows = [{"s": "abc", "p": "", "n": 2**63 - 1}, {"s": "", "p": "", "n": -(2**63)}]
    assert both(fn("substring", col("s"), 2, 2**63 - 1), rows) == ["bc", ""]
    assert both(fn("substring", col("s"), col("n"), col("n")), rows) == ["", ""]
    assert both(fn("lpad", col("s"), col("n"), ""), rows) == ["abc", ""]
    assert both(fn("rpad", col("s"), 2**63 - 1, ""), rows) == ["abc", ""]


@pytest.mark.parametrize(
    "condition", ["NULL", "CASE WHEN n > 1 THEN NULL END", "CASE WHEN n > 1 THEN NULL ELSE NULL END"]
)
def test_a_condition_that_is_only_ever_null_holds_for_no_row(condition: str) -> None:
    """An IndexError, found by `make fuzz`: a column of no type has no bits."""
    engine = Engine(now=-1)
    engine.add("q", query(f"SELECT n FROM t WHERE {condition}", {"t": S}, ticks_per_second=1))
    engine.push(
        "t", pa.RecordBatch.from_pylist([{"s": "a", "p": "b", "n": n} for n in (1, 2, None)], S), [1, 2, 3]
    )
    engine.streams.end("t")
    assert sum(len(batch) for batch in engine.drain("q")) == 0
