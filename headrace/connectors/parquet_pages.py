"""Estimates the decoded size of the rows of a Parquet row group from its page headers, before decoding.

A page is decompressed as a whole, and its header gives the decompressed size: the reader trusts that number
and so do we. Column metadata is not enough: with a dictionary, one long text can be a million values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.kernels.page_headers import FOUND, page_header
from headrace.kernels.text_lengths import longest_text

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
DICTIONARY_ENCODINGS: Final = (2, 8)
DELTA_BYTE_ARRAY: Final = 7
HEADER: Final = 1 << 12
"""Bytes to read for a page header at first; statistics can make the header longer."""
LONGEST_HEADER: Final = 16 << 20
FOOTER: Final = 16 << 20
"""Maximum size in bytes of the metadata of one file."""
BYTE_ARRAY, FIXED = 6, 7
WIDTHS: Final = {0: 1, 1: 8, 2: 8, 3: 12, 4: 8, 5: 8, BYTE_ARRAY: 8}
"""Bytes that a value of each physical type takes, in addition to its text.

Fixed-length types give their own.
"""
UNCOMPRESSED: Final = 0
FEW_PAGES: Final = 8
"""Pages of a column for which no kernel is loaded."""
_INNER: Final = {DATA_PAGE: slice(0, 2), DICTIONARY_PAGE: slice(2, 4), DATA_PAGE_V2: slice(4, 6)}
"""By kind of page: where a kernel finds the number of values and their encoding."""
FEW: Final = 1000
"""Texts in a dictionary for which no kernel is loaded."""
CODECS: Final = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}


@dataclass(frozen=True)
class Leaf:
    """A leaf column: the name of the table column it belongs to, and whether it is inside a list."""

    name: str
    length: int
    repeated: bool


@dataclass(frozen=True)
class Column:
    """Location and encoding of a column in a row group."""

    leaf: Leaf
    kind: int
    codec: int
    begin: int
    size: int


@dataclass(frozen=True)
class Group:
    """A row group."""

    rows: int
    columns: list[Column]


def groups_of(file: BinaryIO) -> list[Group]:
    """The row groups, from the metadata at the end of the file.

    Arrow can list them too, but doing so on a damaged file can crash the process with an uncaught C++
    exception.
    """
    size = file.seek(0, 2)
    file.seek(max(0, size - 8))
    length = int.from_bytes(file.read(4), "little")
    if not 0 < length <= size - 8:
        raise ValueError("this is not a Parquet file, or its end is missing")
    if length > FOOTER:
        raise ValueError(f"the metadata has {length:,} bytes; the limit is {FOOTER:,}")
    file.seek(size - 8 - length)
    try:
        found, _ = _struct(file.read(length), 0)
        leaves = _leaves(found[2])
        return [Group(_number(group[3]), _columns(group[1], leaves)) for group in found.get(4, [])]
    except (IndexError, KeyError, TypeError, AttributeError):
        raise ValueError("the metadata is damaged") from None


def _number(of: Any) -> int:
    """A size or offset from the metadata; an error if it is negative or absurdly large."""
    if not isinstance(of, int) or not 0 <= of < 1 << 62:
        raise ValueError("the metadata is damaged: a number in it is not possible")
    return of


def _leaves(schema: list[dict[int, Any]]) -> list[Leaf]:
    """The leaf columns of a schema tree, stored in preorder; each node gives its number of children."""
    leaves: list[Leaf] = []
    # Children left on each level, the name at the top, and whether any ancestor is repeated.
    open_: list[tuple[int, str, bool]] = [(schema[0].get(5, 0), "", False)]
    for node in schema[1:]:
        while open_ and open_[-1][0] == 0:
            open_.pop()
        left, top, above = open_.pop()
        open_.append((left - 1, top, above))
        name = top or node[4].decode("utf-8", "replace")
        repeated = above or node.get(3) == 2
        if node.get(5):
            open_.append((node[5], name, repeated))
        else:
            leaves.append(Leaf(name, _number(node.get(2) or 0), repeated))
    return leaves


def _columns(chunks: list[dict[int, Any]], leaves: list[Leaf]) -> list[Column]:
    """Location of each column chunk, from its metadata; a dictionary page comes before the data pages."""
    found = []
    for i, chunk in enumerate(chunks):
        of = chunk[3]
        begin = _number(of[9])
        if of.get(11):
            begin = min(begin, _number(of[11]))
        found.append(Column(leaves[i], _number(of[1]), _number(of[4]), begin, _number(of[7])))
    return found


@dataclass(frozen=True)
class Page:
    """One page: its first row, its row count, its fixed cost in bytes, and the most that each row adds."""

    first: int
    rows: int
    whole: int
    each: int


@dataclass
class Chunk:
    """One column of a row group: the bytes held throughout, the bytes per row, and the pages."""

    held: int = 0
    width: int = 0
    pages: list[Page] = field(default_factory=list)

    def most(self, rows: int) -> int:
        """The most bytes that any batch takes when the chunk is read in batches of `rows` rows."""
        if not self.pages:
            return self.held + rows * self.width
        first = np.array([page.first for page in self.pages], np.int64)
        lots = np.unique(first // rows) * rows
        until = first + np.array([page.rows for page in self.pages], np.int64)
        whole = _running(np.array([page.whole for page in self.pages], np.int64))
        begin = np.searchsorted(until, lots, side="right")
        end = np.maximum(np.searchsorted(first, lots + rows, side="left"), begin)
        each = max(page.each for page in self.pages)
        return self.held + rows * (self.width + each) + int((whole[end] - whole[begin]).max())


def _running(of: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Running totals, starting at 0."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(of)))


def chunks_of(file: BinaryIO, group: Group, wanted: set[str]) -> list[Chunk]:
    """The wanted columns of a row group."""
    return [_chunk(file, column) for column in group.columns if column.leaf.name in wanted]


def rows_within(chunks: list[Chunk], rows: int, limit: int) -> tuple[int, int]:
    """The largest batch of 1 to `rows` rows that fits into `limit` bytes, and its size in bytes."""
    while (most := sum(chunk.most(rows) for chunk in chunks)) > limit and rows > 1:
        rows = max(1, rows // 2)
    return rows, most


def _chunk(file: BinaryIO, column: Column) -> Chunk:
    """Read the page headers of a column and estimate what its pages take."""
    is_text = column.kind == BYTE_ARRAY
    chunk = Chunk(width=WIDTHS.get(column.kind, column.leaf.length or 16))
    longest, row = 0, 0
    for header in _headers(file, column):
        if header.kind == DICTIONARY_PAGE:
            chunk.held += header.size
            longest = _longest_text(file, column, header) if is_text else 0
        elif header.kind in (DATA_PAGE, DATA_PAGE_V2):
            chunk.pages.append(Page(row, header.values, *_costs(header, longest, is_text)))
            row += header.values
    if column.leaf.repeated:
        # Lists: the value count does not give the row count. Assume that every row needs all pages.
        chunk.held += sum(p.whole + p.rows * (p.each + chunk.width) for p in chunk.pages)
        chunk.pages, chunk.width = [], 0
    return chunk


@dataclass(frozen=True)
class Header:
    """The contents of a page header, and where its page begins."""

    kind: int
    size: int
    packed: int
    values: int
    encoding: int
    at: int


def _costs(header: Header, longest: int, is_text: bool) -> tuple[int, int]:
    """The fixed cost of a data page in bytes, and the most that each of its rows adds."""
    if is_text and header.encoding in DICTIONARY_ENCODINGS:
        return header.size, longest
    if header.encoding == DELTA_BYTE_ARRAY:
        return header.size, header.size
    return header.size * (2 if is_text else 1), 0


def _headers(file: BinaryIO, column: Column) -> Iterator[Header]:
    """The page headers of a column, in order."""
    at, end = column.begin, column.begin + column.size
    # A seek to a far offset would be an error of the file system, not of the file.
    last = file.seek(0, 2)
    number = 0
    while at < end:
        if at >= last:
            raise ValueError(f"the page header at byte {at} is missing")
        header = (_usual_header(file, at) if number >= FEW_PAGES else None) or _header(file, at)
        yield header
        at = header.at + header.packed
        number += 1


def _usual_header(file: BinaryIO, at: int) -> Header | None:
    """Parse the page header at a byte with a kernel; None if it is damaged or unusual in any way."""
    file.seek(at)
    found = np.empty(FOUND, np.int64)
    length = page_header(np.frombuffer(file.read(HEADER), np.uint8), found)
    kind, size, packed, *inner = found.tolist()
    if length < 0 or kind not in _INNER:
        return None
    values, encoding = inner[_INNER[kind]]
    if min(size, packed, values, encoding) < 0:
        return None
    return Header(kind, size, packed, values, encoding, at + length)


def _header(file: BinaryIO, at: int) -> Header:
    """Parse the page header at a byte; a long header is read again with a larger buffer."""
    size = HEADER
    while True:
        file.seek(at)
        data = file.read(size)
        try:
            found, length = _struct(data, 0)
            break
        except IndexError:
            if len(data) < size or size >= LONGEST_HEADER:
                raise ValueError(f"the page header at byte {at} is missing") from None
            size *= 16
    kind, unpacked, packed = (found.get(number, -1) for number in (1, 2, 3))
    inner = found.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0), {})
    encoding = inner.get(4 if kind == DATA_PAGE_V2 else 2, 0)
    values = inner.get(1, 0)
    if not all(isinstance(n, int) and n >= 0 for n in (kind, unpacked, packed, values, encoding)):
        raise ValueError(f"the page header at byte {at} is damaged")
    return Header(kind, unpacked, packed, values, encoding, at + length)


def _longest_text(file: BinaryIO, column: Column, header: Header) -> int:
    """The longest text in a dictionary; if it cannot be decoded, the size of the whole dictionary."""
    file.seek(header.at)
    data: Any = file.read(header.packed)
    try:
        if column.codec != UNCOMPRESSED:
            data = pa.Codec(CODECS[column.codec]).decompress(data, header.size, asbytes=True)
        longest = (_longest_of_few if header.values < FEW else _longest_of_many)(data)
    except (KeyError, struct.error, pa.ArrowException, OSError, MemoryError):
        return header.size
    return min(longest, header.size)


def _longest_of_few(page: bytes) -> int:
    """The greatest of the lengths in front of the texts of a page."""
    longest, at = 0, 0
    while at < len(page):
        (length,) = struct.unpack_from("<I", page, at)
        longest = max(longest, length)
        at += 4 + length
    return longest


def _longest_of_many(page: bytes) -> int:
    """The same with a kernel, which takes some time to load."""
    longest = longest_text(np.frombuffer(page, np.uint8))
    if longest < 0:
        raise struct.error
    return int(longest)


# --- the part of Thrift's compact protocol that page headers need

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
DEEPEST: Final = 16


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned varint, and the offset after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("the metadata is damaged: a number in it is too long")


def _struct(data: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a struct by number, and the offset after it."""
    if depth > DEEPEST:
        raise ValueError("the metadata is nested too deeply")
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
    """A value of a Thrift type, and the offset after it; types that are not needed give None."""
    if kind == _STRUCT:
        return _struct(data, at, depth + 1)
    if kind == _BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise IndexError(at)
        return data[at : at + length], at + length
    if kind in (_BYTE, _TRUE, _FALSE, _DOUBLE):
        return None, at + (8 if kind == _DOUBLE else 1)
    if kind in (_LIST, _SET):
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        if count > len(data) - at:
            raise IndexError(count)
        values = []
        for _ in range(count):
            value, at = _value(data, at, head & 15, depth + 1)
            values.append(value)
        return values, at
    if kind == _MAP:
        raise ValueError("the metadata is damaged: it contains a map")
    raw, at = _varint(data, at)
    return (raw >> 1) ^ -(raw & 1), at
