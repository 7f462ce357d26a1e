"""The longest text of a page, with a kernel and without."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.parquet_pages import _longest_of_few, _longest_of_many


@given(st.lists(st.integers(0, 300)))
def test_the_kernel_finds_the_longest_text(lengths: list[int]) -> None:
    page = b"".join(struct.pack("<I", length) + b"\xff" * length for length in lengths)
    assert _longest_of_many(page) == _longest_of_few(page) == max(lengths, default=0)


@given(st.binary(min_size=1, max_size=40))
def test_damaged_pages_are_the_same_with_and_without_it(page: bytes) -> None:
    try:
        expected = _longest_of_few(page)
    except struct.error:
        with pytest.raises(struct.error):
            _longest_of_many(page)
    else:
        assert _longest_of_many(page) == expected
