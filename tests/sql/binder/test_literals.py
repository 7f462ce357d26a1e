"""Quotes inside quotes, texts that follow each other, and whole division, as Spark 4 reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SqlError
from headrace.testing.asking import ask

STREAM = "CREATE STREAM s (v STRING, a BIGINT, b BIGINT); "
LONG = (
    st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9) | st.sampled_from([-(2**63), 2**53 + 1, 2**63 - 1])
)


def value(expression: str, *row: object) -> object:
    ((_, found),) = ask(f"{STREAM}SELECT {expression} AS x FROM s", s=[(1, *(row or ("it's", 7, 2)))])
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'it''s'", "it's"),
        ("v = 'it''s'", True),
        ("''''", "'"),
        ("''", ""),
        ("concat('''', v, '''')", "'it's'"),
        (r"'it\'s'", "it's"),
        ('"say ""a"""', 'say "a"'),
        ("'say \"\"a'", 'say ""a'),
        ("\"it''s\"", "it''s"),
        ("'a' 'b'", "ab"),
        ("'a''' 'b'", "a'b"),
        (r"r'a\d'", r"a\d"),
    ],
)
def test_quotes(expression: str, expected: object) -> None:
    assert value(expression) == expected


@given(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
    st.sampled_from("'\""),
)
def test_a_text_is_read_as_it_was_written(text: str, quote: str) -> None:
    """Backslashes and the quote itself are doubled, nothing else."""
    written = text.replace("\\", "\\\\").replace(quote, quote * 2)
    assert value(f"{quote}{written}{quote}") == text


@given(LONG, LONG)
def test_div_is_exact_and_rounds_towards_zero(a: int, b: int) -> None:
    exact = None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    expected = exact if exact is not None and exact < 2**63 else None
    assert value("a DIV b", "", a, b) == expected
    if b >= 0:
        assert value(f"a DIV {b}", "", a, 1) == expected


def test_div_beyond_the_digits_of_a_double() -> None:
    assert value("a DIV 1", "", 9007199254740995, 0) == 9007199254740995
    assert value("-7.5 DIV 2") == -3


def test_div_of_doubles_is_refused_with_a_hint() -> None:
    with pytest.raises(SqlError, match=r"'DIV' is not defined for \(double, int\)") as error:
        value("1e0 DIV 2")
    assert "CAST(a / b AS BIGINT)" in str(error.value)
