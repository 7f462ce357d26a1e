"""What is known while answers wait: their values so far, and what could still change them.

A copy of the engine ends its streams: what comes out are the answers as they are if no further row comes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.engine.declared import Declared
from headrace.flow.batch import Batch
from headrace.graph.node import Node
from headrace.graph.origins import sources_behind
from headrace.graph.table import TableNode
from headrace.plan.nodes.core import Source
from headrace.time.ets import NONE
from headrace.time.timestamp import MIN_TIME

if TYPE_CHECKING:
    from headrace.engine.engine import Engine


@dataclass(frozen=True)
class Open:
    """A stream whose rows may still change an answer: those after its `heartbeat`, up to the answer's time.

    That ends when the clock says `by_clock`, or when it has a row later than `after_row`; None: its bounds do
    not say so.
    """

    stream: str
    heartbeat: int | None
    by_clock: int | None = None
    after_row: int | None = None


@dataclass(frozen=True)
class Unfinished:
    """An answer that waits, as it is if no further row comes, and the streams that could change it.

    Other rows may still add answers, and those of `streams` change or remove this one.
    """

    query: str
    time: int
    row: Mapping[str, Any]
    streams: tuple[Open, ...]


def unfinished(engine: Engine, copy: Engine) -> Iterator[Unfinished]:
    """The answers that wait in an engine, query by query in order of time; `copy` is used up for it."""
    streams = {query: _streams_of(engine, query) for query in engine.graph.sinks}
    known = {name: (engine.streams.known(name), engine.streams.declared(name)) for name in engine.streams}
    for query, batches in if_ended(copy).items():
        bounds = {name: known[name] for name in streams[query]}
        found = [
            (int(time), row)
            for batch in batches
            for time, row in zip(batch.start, batch.data.to_pylist(), strict=True)
        ]
        for time, row in sorted(found, key=lambda each: each[0]):
            yield Unfinished(query, time, row, tuple(_open(bounds, time)))


def if_ended(copy: Engine) -> dict[str, list[Batch]]:
    """What an engine would answer, beyond what is certain already, if its streams ended now."""
    copy.drain_all()
    for stream in copy.streams:
        copy.streams.end(stream)
    return copy.drain_all()


def copy_of(engine: Engine) -> Engine:
    """An engine with the same queries and state, to end its streams: it has no bounds, budget or clock.

    Nor does it make watermarks on demand: it would answer before its streams end, unlike the engine.

    The next snapshot of the engine must be a full one.
    """
    snapshot = engine.snapshot()
    copy = type(engine)(now=engine.now)
    for source in engine.graph.sources.values():
        copy.streams.declare(
            Source(source.name, source.schema, source.kind, source.stamp), policy=NONE, rules=source.rules
        )
    for query, since in engine.graph.since.items():
        plan, ordered = engine.graph.written(query)
        copy.add(query, plan, since=since, ordered=ordered)
    copy.adopt(snapshot)
    return copy


def _streams_of(engine: Engine, query: str) -> list[str]:
    """The streams that a query reads."""
    ends: list[Node] = engine.graph.nodes_of(query)
    found = (source for node in ends for source in sources_behind(node) if not isinstance(source, TableNode))
    return list(dict.fromkeys(source.name for source in found))


def _open(streams: Mapping[str, tuple[int, Declared]], time: int) -> Iterator[Open]:
    """The streams that may still have rows up to a time, and until when."""
    for stream, (known, bounds) in streams.items():
        if known <= time:
            yield Open(
                stream,
                None if known == MIN_TIME else known,
                None if bounds.latency is None else time + bounds.latency,
                None if bounds.disorder is None or bounds.learned else time + bounds.disorder,
            )
