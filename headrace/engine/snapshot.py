"""Snapshots of a whole graph: source promises, arcs with their cursors, registers, operator state.

Incremental: each part writes what changed since the last snapshot, so the cost follows the change.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import GraphError
from headrace.flow.arc import Arc, Item
from headrace.flow.batch import Batch
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Waiting
from headrace.schema import Schema
from headrace.state.part import Chunk, Part, Value, decode, encode, widened
from headrace.state.promises import from_bytes, from_plain, to_bytes, to_plain, unreadable
from headrace.time.punctuation import Constant, Punctuate, Punctuation
from headrace.time.timestamp import MIN_TIME

# The snapshot of an arc: the items appended since the last one, and the position of each reader.


_TIMES = ("start", "end", "sign", "arrival")


class ArcPart:
    """Items are immutable, so only new ones are written; cursors and the heartbeat are written each time."""

    def __init__(self, arc: Arc) -> None:
        self._arc = arc
        self._marked = -1

    def bytes(self) -> int:
        return self._arc.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        arc = self._arc
        begin = arc.base if full or self._marked < 0 else max(arc.base, self._marked)
        chunk: dict[str, Any] = {"base": arc.base, "begin": begin, "heartbeat": arc.heartbeat}
        chunk["rows_in"], chunk["reset"] = arc.rows_in, full or self._marked < 0
        chunk["cursors"] = np.array([[r.position, r.offset] for r in arc.readers], np.int64).reshape(-1, 2)
        position = begin
        while (item := arc.item(position)) is not None:
            chunk |= _write(item, f"{position - begin:08d}")
            position += 1
        chunk["count"] = position - begin
        self._marked = position
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.apply_with(chunk, chunk["cursors"].tolist())

    def apply_with(self, chunk: Mapping[str, Any], cursors: list[list[int]]) -> None:
        """Apply a chunk; the readers are others than those of the snapshot, and at these cursors."""
        items = [_read(chunk, f"{i:08d}") for i in range(chunk["count"])]
        self._arc.reload(chunk["reset"], chunk["begin"], items, cursors)
        self._arc.heartbeat, self._arc.rows_in = chunk["heartbeat"], chunk["rows_in"]
        self._marked = chunk["begin"] + chunk["count"]


def _write(item: Item, at: str) -> dict[str, Any]:
    """The columns of a batch or the bytes of a punctuation, under names that start with `at`."""
    if not isinstance(item, Batch):
        return {f"{at}/punctuation": to_bytes(to_plain(item))}
    written: dict[str, Any] = {f"{at}/data": item.data}
    for name in _TIMES:
        array = getattr(item, name)
        if array is not None:
            written[f"{at}/{name}"] = array
    return written


def _read(chunk: Mapping[str, Any], at: str) -> Item:
    """The item that `_write` wrote under `at`."""
    punctuation = chunk.get(f"{at}/punctuation")
    if punctuation is not None:
        return from_plain(from_bytes(punctuation))
    times: dict[str, Any] = {name: chunk.get(f"{at}/{name}") for name in _TIMES}
    return Batch(chunk[f"{at}/data"], **times)


STRUCTURE: Final = "structure"
"""What the graph consists of; in full snapshots, and where it changed. Earlier versions do not have it."""
TIMEKEEPER: Final = "timekeeper"
"""The part of bounds between streams."""
MEMORY: Final = "memory"
"""The part of the memory budget: it may be missing in a snapshot, or in the engine that restores it."""
ORDERS: Final = "orders"
"""The part of joins that changed their order or are about to; missing if there are none."""
LOOKS: Final = "looks"
"""The part of automatic reoptimization; it may be missing, like `MEMORY`."""
PROMISES: Final = "/promises"
"""The punctuations that wait at an operator: snapshots of earlier versions do not have them."""
Columns = Mapping[str, Schema]
"""The columns of the rows in parts of a snapshot, by name of the part."""
_OPTIONAL: Final = frozenset((MEMORY, LOOKS, ORDERS, STRUCTURE))


@dataclass(frozen=True)
class Snapshot:
    """The chunks of one snapshot by name. `since` None: complete in itself."""

    version: int
    since: int | None
    now: int
    chunks: dict[str, bytes] = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes of all chunks."""
        return sum(len(c) for c in self.chunks.values())

    def encode(self) -> bytes:
        """The snapshot as bytes."""
        sizes = {name: len(c) for name, c in self.chunks.items()}
        head = {"version": self.version, "since": self.since, "now": self.now, "chunks": sizes}
        text = json.dumps(head).encode()
        return struct.pack("<I", len(text)) + text + b"".join(self.chunks.values())

    @staticmethod
    def decode(data: bytes) -> Snapshot:
        """The snapshot that `encode` wrote."""
        return Snapshot.decode_all(data)[0]

    @staticmethod
    def decode_all(data: bytes) -> list[Snapshot]:
        """Several snapshots, one after the other; at least one."""
        found: list[Snapshot] = []
        at = 0
        with readable():
            while at < len(data) or not found:
                (size,) = struct.unpack_from("<I", data, at)
                head = json.loads(data[at + 4 : at + 4 + size])
                chunks, at = {}, at + 4 + size
                for name, length in head["chunks"].items():
                    chunks[name] = data[at : at + length]
                    at += length
                found.append(Snapshot(head["version"], head["since"], head["now"], chunks))
        return found


