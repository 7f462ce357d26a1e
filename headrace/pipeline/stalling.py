"""Bounds under which rows could wait forever: where Theorem 3.3 of Srivastava & Widom asks for a timeout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.pipeline.pipeline import Pipeline, PipelineStream
from headrace.plan.nodes.core import TimeKind
from headrace.time.declared import Declared
from headrace.time.durations import readable


@dataclass(frozen=True)
class Stall:
    """In a query, rows of `waiting` may wait for `silent` forever: always, or only once all streams pause.

    `delta`: how far behind `waiting` the watermark of `silent` then is, in ticks. None: nothing bounds it.
    """

    query: str
    waiting: str
    silent: str
    delta: int | None

    def message(self, per_second: int | None) -> str:
        """What happens, and what prevents it."""
        a, b = self.waiting, self.silent
        way = f"set latency in the bounds of {b}"
        if a != b:
            way += f", a bound of {a} on {b} under [skew]" + (" with δ = 0" if self.delta else "")
        if self.delta is None and a != b:
            what = f"rows of {a} wait as long as {b} is silent: nothing bounds how far {b} may lag behind {a}"
        else:
            few = self.delta is None or self.delta == 1
            last = "newest rows" if few else f"rows of the last {readable(self.delta or 0, per_second)}"
            pause, of = (f"{a} pauses", "its") if a == b else ("all streams pause", f"{a}'s")
            what = f"when {pause}, {of} {last} wait until the next row of {b}"
        return f"query {self.query}: {what}; {way}, or a timeout under [skew]"


def stalls(pipeline: Pipeline) -> list[Stall]:
    """One for each query whose rows could wait forever, the worst; none if there is a timeout."""
    if pipeline.skew.timeout is not None:
        return []
    pausing = {name for name, stream in pipeline.read.items() if may_pause(stream)}
    if pausing and pipeline.runtime == "spark":
        pausing = set(pipeline.read)  # a job that goes on never ends a stream
    least = _least_deltas(pipeline.declared)
    found = []
    for query in pipeline.queries:
        streams = [n for n in query.streams if pipeline.streams[n].definition.time is not TimeKind.LATENT]
        possible = [
            Stall(query.name, a, b, delta)
            for b in streams
            if b in pausing and pipeline.streams[b].external
            if not pipeline.streams[b].lateness.follows_clock
            for a in streams
            if (delta := least.get((a, b))) != 0
        ]
        found += sorted(possible, key=_mildness)[:1]
    return found


def _mildness(stall: Stall) -> tuple[bool, bool, int]:
    """What happens while others go on is worse than what happens only in a pause of all; then the longest."""
    alone = stall.waiting == stall.silent
    return (stall.delta is not None or alone), alone, -(stall.delta or 0)


def _least_deltas(declared: Declared) -> dict[tuple[str, str], int]:
    """δ_min of B* by pair of streams, of those that have a time-based bound; a learned one is never 0."""
    skew = declared.bounds().skew
    tightest = (skew.closure() if declared.skew.closure else skew).tightest()
    found = {
        (a, b): int(tightest[i, j])
        for i, a in enumerate(skew.streams)
        for j, b in enumerate(skew.streams)
        if tightest[i, j] >= 0
    }
    return dict(_learned(declared)) | found


def _learned(declared: Declared) -> Iterator[tuple[tuple[str, str], int]]:
    """The pairs with learned bounds, which are only known later."""
    for name, said in declared.streams.items():
        if said.confidence is not None:
            yield (name, name), 1
    learned = [name for name in declared.streams if declared.skew.learns(name)]
    yield from (((a, b), 1) for a in learned for b in learned)


def may_pause(stream: PipelineStream) -> bool:
    """Whether a source may have no rows for a while without ending."""
    source: Any = stream.spec.source
    source = source.live if source.type == "history" else source
    waits = source.type in ("tcp", "stdin", "kafka", "spark") or getattr(source, "follow", False)
    waits = waits or not getattr(source, "bounded", True)  # a function, which may have no rows for a while
    return bool(waits or source.keep_open)
