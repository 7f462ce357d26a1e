"""Finds the decoded size of the batches of an Arrow IPC file from their metadata, before decoding.

Compressed buffers begin with their decoded size: the reader allocates that much. The metadata (flatbuffers)
is parsed here with every access checked against the bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

MAGIC: Final = b"ARROW1"
SCHEMA, DICTIONARY, RECORDS = 1, 2, 3
LONGEST: Final = 64 << 20
"""Maximum size in bytes of the metadata of one message: a schema of a million columns is smaller."""


@dataclass(frozen=True)
class Message:
    """One message: its kind, where its metadata begins, its total length, its rows, and its decoded size."""

    kind: int
    at: int
    length: int
    rows: int
    size: int
    packed: bool


def is_file(file: BinaryIO) -> bool:
    """Whether this is the file format, not the stream format."""
    file.seek(0)
    return file.read(len(MAGIC)) == MAGIC


def file_blocks(file: BinaryIO) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The dictionaries and batches listed in the footer of a file: the offset and size of each."""
    size = file.seek(0, 2)
    (length,) = struct.unpack("<i", _read(file, size - len(MAGIC) - 4, 4))
    if not 0 < length <= min(size, LONGEST):
        raise ValueError("the length of the footer is not valid")
    footer = _Table.root(_read(file, size - len(MAGIC) - 4 - length, length))
    dictionaries, batches = (
        [(at, body) for at, _, body in footer.structs(field, "<qi4xq")] for field in (2, 3)
    )
    return dictionaries, batches


def stream_messages(file: BinaryIO) -> Iterator[Message]:
    """The messages of the stream format, one after the other."""
    at, end = 0, file.seek(0, 2)
    while at < end:
        message = message_at(file, at)
        if not message.length:
            return
        yield message
        at += message.length


def message_at(file: BinaryIO, at: int) -> Message:
    """The message at an offset; its length is 0 at the end of a stream."""
    (length,), skip = struct.unpack("<i", _read(file, at, 4)), 4
    if length == -1:
        (length,), skip = struct.unpack("<i", _read(file, at + 4, 4)), 8
    if length == 0:
        return Message(0, at, 0, 0, 0, False)
    if not 0 < length <= LONGEST:
        raise ValueError(f"the length of the metadata at byte {at} is not valid: {length}")
    table = _Table.root(_read(file, at + skip, length))
    kind, body = table.number(1, "<B"), table.number(3, "<q")
    whole = skip + length + body
    if body < 0 or at + whole > file.seek(0, 2):
        raise ValueError(f"the length of the message at byte {at} is not valid: {body}")
    records = table.table(2)
    if kind == DICTIONARY and records is not None:
        records = records.table(1)
    if kind not in (DICTIONARY, RECORDS) or records is None:
        return Message(kind, at, whole, 0, 0, False)
    packed = records.table(3) is not None
    size = _decoded(file, at + skip + length, records) if packed else body
    return Message(kind, at, whole, records.number(0, "<q"), size, packed)


def _decoded(file: BinaryIO, body: int, records: _Table) -> int:
    """The decoded size of all compressed buffers of a batch."""
    total = 0
    for at, length in records.structs(2, "<qq"):
        if length < 8:
            continue
        (size,) = struct.unpack("<q", _read(file, body + at, 8))
        total += length if size < 0 else size
    return total


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """Exactly `size` bytes at an offset; an error if they are not there."""
    end = file.seek(0, 2)
    # A seek to a far offset would be an error of the file system, not of the file.
    if not 0 <= at <= end:
        raise ValueError("the metadata points outside the file")
    if at + size > end:
        raise ValueError("the file ends in the middle of its metadata")
    file.seek(at)
    return file.read(size)


def _unpacked(form: str, data: bytes, at: int) -> tuple[int, ...]:
    """Unpack numbers; an error if they are out of bounds."""
    try:
        return struct.unpack_from(form, data, at)
    except struct.error:
        raise ValueError("the metadata is damaged: an offset is outside of it") from None


class _Table:
    """A flatbuffers table: fields by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._get("<i", at)
        self._size = self._get("<H", self._fields)

    @classmethod
    def root(cls, data: bytes) -> _Table:
        """The root table of a flatbuffer."""
        return cls(data, _unpacked("<I", data, 0)[0])

    def _get(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("the metadata is damaged: an offset is negative")
        return int(_unpacked(form, self._data, at)[0])

    def _field(self, number: int) -> int:
        """The offset of a field; 0 if it is absent."""
        entry = 4 + 2 * number
        offset = self._get("<H", self._fields + entry) if entry < self._size else 0
        return self._at + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        """An integer field; 0 if it is absent."""
        at = self._field(field)
        return self._get(form, at) if at else 0

    def table(self, field: int) -> _Table | None:
        at = self._field(field)
        return _Table(self._data, at + self._get("<I", at)) if at else None

    def structs(self, field: int, form: str) -> Iterator[tuple[int, ...]]:
        """The structures of a vector."""
        at = self._field(field)
        if not at:
            return
        at += self._get("<I", at)
        for i in range(self._get("<I", at)):
            yield _unpacked(form, self._data, at + 4 + i * struct.calcsize(form))