def check_chain(chain: list[Snapshot], since: int | None) -> None:
    """A full snapshot (`since` None), or an increment of `since`; then each increment of the one before."""
    expected = since
    for snapshot in chain:
        if snapshot.since != expected:
            last = "nothing" if expected is None else f"version {expected}"
            begins = "is full" if snapshot.since is None else f"counts from version {snapshot.since}"
            raise GraphError(
                "HR-G010",
                f"snapshot {snapshot.version} {begins}, but comes after {last}",
                hint="give one full snapshot and all later ones, in order, each once",
            )
        expected = snapshot.version


def snapshot_graph(
    graph: Graph, extra: dict[str, Part], version: int, since: int | None, now: int
) -> Snapshot:
    """Write every part of the graph, and the extra ones."""
    full = since is None
    parts = dict(_parts(graph)) | extra
    chunks = {name: encode(part.changes(full)) for name, part in parts.items()}
    return Snapshot(version, since, now, chunks)


def restore_graph(graph: Graph, extra: dict[str, Part], snapshot: Snapshot, columns: Columns) -> None:
    """Apply a snapshot to a graph of the same queries; its rows are cast to `columns`."""
    parts = dict(_parts(graph)) | extra
    names = parts.keys() ^ snapshot.chunks.keys()
    odd = sorted(name for name in names - _OPTIONAL if not name.endswith(PROMISES))
    if odd:
        raise GraphError(
            "HR-G006",
            f"the snapshot is of other queries: {odd[0]} is only in one of them",
            hint="add the same queries, in the same order, before restoring",
        )
    for name, part in parts.items():
        if name in snapshot.chunks:
            with readable():
                part.apply(_widened(decode(snapshot.chunks[name]), columns.get(name)))


@contextmanager
def readable() -> Iterator[None]:
    """Turns any error from malformed content into a coded one; a checksum can be right by chance."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError, struct.error, pa.ArrowException) as error:
        raise unreadable(f"{type(error).__name__}: {error}") from error


def columns_of(graph: Graph) -> Columns:
    """The columns of the rows in each part: those of its arc, or those that its operator reads."""
    leaves: dict[str, Any] = {f"source/{name}": source for name, source in graph.sources.items()}
    leaves |= {f"table/{name}": table for name, table in graph.tables.items()}
    found: dict[str, Schema] = {f"{name}/arc": leaf.schema for name, leaf in leaves.items()}
    for node in graph.nodes:
        found[f"node/{node.id}/arc"] = node.plan.schema
        read = {field.name: field for below in node.plan.inputs for field in below.schema}
        found |= dict.fromkeys(
            (f"node/{node.id}/{name}" for name in node.operator.state()), pa.schema(read.values())
        )
    return found


def _widened(chunk: dict[str, Value], schema: Schema | None) -> dict[str, Value]:
    """The chunk with its batches cast to the types that the graph has now."""
    if schema is None:
        return chunk
    return {k: widened(v, schema) if isinstance(v, pa.RecordBatch) else v for k, v in chunk.items()}


def _parts(graph: Graph) -> Iterator[tuple[str, Part]]:
    """All parts of the graph's state, with their names in a snapshot."""
    for name, source in graph.sources.items():
        yield f"source/{name}", SourcePart(source)
        yield f"source/{name}/arc", arc_part(source.arc)
    for name, table in graph.tables.items():
        yield f"table/{name}", SourcePart(table)
        yield f"table/{name}/arc", arc_part(table.arc)
    for node in graph.nodes:
        yield f"node/{node.id}", NodePart(node)
        yield f"node/{node.id}/arc", arc_part(node.operator.output)
        for name, part in node.operator.state().items():
            yield f"node/{node.id}/{name}", part


