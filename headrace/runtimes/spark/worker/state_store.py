"""The engine's state in Spark's state store: a chain of snapshots, each the change of one micro-batch.

Each version is one row of a map state, so a micro-batch writes its changes and reads nothing. The header,
which lists the versions, is one more row of the same map: a separate state would cost more calls.
When more than half of the stored bytes are obsolete, one complete snapshot replaces all versions. Each row
begins with the format and a checksum, so that damaged rows are never used.
"""

from __future__ import annotations

import json
import re
import uuid
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from headrace.engine import Engine, Snapshot
from headrace.errors import SparkError
from headrace.expressions.types import sql_name
from headrace.schema import Schema
from headrace.state.part import goes_on

SLACK: Final = 4 << 20
"""Obsolete bytes that are tolerated."""

HEADER: Final = (-1,)
"""The key of the header; versions are not negative."""

COLUMNS: Final = (-2,)
"""The key of the columns that streams and tables had when the state was last loaded."""

COMMANDS: Final = (-3,)
"""The key of how far the shard has followed the control log."""

FORMAT: Final = b"HR3"
"""The first bytes of every row, followed by the checksum of its key, name and content."""

LONGEST: Final = 4096
"""The maximum number of snapshots in a chain, however small they are."""


_WIDENED: Final = re.compile(r"CAST\((.*) AS (?:bigint|double)\)")


def key_text(key: Iterable[object]) -> tuple[str, ...]:
    """Expressions as text, the same for any width of a column: wider columns are hashed to the same shard."""
    plain = (str(each).removesuffix(" + 0.0") for each in key)
    return tuple(match[1] if (match := _WIDENED.fullmatch(each)) else each for each in plain)


@dataclass(frozen=True)
class Layout:
    """How rows are divided among shards: their number, and by stream the keys as text."""

    shards: int = 1
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def goes_on(self, now: Layout) -> bool:
        """Whether rows that come now go to the shards that have their state."""
        both = self.keys.keys() & now.keys
        return self.shards == now.shards and all(self.keys[name] == now.keys[name] for name in both)

    def __str__(self) -> str:
        named = "".join(f", {name} by {', '.join(key)}" for name, key in sorted(self.keys.items()))
        return f"{self.shards} shard{'s' * (self.shards != 1)}{named}"


