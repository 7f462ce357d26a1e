"""Growable columns: append at the tail, read anywhere, forget from the head; each at amortised unit cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace import tuning
from headrace.arrays import Indices
from headrace.errors import SpillError
from headrace.flow.fixed64 import empty as unset_words
from headrace.kernels.gather import gather_bytes
from headrace.schema import DataType
from headrace.spill.mapped_arrays import empty, held, is_mapped, mapped_bytes, moved
from headrace.spill.store import SpillStore

_CARRIERS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}
_WORD = 8


class Buffer:
    """A NumPy array that grows at the tail and shrinks at the head; once on disk it stays there."""

    __slots__ = ("_array", "_head", "_spill_store", "_tail")

    def __init__(self, dtype: npt.DTypeLike, width: int = 0) -> None:
        self._array = np.empty((16, width) if width else (16,), dtype)
        self._head = 0
        self._tail = 0
        self._spill_store: SpillStore | None = None

    def __len__(self) -> int:
        return self._tail - self._head

    @property
    def view(self) -> npt.NDArray[Any]:
        """The live values; valid until the next append or drop."""
        return self._array[self._head : self._tail]

    def append(self, values: npt.NDArray[Any]) -> None:
        """Add values at the tail."""
        self.reserve(len(values))
        self._array[self._tail : self._tail + len(values)] = values
        self._tail += len(values)

    def extend(self, count: int) -> npt.NDArray[Any]:
        """Add `count` unset values and return the view to write them into."""
        self.reserve(count)
        self._tail += count
        return self._array[self._tail - count : self._tail]

    def drop(self, count: int) -> None:
        """Forget `count` values at the head; shrinks when seven eighths of the space are dead."""
        self._head += count
        live = self._tail - self._head
        if len(self._array) > tuning.current.shrink_above and 8 * live < len(self._array):
            self.replace(self._array[self._head : self._tail].copy())

    def reserve(self, count: int) -> None:
        """Make room: shift the live values down if a quarter of the space is then free, else grow.

        A shift moves at most three values in place for each value appended since the last shift. New memory
        costs page faults, which are more expensive than the move.
        """
        if self._tail + count <= len(self._array):
            return
        live = self._tail - self._head
        if 4 * (live + count) <= 3 * len(self._array):
            self._shift(live)
            return
        size = 4 * (live + count) // 3 + 16
        target = empty((size, *self._array.shape[1:]), self._array.dtype, self._spill_store)
        target[:live] = self._array[self._head : self._tail]
        self._array, self._head, self._tail = target, 0, live

    def _shift(self, live: int) -> None:
        """Move the live values to the front, in pieces that do not overlap."""
        array, step = self._array, self._head
        for begin in range(0, live, step):
            stop = min(begin + step, live)
            array[begin:stop] = array[begin + step : stop + step]
        self._head, self._tail = 0, live

    def fit(self) -> None:
        """Free all spare room but a sixteenth."""
        live = self._tail - self._head
        if len(self._array) > tuning.current.shrink_above and 16 * len(self._array) > 17 * live:
            self.replace(self._array[self._head : self._tail].copy())

    def release(self) -> None:
        """Free spare room, except the third that keeps appending cheap."""
        live = self._tail - self._head
        if 2 * len(self._array) > 3 * live + 48:
            shape = (max(16, 4 * live // 3), *self._array.shape[1:])
            target = empty(shape, self._array.dtype, self._spill_store)
            target[:live] = self._array[self._head : self._tail]
            self._array, self._head, self._tail = target, 0, live

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        if self._spill_store is not None and is_mapped(self._array):
            return 0
        return (len(self._array) - len(self)) * int(self._array.strides[0])

    def replace(self, values: npt.NDArray[Any]) -> None:
        """Replace all values by these."""
        if self._spill_store is not None:
            with suppress(SpillError):
                values = moved(values, self._spill_store)
        self._array, self._head, self._tail = values, 0, len(values)

    def bytes(self) -> int:
        """Bytes held, including spare room."""
        return int(self._array.nbytes) if self._spill_store is None else held(self._array)

    def move_to_disk(self, spill_store: SpillStore) -> None:
        """Move the values into a mapped file of a spill store."""
        live = self._array[self._head : self._tail]
        if (
            not is_mapped(self._array)
            and len(live)
            and live.nbytes >= spill_store.least
            and not live.dtype.hasobject
        ):
            self._array, self._head, self._tail = moved(live, spill_store), 0, len(live)
        self._spill_store = spill_store

    def mapped_bytes(self) -> int:
        """Bytes on disk."""
        return 0 if self._spill_store is None else mapped_bytes(self._array)


class Column(ABC):
    """A growable column of Arrow values."""

    def __init__(self, type: DataType) -> None:
        self.type = type
        self._valid: Buffer | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, array: pa.Array) -> None:
        """Add the values of an Arrow array of this type."""
        if array.null_count and self._valid is None:
            self._valid = Buffer(np.bool_)
            self._valid.append(np.ones(self._count, np.bool_))
        if self._valid is not None:
            self._valid.append(valid_mask(array))
        self._count += len(array)
        self._append(array)

    def take(self, indices: Indices) -> pa.Array:
        """The values at positions counted from the head."""
        valid = None if self._valid is None else np.take(self._valid.view, indices)
        return self._take(indices, _bitmap(valid))

    def drop(self, count: int) -> None:
        """Forget values at the head."""
        self._count -= count
        if self._valid is not None:
            self._valid.drop(count)
        self._drop(count)

    def fit(self) -> None:
        """Free spare room."""
        for buffer in (self._valid, *self._buffers()):
            if buffer is not None:
                buffer.fit()

    def bytes(self) -> int:
        """Bytes held."""
        own = sum(buffer.bytes() for buffer in self._buffers())
        return (0 if self._valid is None else self._valid.bytes()) + own

    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers that hold the values."""
        return self._buffers() if self._valid is None else (self._valid, *self._buffers())

    def spare_bytes(self) -> int:
        """Bytes of spare room."""
        return sum(buffer.spare_bytes() for buffer in (self._valid, *self._buffers()) if buffer is not None)

    def release(self) -> None:
        """Free spare room."""
        if self._valid is not None:
            self._valid.release()
        for buffer in self._buffers():
            buffer.release()

    @abstractmethod
    def _append(self, array: pa.Array) -> None: ...

    @abstractmethod
    def _take(self, indices: Indices, bitmap: pa.Buffer | None) -> pa.Array: ...

    @abstractmethod
    def _drop(self, count: int) -> None: ...

    @abstractmethod
    def _buffers(self) -> tuple[Buffer, ...]: ...