def arc_part(arc: Any) -> ArcPart:
    """The part of an arc; the same object as long as the arc exists."""
    if arc.part is None:
        arc.part = ArcPart(arc)
    part: ArcPart = arc.part
    return part


class SourcePart:
    """Counts and promises of a source."""

    OWN = ("ets_made", "ended", "_next_period", "read_until", "held_to")
    COUNTS = ("rows_in", "rows_late", "rows_rejected", "rows_shed")

    def __init__(self, source: SourceNode) -> None:
        self._source = source

    def bytes(self) -> int:
        return 64

    def changes(self, full: bool) -> Chunk:
        source = self._source
        punctuate = source.admission.punctuate
        chunk: dict[str, Any] = {name: getattr(source, name) for name in self.OWN}
        chunk |= {name: getattr(source.admission, name) for name in self.COUNTS}
        chunk["promised"], chunk["answered"] = punctuate.promised, source.answered
        punctuations, runs, chunk["reset"] = punctuate.written(full)
        chunk["punctuations"] = to_bytes([to_plain(each) for each in punctuations])
        for name, ends in runs.items():
            chunk |= {f"{end}:{name}": numbers for end, numbers in zip(_RUNS, ends, strict=True)}
        chunk["spoken"] = to_bytes([[read_at, to_plain(each)] for read_at, each in source.spoken])
        return chunk | {f"promise:{k}": v for k, v in source.promise.snapshot().items()}

    def apply(self, chunk: Chunk) -> None:
        source = self._source
        for name in self.OWN:
            setattr(source, name, chunk[name])
        for name in self.COUNTS:
            setattr(source.admission, name, chunk[name])
        if chunk.get("reset", True):
            source.admission.punctuate = Punctuate()
        source.admission.punctuate.promised = chunk["promised"]
        source.answered = chunk.get("answered", MIN_TIME)
        source.admission.punctuate.read(_punctuations(chunk), _runs(chunk))
        spoken = from_bytes(chunk["spoken"]) if "spoken" in chunk else []
        source.spoken = [(read_at, from_plain(each)) for read_at, each in spoken]
        state = {k.removeprefix("promise:"): v for k, v in chunk.items() if k.startswith("promise:")}
        source.promise.restore(state)


_RUNS: Final = ("closed from", "closed to")
"""The keys of runs of closed integers in a chunk, followed by the name of the column."""


def _runs(chunk: Chunk) -> dict[str, Any]:
    """By column, the first and the last number of each run of closed integers; earlier versions have none."""
    first, last = _RUNS
    names = [key.removeprefix(f"{first}:") for key in chunk if key.startswith(f"{first}:")]
    return {name: (chunk[f"{first}:{name}"], chunk[f"{last}:{name}"]) for name in names}


def _punctuations(chunk: Chunk) -> list[Punctuation]:
    """The punctuations of a source in a snapshot; earlier versions wrote closed values by column."""
    if "punctuations" in chunk:
        return [from_plain(each) for each in from_bytes(chunk["punctuations"])]
    patterns, closed = from_bytes(chunk["closed"])
    values = [(name, Constant(value)) for name, found in closed.items() for value in found]
    return [*(from_plain(each) for each in patterns), *(Punctuation(patterns=(each,)) for each in values)]


class NodePart:
    """Counts, heartbeats and registers of an operator."""

    OWN = ("runs", "rows_in", "waited", "waiting_since", "rows_out_seen")

    def __init__(self, node: Node) -> None:
        self._node = node

    def bytes(self) -> int:
        return 64

    def changes(self, full: bool) -> Chunk:
        node, operator = self._node, self._node.operator
        chunk: dict[str, Any] = {"promised": operator.promised, "rows_out": operator.rows_out}
        chunk |= {name: getattr(node, name) for name in self.OWN}
        if isinstance(operator, Waiting):
            chunk["frontier"] = operator.frontier
        for i, register in enumerate(operator.registers):
            chunk[f"register{i}"], chunk[f"offered{i}"] = register.read(), register.offered
        return chunk

    def apply(self, chunk: Chunk) -> None:
        node, operator = self._node, self._node.operator
        operator.promised, operator.rows_out = chunk["promised"], chunk["rows_out"]
        for name in self.OWN:
            setattr(node, name, chunk[name])
        if isinstance(operator, Waiting):
            operator.frontier = chunk["frontier"]
        for i, register in enumerate(operator.registers):
            register.value, register.offered = chunk[f"register{i}"], chunk[f"offered{i}"]
