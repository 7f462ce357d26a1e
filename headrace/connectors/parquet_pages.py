"""How much memory the rows of a Parquet row group take once decoded, from its page headers, before any is.

A page is decompressed as a whole, and its header says how large it becomes: the reader trusts that number and
so do we. Metadata about a whole column says less: with a dictionary, one long text can be a million values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS: Final = (2, 8)
DELTA_BYTE_ARRAY: Final = 7
HEADER: Final = 1 << 12
"""Bytes read for a page header at first; statistics in it can make it longer."""
LONGEST_HEADER: Final = 16 << 20
WIDTHS: Final = {"BOOLEAN": 1, "INT32": 8, "INT64": 8, "INT96": 12, "FLOAT": 8, "DOUBLE": 8, "BYTE_ARRAY": 8}
"""Bytes that a value takes beside its text; FIXED_LEN_BYTE_ARRAY says its own."""
CODECS: Final = {"SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "ZSTD": "zstd", "LZ4_RAW": "lz4_raw"}


@dataclass(frozen=True)
class Page:
    """One page: its first row, its rows, what it takes as a whole, and what each row of it may take more."""

    first: int
    rows: int
    whole: int
    each: int


@dataclass
class Chunk:
    """One column of a row group: the bytes that are held throughout, the bytes a row takes, and the pages."""

    held: int = 0
    width: int = 0
    pages: list[Page] = field(default_factory=list)

    def most(self, rows: int, total: int) -> int:
        """The most that any `rows` rows take which are read one lot after another."""
        if not self.pages:
            return self.held + rows * self.width
        lots = np.arange(0, max(total, 1), rows, dtype=np.int64)
        first = np.array([page.first for page in self.pages], np.int64)
        until = first + np.array([page.rows for page in self.pages], np.int64)
        whole = _running(np.array([page.whole for page in self.pages], np.int64))
        begin = np.searchsorted(until, lots, side="right")
        end = np.maximum(np.searchsorted(first, lots + rows, side="left"), begin)
        each = max(page.each for page in self.pages)
        return self.held + rows * (self.width + each) + int((whole[end] - whole[begin]).max())


def _running(of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(of)))


def chunks_of(file: BinaryIO, metadata: Any, group: int, wanted: set[str]) -> list[Chunk]:
    """The columns of a row group that are wanted, by the name before the first dot."""
    row_group = metadata.row_group(group)
    found = []
    for i in range(row_group.num_columns):
        column = row_group.column(i)
        if column.path_in_schema.split(".")[0] in wanted:
            found.append(_chunk(file, metadata.schema.column(i), column))
    return found


def rows_within(chunks: list[Chunk], total: int, rows: int, limit: int) -> tuple[int, int]:
    """How many rows at a time take no more than `limit` bytes, and how many bytes that is; at least one."""
    while (most := sum(chunk.most(rows, total) for chunk in chunks)) > limit and rows > 1:
        rows = max(1, rows // 2)
    return rows, most


def _chunk(file: BinaryIO, schema: Any, column: Any) -> Chunk:
    is_text = column.physical_type == "BYTE_ARRAY"
    chunk = Chunk(width=WIDTHS.get(column.physical_type, schema.length or 16))
    longest, row = 0, 0
    for header in _headers(file, column):
        if header.kind == DICTIONARY_PAGE:
            chunk.held += header.size
            longest = _longest_text(file, column, header) if is_text else 0
        elif header.kind in (DATA_PAGE, DATA_PAGE_V2):
            chunk.pages.append(Page(row, header.values, *_costs(header, longest, is_text)))
            row += header.values
    if schema.max_repetition_level:
        # Lists: values say nothing about rows. All pages are taken to belong to every row.
        chunk.held += sum(p.whole + p.rows * (p.each + chunk.width) for p in chunk.pages)
        chunk.pages, chunk.width = [], 0
    return chunk


@dataclass(frozen=True)
class Header:
    """What a page header says, and where the page is."""

    kind: int
    size: int
    packed: int
    values: int
    encoding: int
    at: int


def _costs(header: Header, longest: int, is_text: bool) -> tuple[int, int]:
    """The bytes of a data page as a whole, and the most for each of its rows beside them."""
    if is_text and header.encoding in DICTIONARY_ENCODINGS:
        return header.size, longest
    if header.encoding == DELTA_BYTE_ARRAY:
        return header.size, header.size
    return header.size * (2 if is_text else 1), 0


def _headers(file: BinaryIO, column: Any) -> Iterator[Header]:
    at = column.data_page_offset
    if column.has_dictionary_page and column.dictionary_page_offset:
        at = min(at, column.dictionary_page_offset)
    end = at + column.total_compressed_size
    while at < end:
        header = _header(file, at)
        yield header
        at = header.at + header.packed


def _header(file: BinaryIO, at: int) -> Header:
    size = HEADER
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            found, length = _struct(data, 0)
            break
        except IndexError:
            if len(data) < size or size >= LONGEST_HEADER:
                raise ValueError(f"there is no page header at byte {at}") from None
            size *= 16
    kind, unpacked, packed = (found.get(number, -1) for number in (1, 2, 3))
    inner = found.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0), {})
    encoding = inner.get(4 if kind == DATA_PAGE_V2 else 2, 0)
    values = inner.get(1, 0)
    if not all(isinstance(n, int) and n >= 0 for n in (kind, unpacked, packed, values, encoding)):
        raise ValueError(f"the page header at byte {at} makes no sense")
    return Header(kind, unpacked, packed, values, encoding, at + length)


def _longest_text(file: BinaryIO, column: Any, header: Header) -> int:
    """The longest text of a dictionary; if it cannot be looked at, all of it may be one."""
    file.seek(header.at)
    data: Any = file.read(header.packed)
    try:
        if column.compression != "UNCOMPRESSED":
            data = pa.Codec(CODECS[column.compression]).decompress(data, header.size, asbytes=True)
        longest, at = 0, 0
        while at < len(data):
            (length,) = struct.unpack_from("<I", data, at)
            longest = max(longest, length)
            at += 4 + length
    except (KeyError, struct.error, pa.ArrowException, OSError, MemoryError):
        return header.size
    return min(longest, header.size)


# --- Thrift's compact protocol, as much as page headers need

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
DEEPEST: Final = 16


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number in a page header is too long")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a structure by their numbers, and where it ends."""
    if depth > DEEPEST:
        raise ValueError("a page header is nested too deeply")
    found: dict[int, Any] = {}
    number = 0
    while (head := data[at]) != _STOP:
        at += 1
        if head >> 4:
            number += head >> 4
        else:
            raw, at = _varint(data, at)
            number = (raw >> 1) ^ -(raw & 1)
        kind = head & 15
        if kind in (_TRUE, _FALSE):
            found[number] = kind == _TRUE
        else:
            found[number], at = _value(data, at, kind, depth)
    return found, at + 1


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (_BYTE, _TRUE, _FALSE, _DOUBLE):
        return None, at + (8 if kind == _DOUBLE else 1)
    if kind in (_LIST, _SET):
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        for _ in range(count):
            _, at = _value(data, at, head & 15, depth + 1)
        return None, at
    if kind == _MAP:
        raise ValueError("a page header holds a map")
    raw, at = _varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at