@dataclass(frozen=True)
class Head:
    """The chain of snapshots: versions `base` to `version`, with `stored` bytes.

    `token` identifies the attempt that wrote the last one: a task that fails and runs again writes the same
    version, but perhaps not the same bytes. `structure` is that of the engine (`Engine.structure`),
    `generation` the start of the job that wrote it.
    """

    version: int
    token: str
    base: int
    stored: int
    layout: Layout
    structure: str
    generation: int

    def content(self) -> bytes:
        """As bytes."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def read(content: bytes) -> Head:
        """The head that `content` wrote."""
        plain = json.loads(content)
        shards, keys = plain.pop("layout").values()
        layout = Layout(shards, {name: tuple(key) for name, key in keys.items()})
        return Head(**plain, layout=layout)


class Store:
    """The chain of one shard, whose rows are divided as `layout` says."""

    def __init__(self, chunks: Any, layout: Layout, generation: int = 0) -> None:
        self._chunks = chunks
        self._layout = layout
        self._generation = generation

    def head(self) -> Head | None:
        """The header, if anything is stored."""
        row = self._get(HEADER)
        if row is None:
            return None
        head = Head.read(row[1])
        if not head.layout.goes_on(self._layout):
            raise SparkError(
                "HR-SP16",
                f"the state in the checkpoint is in {head.layout}, but this query has {self._layout}",
                hint=f"set SparkOptions(shards={head.layout.shards}) and partition by the same columns, "
                "or start with a new checkpoint",
            )
        return head

    def take_up(self, columns: Mapping[str, Schema]) -> None:
        """Store the columns of streams and tables; refuse those that do not fit the stored state."""
        row = self._get(COLUMNS)
        if row is not None:
            known = {name: _schema(text) for name, text in json.loads(row[1]).items()}
            for name, schema in columns.items():
                _compare(name, known.get(name, schema), schema)
        written = {name: b64encode(schema.serialize()).decode() for name, schema in columns.items()}
        self._put(COLUMNS, "", json.dumps(written).encode())

    def followed(self) -> Mapping[str, Any] | None:
        """How far the shard has followed the control log, as JSON data; None if nothing is stored."""
        row = self._get(COMMANDS)
        found: Mapping[str, Any] | None = None if row is None else json.loads(row[1])
        return found

    def follow(self, followed: Mapping[str, Any]) -> None:
        """Store how far the shard has followed the control log."""
        self._put(COMMANDS, "", json.dumps(followed).encode())

    def all(self, head: Head) -> list[Snapshot]:
        """The whole chain."""
        return [Snapshot.decode(self._chunk(v)[1]) for v in range(head.base, head.version + 1)]

    def since(self, head: Head, version: int, token: str) -> list[Snapshot] | None:
        """The snapshots after `version` as `token` wrote it; None if the chain does not continue it."""
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
        """A row of the map state after a check of format and checksum; None if it does not exist."""
        row = self._chunks.getValue(key)
        if row is None:
            return None
        name, data = str(row[0]), bytes(row[1])
        begin = len(FORMAT) + 4
        if data[: len(FORMAT)] != FORMAT:
            raise _other_format(data[: len(FORMAT)])
        if data[len(FORMAT) : begin] != _crc(key, name, data[begin:]):
            raise _damaged(f"row {key[0]} was changed after it was written")
        return name, data[begin:]

    def _put(self, key: tuple[int], name: str, content: bytes) -> None:
        self._chunks.updateValue(key, (name, FORMAT + _crc(key, name, content) + content))

    def write(self, engine: Engine, head: Head | None) -> Head:
        """Store the changes since `head`; the cost is in proportion to the changes."""
        token = uuid.uuid4().hex
        if (
            head is None
            or engine.needs_full_snapshot
            or head.structure != engine.structure
            or self._wasteful(engine, head)
        ):
            return self._write_all(engine, head, token)
        snapshot = engine.snapshot(head.version)
        body = snapshot.encode()
        self._put((snapshot.version,), head.token, body)
        return self._set(engine, snapshot.version, token, head.base, head.stored + len(body))

    def _write_all(self, engine: Engine, head: Head | None, token: str) -> Head:
        """Replace the chain of snapshots with one complete snapshot."""
        snapshot = engine.snapshot()
        body = snapshot.encode()
        for version in range(head.base, head.version + 1) if head else ():
            self._chunks.removeKey((version,))
        self._put((snapshot.version,), "", body)
        return self._set(engine, snapshot.version, token, snapshot.version, len(body))

    def _set(self, engine: Engine, version: int, token: str, base: int, stored: int) -> Head:
        """Write the header."""
        head = Head(version, token, base, stored, self._layout, engine.structure, self._generation)
        self._put(HEADER, head.token, head.content())
        return head

    @staticmethod
    def _wasteful(engine: Engine, head: Head) -> bool:
        """True if the chain is long, or much larger than a complete snapshot would be."""
        if head.version - head.base >= LONGEST:
            return True
        if head.stored <= SLACK:
            return False
        return head.stored > 2 * held_bytes(engine) + SLACK


def _crc(key: tuple[int], name: str, content: bytes) -> bytes:
    return zlib.crc32(content, zlib.crc32(f"{key[0]} {name}".encode())).to_bytes(4, "little")


def _other_format(first: bytes) -> SparkError:
    """The error for a row of a format that this version does not read."""
    if first[:2] != FORMAT[:2]:
        return _damaged("its first bytes were changed")
    return SparkError(
        "HR-SP21",
        f"the state in the checkpoint has format {first.decode(errors='replace')}, and this version of "
        f"Headrace reads {FORMAT.decode()}",
        hint="continue with the version that wrote it, or start with a new checkpoint",
    )


def _damaged(what: str) -> SparkError:
    return SparkError(
        "HR-SP21",
        f"the state in the checkpoint cannot be used: {what}",
        hint="restore a copy of the checkpoint, or start with a new one",
    )


def _schema(text: str) -> Schema:
    """The schema in base64-encoded Arrow bytes."""
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


def _compare(name: str, old: Schema, new: Schema) -> None:
    """The stored rows of a stream or table must fit its current columns."""
    for column in old.names:
        if column in new.names and not goes_on(old.field(column).type, new.field(column).type):
            before, now = (sql_name(schema.field(column).type).upper() for schema in (old, new))
            raise SparkError(
                "HR-SP20",
                f"column {column} is {now}, but {before} in the checkpoint",
                place=name,
                hint=_HINT,
            )


_HINT: Final = (
    "cast it in the DataFrame to the type of the checkpoint, or start with a new checkpoint; "
    "only wider types of the same kind are accepted (INT to BIGINT, FLOAT to DOUBLE)"
)


def held_bytes(engine: Engine) -> int:
    """Bytes of state, in memory and on disk, and of waiting rows: about the size of a complete snapshot."""
    return engine.memory.bytes() + engine.memory.spilled_bytes()
