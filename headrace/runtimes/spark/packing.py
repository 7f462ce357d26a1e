"""Rows on their way between Spark and the engine: few and large, as Arrow bytes.

Spark moves a row of some megabytes as cheaply as one of some bytes, and never looks into it: the shuffle and
the sort see a handful of rows per micro-batch, and no value is converted on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.state import decode, encode

Times = npt.NDArray[np.int64]

TIMER = -1
"""The stream of packages that only tell the time."""

PASSING = -2
"""The stream of what a host below has to tell the user: it passes through."""

ENDING = -3
"""The stream of packages that say: nothing more comes on any stream, once all that came with them is in."""

NO_TIME = -(1 << 63)
"""Stands for a missing time, on which no row can be."""

ROWS = 262_144
"""Rows that are packed together at most: some tens of megabytes."""

PACKED = pa.schema(
    [
        ("shard", pa.int32()),
        ("stream", pa.int32()),
        ("origin", pa.int32()),
        ("number", pa.int32()),
        ("now", pa.int64()),
        ("body", pa.binary()),
    ]
)
PACKED_DDL = "shard int, stream int, origin int, number int, now bigint, body binary"


@dataclass(frozen=True)
class Package:
    """Rows of one stream for one shard, and the times that arrived with them on the whole stream.

    `clocks`, where rows of several instants are together, is the arrival of each row, `seen_at` that of each
    time; otherwise all came at `now`. `ends`, `signs` and `heartbeat` come from a host below: its answer
    may be a relation, and it vouches for what is still to come. `note` is an answer of it that is not for
    this host. `bad` is input of the stream that could not be made into rows, as JSON. `clock`, of the timer:
    the instant since which every source has been asked. `reached`, of a task that reads a stream with a rate
    limit: since when its rows have been reaching their source, or `NO_TIME` where nobody knows.
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
    note: npt.NDArray[np.uint8] | None = None
    bad: npt.NDArray[np.uint8] | None = None
    clock: int | None = None
    reached: int | None = None

    FIELDS = (
        *("rows", "times", "clocks", "seen", "seen_at", "ends", "signs", "heartbeat", "note", "bad"),
        *("clock", "reached"),
    )

    def body(self) -> bytes:
        """All but what the columns of the packed row tell."""
        present = {name: getattr(self, name) for name in self.FIELDS}
        return encode({name: value for name, value in present.items() if value is not None})

    @staticmethod
    def read(stream: int, now: int, body: bytes | None) -> Package:
        """What `body` wrote."""
        fields: dict[str, Any] = dict(decode(body)) if body else {}
        return Package(stream, now, **fields)

    def batch(self) -> Batch:
        """The rows of a host below, with their ends and signs."""
        assert self.rows is not None
        assert self.times is not None
        return Batch(self.rows, self.times, self.ends, self.signs)


def packed(
    names: Sequence[int], origin: int, number: int, packages: Sequence[Package]
) -> dict[str, list[Any]]:
    """Packages as Spark moves them, one for each of `names`: the columns of `PACKED`."""
    n = len(packages)
    return {
        "shard": list(names),
        "stream": [p.stream for p in packages],
        "origin": [origin] * n,
        "number": [number] * n,
        "now": [p.now for p in packages],
        "body": [p.body() for p in packages],
    }


def to_ipc(rows: pa.RecordBatch | pa.Table) -> bytes:
    """Rows as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    """What `to_ipc` wrote."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
