"""Parquet and Arrow IPC files, read in pieces of bounded memory, even if the file is damaged or hostile.

Sizes are looked up before anything is decoded. A piece that is too large and cannot be divided is rejected,
and the message gives its size. A place is (part, row): a row group of Parquet or a batch of Arrow IPC, and a
row in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pyarrow.types as pt

from headrace import tuning
from headrace.connectors import ipc_sizes
from headrace.connectors.conform import fit
from headrace.connectors.contract import Bad, Block, Code, Opener, empty, local_file, shown
from headrace.connectors.parquet_pages import FOOTER, Group, chunks_of, groups_of, rows_within
from headrace.schema import DataType, Schema

GIVEN_UP: Final = [-1, -1]
"""This place means that the rest of the file cannot be read."""
BUFFER: Final = 1 << 20

Part = tuple[pa.RecordBatch | Bad, list[int]]
"""Rows, or the reason why there are none, and the place after them."""


class ColumnarReader(ABC):
    """A file of batches. Continuing from the last place needs no seek.

    `most` is the maximum size in bytes of a piece that cannot be divided.
    """

    def __init__(
        self, path: Path, schema: Schema, rows: int, most: int, opened: Opener | None = None
    ) -> None:
        self._path, self._schema, self._size, self._most = path, schema, rows, most
        self._is_local, self._opened = opened is None, opened or local_file
        self._parts: Iterator[Part] = iter(())
        self._at: list[int] | None = None

    def read(self, at: Any, *, complete: bool, stop: Any = None) -> tuple[Block, Any] | None:
        if at == GIVEN_UP:
            return None
        try:
            return self._next(list(at or (0, 0)))
        # The bytes are untrusted: any exception that a library raises on them becomes one rejected row.
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            said = str(error).splitlines()[0] if str(error) else type(error).__name__
            return self._without(f"the rest of the file cannot be read: {said}", Code.UNREADABLE), GIVEN_UP

    def _next(self, at: list[int]) -> tuple[Block, Any] | None:
        """The block at a place and the place after it; reopens the file unless reading continues there."""
        if self._at != at:
            self.close()
            self._parts = self._from(*at)
        found = next(self._parts, None)
        if found is None:
            return None
        rows, self._at = found
        if isinstance(rows, Bad):
            return Block(empty(self._schema), (rows,)), self._at
        return self._fitted(rows), self._at

    def _fitted(self, rows: pa.RecordBatch) -> Block:
        """Convert rows to the schema; rows that are not valid become bad rows."""
        for field in rows.schema:
            _check_type(field.type)
        sound, bad = _sound(rows)
        block = fit(sound, self._schema)
        return Block(block.data, (*bad, *block.bad))

    def _without(self, reason: str, code: Code) -> Block:
        """A block without rows, and one bad row with the reason."""
        return Block(empty(self._schema), (Bad(code, reason, str(self._path)),))

    def _too_large(self, what: str, rows: int, size: int) -> Bad:
        """The bad row for a piece that is larger than the limit."""
        reason = (
            f"{what}: {rows:,} rows can only be read together, and take {_bytes(size)}; "
            f"max_block is {_bytes(self._most)}"
        )
        return Bad(Code.TOO_LARGE, reason, str(self._path))

    @abstractmethod
    def _from(self, part: int, row: int) -> Iterator[Part]:
        """The parts of the file, starting at a place."""

    def _wanted(self, names: list[str]) -> list[str]:
        """The columns of the schema that the file has."""
        return [name for name in self._schema.names if name in names]

    def _cut(self, batch: pa.RecordBatch, part: int, at: int, row: int) -> Iterator[Part]:
        """Cut a batch into pieces that stay small when decoded.

        The batch begins at row `at` of its part; rows before `row` are skipped.
        """
        for begin, end in _pieces(batch, self._size):
            if at + end > row:
                first = max(begin, row - at)
                yield batch.slice(first, end - first), [part, at + end]

    def close(self) -> None:
        self._parts, self._at = iter(()), None


class ParquetReader(ColumnarReader):
    """Parquet, a row group at a time, in batches of as many rows as fit."""

    def _from(self, part: int, row: int) -> Iterator[Part]:
        with self._opened(self._path) as raw:
            groups = groups_of(raw)
            raw.seek(0)
            options = {"thrift_string_size_limit": FOOTER, "thrift_container_size_limit": 1 << 20}
            with pq.ParquetFile(raw, buffer_size=BUFFER, **options) as file:
                wanted = self._wanted(file.schema_arrow.names)
                for number in range(part, len(groups)):
                    yield from self._group(file, groups[number], number, row if number == part else 0, wanted)

    def _group(
        self, file: pq.ParquetFile, of: Group, group: int, row: int, wanted: list[str]
    ) -> Iterator[Part]:
        """One row group from `row` on, in batches that fit.

        A bad row if even one row at a time is too large.
        """
        with self._opened(self._path) as raw:
            chunks = chunks_of(raw, of, set(wanted))
        rows, most = rows_within(chunks, self._size, min(tuning.current.columnar_block_bytes, self._most))
        if most > self._most:
            yield self._too_large(f"row group {group}", of.rows, most), [group + 1, 0]
            return
        at = 0
        for batch in file.iter_batches(rows, row_groups=[group], columns=wanted, use_threads=False):
            yield from self._cut(batch, group, at, row)
            at += batch.num_rows


class IpcReader(ColumnarReader):
    """Arrow IPC, the file or the stream format, a batch at a time."""

    def _from(self, part: int, row: int) -> Iterator[Part]:
        with self._opened(self._path) as raw:
            yield from (self._file if ipc_sizes.is_file(raw) else self._stream)(raw, part, row)

    def _file(self, raw: BinaryIO, part: int, row: int) -> Iterator[Part]:
        """The batches of the file format; the footer gives their sizes in advance."""
        dictionaries, batches = ipc_sizes.file_blocks(raw)
        held = sum(ipc_sizes.message_at(raw, at).size for at, _ in dictionaries)
        if held > self._most:
            rows = sum(ipc_sizes.message_at(raw, at).rows for at, _ in batches)
            yield self._too_large("the dictionaries", rows, held), [len(batches), 0]
            return
        with self._open(max((body for _, body in batches), default=0)) as file:
            reader = ipc.open_file(file)
            for number in range(part, len(batches)):
                message = ipc_sizes.message_at(raw, batches[number][0])
                if self._is_too_large(message):
                    bad = self._too_large(f"batch {number}", message.rows, message.size)
                    yield bad, [number + 1, 0]
                else:
                    yield from self._batch(reader.get_batch(number), number, row if number == part else 0)

    def _stream(self, raw: BinaryIO, part: int, row: int) -> Iterator[Part]:
        """The batches of the stream format."""
        # A stream has no list of its batches: if the file is large, any batch may be.
        with self._open(raw.seek(0, 2)) as file:
            reader, number = ipc.open_stream(file), 0
            for message in ipc_sizes.stream_messages(raw):
                if message.kind not in (ipc_sizes.DICTIONARY, ipc_sizes.RECORDS):
                    continue
                if self._is_too_large(message):
                    bad = self._too_large(f"batch {number} and all after it", message.rows, message.size)
                    yield bad, GIVEN_UP
                    return
                if message.kind == ipc_sizes.RECORDS:
                    batch = reader.read_next_batch()
                    if number >= part:
                        yield from self._batch(batch, number, row if number == part else 0)
                    number += 1

    def _is_too_large(self, message: ipc_sizes.Message) -> bool:
        """Whether a message is too large; an uncompressed one can be read in pieces."""
        return message.size > self._most and message.packed

    def _open(self, largest: int) -> pa.NativeFile:
        """Open the file, or map it if an uncompressed batch is large, to read it piece by piece.

        If a mapped file is truncated, the process crashes, so a file is mapped only when necessary.
        """
        if largest > self._most and self._is_local:
            return pa.memory_map(str(self._path))
        return pa.PythonFile(self._opened(self._path), "r")

    def _batch(self, batch: pa.RecordBatch, number: int, row: int) -> Iterator[Part]:
        """One batch: the wanted columns, checked, in pieces."""
        batch = batch.select(self._wanted(batch.schema.names))
        _check_structure(batch)
        yield from self._cut(batch, number, 0, row)


# --- check what was read before anything uses it


def _check_type(of: DataType) -> None:
    """Reject an impossible type: kernels use the scale of a decimal as an index without a check."""
    if pt.is_decimal(of) and abs(of.scale) > of.bit_width * 38 // 128:
        raise ValueError(f"the scale {of.scale} of a decimal column is not valid")
    inner = [of.value_type] if pt.is_dictionary(of) or pt.is_run_end_encoded(of) else []
    for each in [*inner, *(of.field(i).type for i in range(of.num_fields))]:
        _check_type(each)


def _check_structure(batch: pa.RecordBatch) -> None:
    """Check the offsets and indices of a mapped batch, because kernels use them without a check."""
    for column in batch.columns:
        _as_bytes(column).validate(full=True)


def _as_bytes(column: pa.Array) -> pa.Array:
    """Text as bytes, so that only its structure is checked; rows that are not UTF-8 are found later."""
    to = BYTES.get(column.type)
    if to is None:
        return column
    return pa.Array.from_buffers(to, len(column), column.buffers(), offset=column.offset)


BYTES: Final[dict[DataType, DataType]] = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
}


def _sound(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, tuple[Bad, ...]]:
    """The rows with valid values, and the bad rows whose text is not UTF-8."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return rows, ()
    wrong = np.zeros(rows.num_rows, np.bool_)
    bad: dict[int, Bad] = {}
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if column.type not in BYTES:
            column.validate(full=True)
            continue
        for i, value in enumerate(_as_bytes(column).to_pylist()):
            if value is not None and not _is_text(value):
                wrong[i] = True
                bad.setdefault(
                    i, Bad(Code.ENCODING, f"column {name}: the text is not valid UTF-8", shown(value))
                )
    return rows.filter(pa.array(~wrong)), tuple(bad[i] for i in sorted(bad))


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- columns that grow when they are decoded