class FixedColumn(Column):
    """Values of 1, 2, 4, 8 or 16 bytes."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._values = Buffer(_CARRIERS[type.bit_width // 8])

    def _append(self, array: pa.Array) -> None:
        self._values.append(raw_values(array))

    def _take(self, indices: Indices, bitmap: pa.Buffer | None) -> pa.Array:
        there = self._values.view
        if there.dtype.itemsize != _WORD:
            values = np.take(there, indices)
        else:  # in NumPy, `out` costs a copy unless indices are clipped; these indices are always in range
            values = unset_words(len(indices)).view(there.dtype)
            np.take(there, indices, out=values, mode="clip")
        return pa.Array.from_buffers(self.type, len(values), [bitmap, pa.py_buffer(values)])

    def _drop(self, count: int) -> None:
        self._values.drop(count)

    def _buffers(self) -> tuple[Buffer, ...]:
        return (self._values,)


class BooleanColumn(Column):
    """One byte per boolean."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._values = Buffer(np.bool_)

    def _append(self, array: pa.Array) -> None:
        self._values.append(pc.fill_null(array, pa.scalar(False)).to_numpy(zero_copy_only=False))

    def _take(self, indices: Indices, bitmap: pa.Buffer | None) -> pa.Array:
        bits = _bitmap(np.take(self._values.view, indices))
        return pa.Array.from_buffers(self.type, len(indices), [bitmap, bits])

    def _drop(self, count: int) -> None:
        self._values.drop(count)

    def _buffers(self) -> tuple[Buffer, ...]:
        return (self._values,)


