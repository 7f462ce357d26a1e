"""Packages: rows on their way between Spark and the engine, as a few large rows of Arrow bytes.

Spark moves a row of some megabytes as cheaply as a row of some bytes, and does not look into it. So the
shuffle and the sort see only a few rows per micro-batch, and no value is converted on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Times
from headrace.flow.batch import Batch
from headrace.state.part import decode, encoded_pieces

TIMER = -1
"""The stream number of packages that only carry the time."""

PASSING = -2
"""The stream number of side outputs from a host below, which pass through."""

ENDING = -3
"""The stream number of packages that end all streams, after everything in the same micro-batch."""

COMMANDS = -4
"""The stream number of packages with commands of the control log."""

CHOICES = -5
"""The stream number of packages with the sizes of windows that the driver has chosen."""

HERE = -1
"""In the column `above`: the package is for the shard itself, not for one of the host above."""

NO_TIME = -(1 << 63)
"""Marks a missing time; no row can have this time."""

ROWS = 262_144
"""The maximum number of rows in a package: some tens of megabytes."""

LARGE = 32_768
"""The number of rows from which a batch is a package of its own, which costs less than to copy it."""

PACKED = pa.schema(
    [
        ("shard", pa.int32()),
        ("above", pa.int32()),
        ("stream", pa.int32()),
        ("origin", pa.int32()),
        ("number", pa.int32()),
        ("now", pa.int64()),
        ("body", pa.binary()),
    ]
)
PACKED_DDL = "shard int, above int, stream int, origin int, number int, now bigint, body binary"


PackedColumns = dict[str, list[Any]]
"""Packages as the columns of `PACKED`."""


@dataclass(frozen=True)
class Package:
    """Rows of one stream for one shard, and the times that arrived with them on the whole stream.

    If rows of several instants are in one package, `clocks` is the arrival of each row and `seen_at` that of
    each time; otherwise all arrived at `now`. `ends`, `signs` and `heartbeat` come from a host below, whose
    result may be a relation. `side_output` passes through this host unread. `bad` is input of the stream that
    could not be parsed into rows, as JSON. `clock`, from the timer, is the instant since which Spark has
    polled every source. `commands` are files of the control log, or with sizes of windows, as JSON.
    `reached`, from a task that reads a stream with a rate limit, is when its newest row reached the source,
    or `NO_TIME` if that is unknown.
    `promises` are punctuations and heartbeats that came as rows (`promising.Speech`).
    `cells` and `seen_cells` are the sources of rows and of times, if the stream has sources by a column.
    `written` is the number of rows whose results the task that read them has written itself.
    """

    stream: int
    now: int
    rows: pa.RecordBatch | None = None
    times: Times | None = None
    clocks: Times | None = None
    seen: Times | None = None
    seen_at: Times | None = None
    ends: Times | None = None
    signs: npt.NDArray[np.int8] | None = None
    heartbeat: int | None = None
    side_output: npt.NDArray[np.uint8] | None = None
    bad: npt.NDArray[np.uint8] | None = None
    clock: int | None = None
    reached: int | None = None
    commands: npt.NDArray[np.uint8] | None = None
    promises: npt.NDArray[np.uint8] | None = None
    cells: npt.NDArray[np.uint16] | None = None
    seen_cells: npt.NDArray[np.uint16] | None = None
    written: int | None = None

    FIELDS = (
        *("rows", "times", "clocks", "seen", "seen_at", "ends", "signs", "heartbeat", "side_output", "bad"),
        *("clock", "reached", "commands", "promises", "cells", "seen_cells", "written"),
    )

    def body(self) -> bytes:
        """Everything that is not in another column of the packed row."""
        return b"".join(self.pieces())

    def pieces(self) -> list[Any]:
        """The body in pieces, which are not joined yet."""
        present = {name: getattr(self, name) for name in self.FIELDS}
        return encoded_pieces({name: value for name, value in present.items() if value is not None})

    @staticmethod
    def read(stream: int, now: int, body: bytes | None) -> Package:
        """Read what `body` wrote."""
        fields: dict[str, Any] = dict(decode(body)) if body else {}
        return Package(stream, now, **fields)

    def batch(self) -> Batch:
        """Rows from a host below, with their ends and signs."""
        assert self.rows is not None
        assert self.times is not None
        return Batch(self.rows, self.times, self.ends, self.signs)


@dataclass(frozen=True)
class Route:
    """The shards of a host. Packages for a host above go `through` shards of the lowest one, unread."""

    shard_keys: tuple[int, ...]
    through: tuple[int, ...] = ()

    def to(self, shard_keys: Sequence[int]) -> tuple[list[int], list[int]]:
        """The columns `shard` and `above` of packages for these shards."""
        if not self.through:
            return list(shard_keys), [HERE] * len(shard_keys)
        return [self.through[key % len(self.through)] for key in shard_keys], list(shard_keys)


def packed(
    route: Route, shard_keys: Sequence[int], origin: int, number: int, packages: Sequence[Package]
) -> PackedColumns:
    """Packages as Spark moves them, one for each of `shard_keys`: the columns of `PACKED`."""
    return _beside(route, shard_keys, origin, number, packages) | {"body": [p.body() for p in packages]}


def packed_batch(
    route: Route, shard_keys: Sequence[int], origin: int, number: int, packages: Sequence[Package]
) -> pa.RecordBatch:
    """The same as an Arrow batch, whose bodies are copied once."""
    beside = _beside(route, shard_keys, origin, number, packages)
    columns = [pa.array(beside[field.name], field.type) for field in PACKED if field.name in beside]
    pieces = [package.pieces() for package in packages]
    ends = np.cumsum([0, *(sum(memoryview(piece).nbytes for piece in each) for each in pieces)])
    if ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowCapacityError(f"packages of {ends[-1]:,} bytes")
    data = pa.py_buffer(b"".join(piece for each in pieces for piece in each))
    offsets = pa.py_buffer(ends.astype(np.int32))
    bodies = pa.Array.from_buffers(pa.binary(), len(packages), [None, offsets, data])
    return pa.RecordBatch.from_arrays([*columns, bodies], schema=PACKED)


def _beside(
    route: Route, shard_keys: Sequence[int], origin: int, number: int, packages: Sequence[Package]
) -> PackedColumns:
    """The columns beside the bodies."""
    n = len(packages)
    shard, above = route.to(shard_keys)
    return {
        "shard": shard,
        "above": above,
        "stream": [p.stream for p in packages],
        "origin": [origin] * n,
        "number": [number] * n,
        "now": [p.now for p in packages],
    }


def to_ipc(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Rows as the bytes of an Arrow stream."""
    return bytes(ipc_buffer(rows).to_pybytes())


def ipc_buffer(rows: pa.RecordBatch | pa.Table) -> pa.Buffer:
    """The same as a buffer of Arrow, without a copy."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return sink.getvalue()


def from_ipc(data: bytes) -> pa.Table:
    """Read what `to_ipc` wrote."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