def _pieces(batch: pa.RecordBatch, rows: int) -> Iterator[tuple[int, int]]:
    """Where to cut a batch: after `rows` rows, or earlier if the decoded rows would take too much memory."""
    most = tuning.current.columnar_block_bytes
    for begin in range(0, batch.num_rows, rows):
        lot = batch.slice(begin, rows)
        sizes = _decoded(lot)
        if sizes is None or int(sizes.sum()) <= most:
            yield begin, begin + lot.num_rows
            continue
        ends = np.cumsum(sizes)
        first = 0
        while first < lot.num_rows:
            spent = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, spent + most, side="right")))
            yield begin + first, begin + end
            first = end


def _decoded(rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
    """Bytes that each row takes in columns that grow when decoded; None if no column does."""
    found = None
    for column in rows.columns:
        sizes = _sizes(column)
        if sizes is not None:
            found = sizes if found is None else found + sizes
    return found


def _sizes(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """Bytes that each value takes once decoded; None if the column does not grow."""
    of = column.type
    if pt.is_dictionary(of):
        return _taken(column.dictionary, column.indices)
    if pt.is_string_view(of) or pt.is_binary_view(of):
        return _lengths(column)
    if pt.is_run_end_encoded(of):
        return np.full(len(column), int(_lengths(column.values).max(initial=0)), np.int64)
    return None


def _taken(values: pa.Array, indices: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of the dictionary value that each index refers to; 0 for null."""
    lengths: npt.NDArray[np.int64] = np.append(_lengths(values), 0)
    at: npt.NDArray[np.int64] = pc.fill_null(indices.cast(pa.int64()), len(values)).to_numpy(
        zero_copy_only=False
    )
    return lengths[at]


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    """Bytes of each value: 8 for primitive types, and the total for types whose lengths are not known."""
    if pt.is_primitive(values.type):
        return np.full(len(values), 8, np.int64)
    try:
        lengths = pc.fill_null(pc.binary_length(values).cast(pa.int64()), 0)
    except pa.ArrowNotImplementedError:
        return np.full(len(values), values.nbytes, np.int64)
    return np.asarray(lengths.to_numpy(zero_copy_only=False))


def _bytes(count: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
