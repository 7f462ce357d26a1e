"""State that can be snapshotted at the cost of the change.

An operator's state is made of parts. `changes(full=False)` gives what changed since the last call, as a
chunk of plain arrays; applying a full chunk and then every later one, in order, to a fresh part gives the
same state. A chain is linear: each call moves the mark from which the next counts.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.plain import plain_array

Value: TypeAlias = int | float | str | bool | npt.NDArray[Any] | pa.RecordBatch | None
Chunk: TypeAlias = Mapping[str, Any]


class Part(Protocol):
    """A piece of state that knows what changed in it."""

    def bytes(self) -> int:
        """Bytes held."""
        ...

    def changes(self, full: bool) -> Chunk:
        """Everything (`full`), or what changed since the last call; then move the mark."""
        ...

    def apply(self, chunk: Chunk) -> None:
        """Take over a chunk that `changes` gave, and count from there."""
        ...


class Cell:
    """A handful of named scalars, written whole each time."""

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
    """Bytes of a part without spare room and without what is kept for the next snapshot."""
    more = [getattr(part, name)() for name in ("log_bytes", "spare_bytes") if hasattr(part, name)]
    return int(part.bytes() - sum(more))


def encode(chunk: Chunk) -> bytes:
    """A chunk as bytes: a JSON header, then the raw arrays and Arrow IPC batches."""
    header: dict[str, Any] = {}
    bodies: list[bytes] = []
    at = 0
    for name, value in chunk.items():
        if isinstance(value, pa.RecordBatch):
            body = _batch_to_bytes(value)
            header[name] = {"kind": "batch", "at": at, "size": len(body)}
        elif isinstance(value, np.ndarray):
            body = np.ascontiguousarray(value).tobytes()
            header[name] = {"kind": "array", "at": at, "size": len(body)}
            header[name] |= {"dtype": value.dtype.str, "shape": value.shape}
        else:
            header[name] = {"kind": "scalar", "value": value}
            continue
        bodies.append(body)
        at += len(body)
    head = json.dumps(header).encode()
    return struct.pack("<I", len(head)) + head + b"".join(bodies)


def decode(data: bytes) -> dict[str, Value]:
    """The chunk that `encode` wrote."""
    (size,) = struct.unpack_from("<I", data)
    header = json.loads(data[4 : 4 + size])
    body = memoryview(data)[4 + size :]
    return {name: _decode_value(entry, body) for name, entry in header.items()}


def _decode_value(entry: dict[str, Any], body: memoryview) -> Value:
    if entry["kind"] == "scalar":
        scalar: Value = entry["value"]
        return scalar
    part = body[entry["at"] : entry["at"] + entry["size"]]
    if entry["kind"] == "batch":
        return pa.ipc.open_stream(pa.py_buffer(part)).read_next_batch()
    return plain_array(part, entry["dtype"], entry["shape"])


def _batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())
