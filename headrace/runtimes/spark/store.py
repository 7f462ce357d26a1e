"""The engine's state in Spark's state store: a chain of snapshots, each the change of one micro-batch.

The header says which versions are there; each is a row of its own, so that a micro-batch writes what it
changed and reads nothing. The header is one more row of the same map: a state of its own would cost more
calls. When more than half of what is stored is of no use any more, one complete snapshot replaces all.
Each row has the format and a checksum in front of it: what is not what was written is never used.
"""

from __future__ import annotations

import json
import uuid
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.engine import Engine, Snapshot
from headrace.errors import SparkError
from headrace.expressions.types import sql_name
from headrace.flow.widening import goes_on
from headrace.memory.accounting import account
from headrace.schema import Schema

SLACK: Final = 4 << 20
"""Bytes that may be of no use before anybody minds."""

HEADER: Final = (-1,)
"""The key of the header, which is no version."""

COLUMNS: Final = (-2,)
"""The key of the columns that the streams and tables had when the state was last taken up."""

FORMAT: Final = b"HR2"
"""What every row begins with; then comes the checksum of its key, its name and its content."""

LONGEST: Final = 4096
"""Snapshots in a chain before they are replaced by one, however small they are."""


@dataclass(frozen=True)
class Head:
    """The chain: versions `base` … `version`, of `stored` bytes.

    `token` names the attempt that wrote the last one: a task that fails and is tried again writes the same
    version, but perhaps not the same bytes.
    """

    version: int
    token: str
    base: int
    stored: int
    layout: str

    def content(self) -> bytes:
        """As bytes."""
        return json.dumps(astuple(self)).encode()


class Store:
    """One shard's chain. `layout`: the plan and the number of shards, which a checkpoint cannot change."""

    def __init__(self, chunks: Any, layout: str) -> None:
        self._chunks = chunks
        self._layout = layout

    def head(self) -> Head | None:
        """What is stored, if anything."""
        row = self._get(HEADER)
        if row is None:
            return None
        head = Head(*json.loads(row[1]))
        if head.layout != self._layout:
            raise SparkError(
                "HR-SP16",
                f"the checkpoint is of {head.layout}, but this is {self._layout}",
                hint="go on with the same query and number of shards, or begin with a new checkpoint",
            )
        return head

    def take_up(self, columns: Mapping[str, Schema]) -> None:
        """Note the columns under which the state goes on; refuse those under which it would not."""
        row = self._get(COLUMNS)
        if row is not None:
            known = {name: _schema(text) for name, text in json.loads(row[1]).items()}
            for name, schema in columns.items():
                _compare(name, known.get(name, schema), schema)
        written = {name: b64encode(schema.serialize()).decode() for name, schema in columns.items()}
        self._put(COLUMNS, "", json.dumps(written).encode())

    def all(self, head: Head) -> list[Snapshot]:
        """The whole chain."""
        return [Snapshot.decode(self._chunk(v)[1]) for v in range(head.base, head.version + 1)]

    def since(self, head: Head, version: int, token: str) -> list[Snapshot] | None:
        """The snapshots that follow `version` as `token` wrote it; None if none do."""
        if version == head.version:
            return [] if token == head.token else None
        if not head.base <= version < head.version:
            return None
        parent, first = self._chunk(version + 1)
        if parent != token:
            return None
        later = [self._chunk(v)[1] for v in range(version + 2, head.version + 1)]
        return [Snapshot.decode(body) for body in (first, *later)]

    def _chunk(self, version: int) -> tuple[str, bytes]:
        row = self._get((version,))
        if row is None:
            raise _damaged(f"version {version} is missing")
        return row

    def _get(self, key: tuple[int]) -> tuple[str, bytes] | None:
        row = self._chunks.getValue(key)
        if row is None:
            return None
        name, data = str(row[0]), bytes(row[1])
        begin = len(FORMAT) + 4
        if data[: len(FORMAT)] != FORMAT:
            raise _damaged("it is of another version of headrace, or its first bytes are changed")
        if data[len(FORMAT) : begin] != _crc(key, name, data[begin:]):
            raise _damaged(f"row {key[0]} is not what was written")
        return name, data[begin:]

    def _put(self, key: tuple[int], name: str, content: bytes) -> None:
        self._chunks.updateValue(key, (name, FORMAT + _crc(key, name, content) + content))

    def write(self, engine: Engine, head: Head | None) -> Head:
        """Store what changed since `head`, at the cost of the change."""
        token = uuid.uuid4().hex
        if head is None or self._wasteful(engine, head):
            return self._write_all(engine, head, token)
        snapshot = engine.snapshot(head.version)
        body = snapshot.encode()
        self._put((snapshot.version,), head.token, body)
        return self._set(Head(snapshot.version, token, head.base, head.stored + len(body), self._layout))

    def _write_all(self, engine: Engine, head: Head | None, token: str) -> Head:
        snapshot = engine.snapshot()
        body = snapshot.encode()
        for version in range(head.base, head.version + 1) if head else ():
            self._chunks.removeKey((version,))
        self._put((snapshot.version,), "", body)
        return self._set(Head(snapshot.version, token, snapshot.version, len(body), self._layout))

    def _set(self, head: Head) -> Head:
        self._put(HEADER, head.token, head.content())
        return head

    @staticmethod
    def _wasteful(engine: Engine, head: Head) -> bool:
        if head.version - head.base >= LONGEST:
            return True
        if head.stored <= SLACK:
            return False
        return head.stored > 2 * held_bytes(engine) + SLACK


def _crc(key: tuple[int], name: str, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(f"{key[0]} {name}".encode())).to_bytes(4, "little")


def _damaged(what: str) -> SparkError:
    return SparkError(
        "HR-SP21",
        f"the state in the checkpoint cannot be used: {what}",
        hint="put back a copy of the checkpoint, or begin with a new one",
    )


def _schema(text: str) -> Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def _compare(name: str, old: Schema, new: Schema) -> None:
    """What was kept of a stream or table must be what it would be under its columns of now."""
    for column in dict.fromkeys([*old.names, *new.names]):
        before, now = (_type_name(schema, column) for schema in (old, new))
        if "" in (before, now) or not goes_on(old.field(column).type, new.field(column).type):
            raise SparkError(
                "HR-SP20",
                f"column {column} is {now or 'not there'}, but {before or 'not there'} in the checkpoint",
                place=name,
                hint=_HINT if before else "leave the column out, or begin with a new checkpoint",
            )


_HINT: Final = (
    "cast it to the type of the checkpoint in the DataFrame, or begin with a new checkpoint; "
    "a wider type of the same kind goes on (INT to BIGINT, FLOAT to DOUBLE)"
)


def _type_name(schema: Schema, column: str) -> str:
    return sql_name(schema.field(column).type).upper() if column in schema.names else ""


def held_bytes(engine: Engine) -> int:
    """Bytes of state, on disk too, and of rows that wait: what a complete snapshot would be of."""
    on_disk = sum(node.operator.spilled_bytes() for node in engine.graph.nodes)
    return account(engine.graph).total + on_disk
