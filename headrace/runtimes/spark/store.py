"""The engine's state in Spark's state store: a chain of snapshots, each the change of one micro-batch.

The header says which versions are there; each is a row of its own, so that a micro-batch writes what it
changed and reads nothing. The header is one more row of the same map: a state of its own would cost more
calls. When more than half of what is stored is of no use any more, one complete snapshot replaces all.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import astuple, dataclass
from typing import Any, Final

from headrace.engine import Engine, Snapshot
from headrace.errors import SparkError
from headrace.memory.accounting import account

SLACK: Final = 4 << 20
"""Bytes that may be of no use before anybody minds."""

HEADER: Final = (-1,)
"""The key of the header, which is no version."""

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

    def row(self) -> tuple[str, bytes]:
        """As the map holds it."""
        return self.token, json.dumps(astuple(self)).encode()


class Store:
    """One shard's chain. `layout`: the plan and the number of shards, which a checkpoint cannot change."""

    def __init__(self, chunks: Any, layout: str) -> None:
        self._chunks = chunks
        self._layout = layout

    def head(self) -> Head | None:
        """What is stored, if anything."""
        row = self._chunks.getValue(HEADER)
        if row is None:
            return None
        head = Head(*json.loads(bytes(row[1])))
        if head.layout != self._layout:
            raise SparkError(
                "HR-SP16",
                f"the checkpoint is of {head.layout}, but this is {self._layout}",
                hint="go on with the same query and number of shards, or begin with a new checkpoint",
            )
        return head

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
        row = self._chunks.getValue((version,))
        assert row is not None, f"version {version} is not in the state store"
        return str(row[0]), bytes(row[1])

    def write(self, engine: Engine, head: Head | None) -> Head:
        """Store what changed since `head`, at the cost of the change."""
        token = uuid.uuid4().hex
        if head is None or self._wasteful(engine, head):
            return self._write_all(engine, head, token)
        snapshot = engine.snapshot(head.version)
        body = snapshot.encode()
        self._chunks.updateValue((snapshot.version,), (head.token, body))
        return self._set(Head(snapshot.version, token, head.base, head.stored + len(body), self._layout))

    def _write_all(self, engine: Engine, head: Head | None, token: str) -> Head:
        snapshot = engine.snapshot()
        body = snapshot.encode()
        for version in range(head.base, head.version + 1) if head else ():
            self._chunks.removeKey((version,))
        self._chunks.updateValue((snapshot.version,), ("", body))
        return self._set(Head(snapshot.version, token, snapshot.version, len(body), self._layout))

    def _set(self, head: Head) -> Head:
        self._chunks.updateValue(HEADER, head.row())
        return head

    @staticmethod
    def _wasteful(engine: Engine, head: Head) -> bool:
        if head.version - head.base >= LONGEST:
            return True
        if head.stored <= SLACK:
            return False
        return head.stored > 2 * held_bytes(engine) + SLACK


def held_bytes(engine: Engine) -> int:
    """Bytes of state, on disk too, and of rows that wait: what a complete snapshot would be of."""
    on_disk = sum(node.operator.spilled_bytes() for node in engine.graph.nodes)
    return account(engine.graph).total + on_disk