class BytesColumn(Column):
    """Strings and binaries: a heap of bytes with begin and length per value."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._heap = Buffer(np.uint8)
        self._forgotten = 0
        self._begins = Buffer(np.int64)
        self._lengths = Buffer(np.int64)

    def _append(self, array: pa.Array) -> None:
        offsets, data = byte_values(array)
        base = self._forgotten + len(self._heap)
        self._heap.append(data[offsets[0] : offsets[-1]] if len(offsets) > 1 else data[:0])
        self._begins.append(offsets[:-1] - offsets[0] + base if len(offsets) > 1 else offsets[:0])
        self._lengths.append(np.diff(offsets))

    def _take(self, indices: Indices, bitmap: pa.Buffer | None) -> pa.Array:
        begins = self._begins.view[indices] - self._forgotten
        offsets = np.zeros(len(indices) + 1, np.int64)
        np.cumsum(self._lengths.view[indices], out=offsets[1:])
        out = np.empty(int(offsets[-1]), np.uint8)
        gather_bytes(begins, np.asarray(self._heap.view, np.uint8), offsets, out)
        large = pt.is_large_string(self.type) or pt.is_large_binary(self.type)
        index = offsets if large else offsets.astype(np.int32)
        buffers = [bitmap, pa.py_buffer(index), pa.py_buffer(out)]
        return pa.Array.from_buffers(self.type, len(indices), buffers)

    def heap(self) -> tuple[Indices, Indices, npt.NDArray[np.uint8]]:
        """The begin and length of each value, and the bytes; only while no values have been dropped."""
        assert not self._forgotten
        begins, lengths = (np.asarray(b.view, np.int64) for b in (self._begins, self._lengths))
        return begins, lengths, np.asarray(self._heap.view, np.uint8)

    def _drop(self, count: int) -> None:
        self._begins.drop(count)
        self._lengths.drop(count)
        first = int(self._begins.view[0]) if len(self._begins) else self._forgotten + len(self._heap)
        self._heap.drop(first - self._forgotten)
        self._forgotten = first

    def _buffers(self) -> tuple[Buffer, ...]:
        return self._heap, self._begins, self._lengths


class ObjectColumn(Column):
    """Any other type, as Python values: correct, not fast."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._values = Buffer(np.object_)

    def _append(self, array: pa.Array) -> None:
        values = np.empty(len(array), np.object_)
        values[:] = array.to_pylist()
        self._values.append(values)

    def _take(self, indices: Indices, bitmap: pa.Buffer | None) -> pa.Array:
        return pa.array(list(np.take(self._values.view, indices)), self.type)

    def _drop(self, count: int) -> None:
        self._values.drop(count)

    def _buffers(self) -> tuple[Buffer, ...]:
        return (self._values,)

    def bytes(self) -> int:
        return super().bytes() + 64 * self._count


def column_for(type: DataType) -> Column:
    """The column that stores values of `type`."""
    if pt.is_boolean(type):
        return BooleanColumn(type)
    if is_bytes(type):
        return BytesColumn(type)
    if is_fixed(type):
        return FixedColumn(type)
    return ObjectColumn(type)


def is_bytes(type: DataType) -> bool:
    """Whether values are byte strings with offsets."""
    kinds = (pt.is_string, pt.is_binary, pt.is_large_string, pt.is_large_binary)
    return any(is_kind(type) for is_kind in kinds)


def is_fixed(type: DataType) -> bool:
    """Whether values are a power-of-two number of whole bytes, up to 16."""
    try:
        return bool(pt.is_primitive(type) or pt.is_decimal128(type)) and type.bit_width // 8 in _CARRIERS
    except ValueError:
        return False


def raw_values(array: pa.Array) -> npt.NDArray[Any]:
    """The fixed-width values as they are in memory, zero-copy; undefined where null."""
    carrier = np.dtype(_CARRIERS[array.type.bit_width // 8])
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), carrier)
    return np.frombuffer(buffer, carrier, len(array), array.offset * carrier.itemsize)


def byte_values(array: pa.Array) -> tuple[Indices, npt.NDArray[np.uint8]]:
    """Offsets (int64, length + 1) and bytes of a string or binary array."""
    large = pt.is_large_string(array.type) or pt.is_large_binary(array.type)
    _, index, data = array.buffers()
    if index is None or len(array) == 0:
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets = np.frombuffer(index, dtype, len(array) + 1, array.offset * dtype.itemsize).astype(np.int64)
    return offsets, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def valid_mask(array: pa.Array) -> npt.NDArray[np.bool_]:
    """True where a value is not null."""
    if array.null_count == 0:
        return np.ones(len(array), np.bool_)
    mask: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def _bitmap(valid: npt.NDArray[Any] | None) -> pa.Buffer | None:
    """A mask as an Arrow validity bitmap."""
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
