"""State with incremental snapshots, which cost as much as the change.

The state of an operator consists of parts. `changes(full=False)` returns what changed since the last call, as
a chunk of plain arrays. A full chunk and all later ones, applied in order to a new part, restore the same
state. A chain is linear: each call starts the next increment.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.schema import DataType, Schema
from headrace.state.plain import plain_array

Value: TypeAlias = int | float | str | bool | npt.NDArray[Any] | pa.RecordBatch | None
Chunk: TypeAlias = Mapping[str, Any]


class Part(Protocol):
    """A part of the state that tracks its changes."""

    def bytes(self) -> int:
        """Bytes held."""
        ...

    def changes(self, full: bool) -> Chunk:
        """Everything (`full`), or what changed since the last call; starts the next increment."""
        ...

    def apply(self, chunk: Chunk) -> None:
        """Apply a chunk that `changes` returned; starts the next increment."""
        ...


class Cell:
    """A few named scalars, all written each time."""

    def __init__(self, **values: int | float | str | None) -> None:
        self.values: dict[str, Any] = dict(values)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def __setitem__(self, name: str, value: int | float | str | None) -> None:
        self.values[name] = value

    def bytes(self) -> int:
        return 64 * len(self.values)

    def changes(self, full: bool) -> Chunk:
        return dict(self.values)

    def apply(self, chunk: Chunk) -> None:
        self.values.update(chunk)


def tight_bytes(part: Any) -> int:
    """Bytes of a part without spare room and without its log for the next snapshot."""
    more = [getattr(part, name)() for name in ("log_bytes", "spare_bytes") if hasattr(part, name)]
    return int(part.bytes() - sum(more))


def encode(chunk: Chunk) -> bytes:
    """A chunk as bytes: a JSON header, then the raw arrays and Arrow IPC batches."""
    return b"".join(encoded_pieces(chunk))


def encoded_pieces(chunk: Chunk) -> list[Any]:
    """The same in pieces, each with a buffer of its own, so that the caller copies large ones only once."""
    header: dict[str, Any] = {}
    bodies: list[Any] = []
    at = 0
    for name, value in chunk.items():
        if isinstance(value, pa.RecordBatch):
            body: Any = _batch_to_buffer(value)
            header[name] = {"kind": "batch", "at": at, "size": body.size}
            size = body.size
        elif isinstance(value, np.ndarray):
            body = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            size = value.nbytes
            header[name] = {"kind": "array", "at": at, "size": size}
            header[name] |= {"dtype": value.dtype.str, "shape": value.shape}
        else:
            header[name] = {"kind": "scalar", "value": value}
            continue
        bodies.append(body)
        at += size
    head = json.dumps(header).encode()
    return [struct.pack("<I", len(head)), head, *bodies]


def decode(data: bytes) -> dict[str, Value]:
    """The chunk that `encode` wrote."""
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    body = memoryview(data)[4 + size :]
    return {name: _decode_value(entry, body) for name, entry in header.items()}


def _decode_value(entry: dict[str, Any], body: memoryview) -> Value:
    """One value of a chunk, from its entry in the header."""
    if entry["kind"] == "scalar":
        scalar: Value = entry["value"]
        return scalar
    part = body[entry["at"] : entry["at"] + entry["size"]]
    if entry["kind"] == "batch":
        return pa.ipc.open_stream(pa.py_buffer(part)).read_next_batch()
    return plain_array(part, entry["dtype"], entry["shape"])


def _batch_to_buffer(batch: pa.RecordBatch) -> pa.Buffer:
    """An Arrow stream with one batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


# Columns that became wider between two runs: state of the old type is converted to the new one.
#
# Accumulators and keys hold words of eight bytes, which are the same for all integer types, and for all float
# types. So only stored rows have to be cast. Any other change of type would change the meaning of words, and
# is refused.


_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
_SMALL: Final = 18
"""Decimals with up to this many digits are words themselves; larger ones are kept in a dictionary."""


def goes_on(old: DataType, new: DataType) -> bool:
    """Whether state for columns of type `old` is also valid for columns of type `new`, exactly."""
    if old == new:
        return True
    if pt.is_decimal128(old) and pt.is_decimal128(new):
        same_form = old.scale == new.scale and (old.precision <= _SMALL) == (new.precision <= _SMALL)
        return same_form and bool(old.precision <= new.precision)
    return any(_is_wider(old, new, family) for family in (_INTEGERS, _FLOATS))


def _is_wider(old: DataType, new: DataType, family: tuple[DataType, ...]) -> bool:
    """True if both types are of the family and the new one has more bits."""
    return old in family and new in family and old.bit_width < new.bit_width


def widened(rows: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """The rows, with each column cast to its type in `schema` if that is wider."""
    if rows.schema.equals(schema):
        return rows
    fields = [_field(field, schema) for field in rows.schema]
    if [field.type for field in fields] == rows.schema.types:
        return rows
    columns = [column.cast(field.type) for column, field in zip(rows.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))


def _field(field: pa.Field, schema: Schema) -> pa.Field:
    """The field with its new type in the schema, if that is a wider one."""
    at = schema.get_field_index(field.name)
    if at < 0 or schema.field(at).type == field.type or not goes_on(field.type, schema.field(at).type):
        return field
    return field.with_type(schema.field(at).type)
