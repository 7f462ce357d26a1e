"""Headers of pages are the same with a kernel and without, or the kernel says that they are unusual."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors import parquet_pages
from headrace.connectors.parquet_pages import Header, _header, _headers, _usual_header, groups_of

PAGES = 20


def written(version: str) -> bytes:
    """A file with columns of several pages: with dictionaries, without, and with texts in statistics."""
    rows = np.arange(PAGES * 50)
    table = pa.table({"k": rows % 7, "v": rows / 8, "t": [f"text {each}" * (1 + each % 9) for each in rows]})
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        use_dictionary=["k", "t"],
        data_page_size=64,
        write_batch_size=50,
        data_page_version=version,
        write_page_checksum=True,
    )
    return file.getvalue()


FILES = [written("1.0"), written("2.0")]


def headers(content: bytes) -> list[Header]:
    file = io.BytesIO(content)
    columns = (column for group in groups_of(file) for column in group.columns)
    return [header for column in columns for header in _headers(file, column)]


def begins(content: bytes) -> list[int]:
    """Where the headers of a file begin."""
    file, found = io.BytesIO(content), []
    for group in groups_of(file):
        for column in group.columns:
            at = column.begin
            for header in _headers(file, column):
                found.append(at)
                at = header.at + header.packed
    return found


@pytest.mark.parametrize("content", FILES, ids=["1.0", "2.0"])
def test_usual_headers_are_found_by_the_kernel(content: bytes) -> None:
    file, places = io.BytesIO(content), begins(content)
    assert len(places) > 3 * PAGES
    assert [_usual_header(file, at) for at in places] == [_header(file, at) for at in places]


@pytest.mark.parametrize("content", FILES, ids=["1.0", "2.0"])
def test_all_headers_are_the_same_without_it(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = headers(content)
    monkeypatch.setattr(parquet_pages, "_usual_header", lambda file, at: None)
    assert headers(content) == expected


@given(
    st.sampled_from([content[at : at + 90] for content in FILES for at in begins(content)]),
    st.lists(st.tuples(st.integers(0, 89), st.integers(0, 255)), max_size=4),
    st.integers(1, 90),
)
def test_damaged_headers_are_the_same_or_left_out(
    header: bytes, damage: list[tuple[int, int]], size: int
) -> None:
    data = bytearray(header)
    for at, value in damage:
        data[at % len(data)] = value
    check(bytes(data[:size]))


@given(st.binary(max_size=60))
def test_what_is_no_header_is_the_same_or_left_out(data: bytes) -> None:
    check(data)


def check(data: bytes) -> None:
    found = _usual_header(io.BytesIO(data), 0)
    if found is not None:
        assert found == _header(io.BytesIO(data), 0)


def test_a_file_that_ends_before_a_page_is_refused() -> None:
    content = FILES[0]
    group = groups_of(io.BytesIO(content))[0]
    with pytest.raises(ValueError, match="is missing"):
        list(_headers(io.BytesIO(content[: group.columns[0].begin + 40]), group.columns[0]))
