"""The streams of an engine: what their sources promise, the rows that come in, late and rejected rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.arrays import Mask
from headrace.engine.declared import Declared, declared
from headrace.engine.loop import Loop, check_instant
from headrace.engine.memory import Memory
from headrace.engine.timekeeper import Heartbeats, Timekeeper
from headrace.errors import GraphError
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.graph.by_source import set_progress
from headrace.graph.source import SourceNode
from headrace.plan.nodes.core import Source, TimeKind
from headrace.state.promises import to_bytes, to_plain
from headrace.time.ets import Policy, Promise, StrongestPromise, follow
from headrace.time.learned import CombinedHeartbeats
from headrace.time.punctuation import Late, Punctuation, Rejected
from headrace.time.row_promises import NOTHING, WILD, RowPromises, Said
from headrace.time.sources import Cells, SlowestGroup, SourcesPromise
from headrace.time.timestamp import MAX_TIME, MIN_TIME

T = TypeVar("T")


class Streams:
    """`engine.streams`: iterates over the names of the streams that were declared or that a query reads."""

    def __init__(self, loop: Loop, memory: Memory) -> None:
        self._loop, self._graph, self._memory = loop, loop.graph, memory
        self.keeper: Timekeeper | None = None
        self._read_late: list[SourceNode] = []
        self._periodic: list[SourceNode] = []
        self._entering: dict[str, SourceNode] = {}
        self._spoken: set[str] = set()
        self._declared: dict[str, Declared] = {}
        self._promising: set[str] = set()
        self._row_promises = RowPromises()

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.sources)

    def __contains__(self, stream: object) -> bool:
        return stream in self._graph.sources

    # ------------------------------------------------------------------------------------------ declaring

    def declare(
        self,
        stream: Source,
        *,
        policy: Policy | None = None,
        promise: Promise | None = None,
        rules: Rules | None = None,
    ) -> None:
        """Set how a stream makes its ETS and the rules for its rows, before the first query mentions it."""
        source = self._graph.declare(stream)
        if rules is not None and rules != source.rules and source.arc.readers:
            raise GraphError(
                "HR-G009",
                "a query reads this stream under other rules",
                place=stream.name,
                hint="declare a stream before the first query that reads it",
            )
        source.policy = policy or source.policy
        source.promise = promise or source.promise
        source.admission.rules = rules or source.rules
        source.arc.ordered = not source.rules.disordered
        self._note_sources()

    def manage(
        self,
        heartbeats: Heartbeats,
        streams: Mapping[Source, Rules],
        promises: Mapping[str, Promise] | None = None,
    ) -> None:
        """Put an input manager in front of some streams: heartbeats from bounds, rows in any order.

        `heartbeats` names the streams and makes a promise for each. If `promises` also has one for a stream,
        the larger heartbeat holds.
        """
        if self.keeper is not None:
            raise GraphError(
                "HR-G011",
                "an engine has one input manager",
                hint="declare the bounds of all streams together: one may vouch for another",
            )
        self.keeper = Timekeeper(heartbeats)
        places = {name: i for i, name in enumerate(heartbeats.streams)}
        for stream, rules in streams.items():
            if stream.name not in places:
                known = ", ".join(places)
                raise GraphError(
                    "HR-G007", "no bounds for this stream", place=stream.name, hint=f"bounds: {known}"
                )
            promise: Promise = self.keeper.promise_of(places[stream.name])
            if promises and stream.name in promises:
                promise = StrongestPromise((promise, promises[stream.name]))
            self.declare(stream, promise=promise, rules=rules)

    def manage_again(
        self,
        heartbeats: CombinedHeartbeats,
        streams: Mapping[Source, Rules],
        promises: Mapping[str, Promise] | None = None,
    ) -> None:
        """Other bounds for streams that `manage` was called with, and bounds for more streams.

        Heartbeats never go back: what was promised under the old bounds still holds.
        """
        if self.keeper is None:
            self.manage(heartbeats, streams, promises)
            return
        self.enter()
        before = self.keeper.generator
        if not isinstance(before, CombinedHeartbeats):
            before = CombinedHeartbeats(before.streams, [before])
        before.heartbeats(self._loop.now)
        heartbeats.follow(before)
        self.keeper.use(heartbeats)
        places = {name: i for i, name in enumerate(heartbeats.streams)}
        for stream, rules in streams.items():
            source = self._graph.declare(stream)
            promise: Promise = self.keeper.promise_of(places[stream.name])
            if promises and stream.name in promises:
                promise = StrongestPromise((promise, promises[stream.name]))
            follow(promise, source.promise)
            source.promise, source.admission.rules = promise, rules
            source.arc.ordered = not rules.disordered
            source.keep_answered("")
        self._note_sources()

    def use_policies(self, policies: Mapping[str, Policy]) -> None:
        """Set when these streams make watermarks without rows; the next step goes by it."""
        for name, policy in policies.items():
            self._graph.source(name).policy = policy
        self._note_sources()

    def recognise(self, promises: RowPromises) -> None:
        """Rows that are pushed may be punctuations and heartbeats; they hold for rows of later instants."""
        self._row_promises = promises

    def set_bounds(self, stream: Source, promise: SourcesPromise, rules: Rules) -> None:
        """Bounds for each group of a stream's sources; called again, they are others from here on.

        What was promised under the old bounds still holds.
        """
        self.enter()
        source = self._graph.declare(stream)
        before = source.promise.settings if isinstance(source.promise, SourcesPromise) else ""
        if isinstance(source.promise, SourcesPromise):
            promise.follow(source.promise)
        source.promise, source.admission.rules = promise, rules
        source.arc.ordered = not rules.disordered
        source.keep_answered(before)
        self._note_sources()

    def _note_sources(self) -> None:
        """Find the sources that make ETS by themselves, and which operators ask which sources."""
        self._declared.clear()
        self._periodic = [s for s in self._graph.sources.values() if s.policy.interval != MAX_TIME]
        self._loop.asking.use(self.keeper)
        set_progress(self._graph)

    def rewire(self) -> None:
        """The graph has changed."""
        sources = self._graph.sources.values()
        for source in sources:
            source.catch_up = self._loop.catch_up
        self._read_late = [source for source in sources if source.read_until is not None]
        self._promising = {source.name for source in sources if source.spoken}
        self._note_sources()

    # ------------------------------------------------------------------------------------------- coming in

    def take(
        self,
        stream: str,
        data: pa.RecordBatch,
        times: ArrayLike | pa.Array | None,
        now: int | None,
        learn: bool,
        cells: Cells | None = None,
    ) -> Batch:
        """The work of `Engine.push`."""
        source = self._graph.source(stream)
        if now is not None:
            self.set_clock(now)
        self._spoken.add(stream)
        said = self._hear(source, data) if self._row_promises.heard_by(stream) else NOTHING
        rows, times, cells = _chosen(data, times, cells, said.data)
        batch = source.push(rows, times, self._loop.now, learn=learn, cells=cells)
        self._note(source, data, said)
        if source.waiting:
            self._entering[stream] = source
        self._came(source, batch)
        return batch

    def _hear(self, source: SourceNode, data: pa.RecordBatch) -> Said:
        """What rows of a stream promise."""
        source.check(data)
        guard = source.rules.guard
        types = {
            n: self._graph.source(n).schema for n in self._row_promises.heard_by(source.name) if n in self
        }
        most = MAX_TIME if guard == MAX_TIME else self._loop.now + guard
        return self._row_promises.said(source.name, data, types, most)

    def _note(self, source: SourceNode, data: pa.RecordBatch, said: Said) -> None:
        """Note promises that came as rows; a row whose heartbeat is out of range is rejected."""
        for name in self._row_promises.heard_by(source.name):
            own = name == source.name
            if found := said.about(name, own):
                self.promise(name, found, read_at=None if own else self._loop.now)
        if said.wild is not None:
            wild = data.filter(pa.array(said.wild))
            source.admission.rows_in += wild.num_rows
            source.admission.reject(Rejected(source.name, "HR-R045", WILD, wild))

    def feed(self, stream: str, batch: Batch) -> None:
        """Put in the output of another engine: rows in order, with the ends and signs of a relation."""
        source = self._graph.source(stream)
        source.feed(batch)
        self._came(source, batch)

    def feed_promises(self, stream: str, punctuations: Iterable[Punctuation]) -> None:
        """What another engine promises about its output (`Engine.drain_with_promises`), after its rows."""
        source = self._graph.source(stream)
        for punctuation in punctuations:
            source.pass_on(punctuation)
            self._loop.wake(source)

    def _came(self, source: SourceNode, batch: Batch) -> None:
        """Tell the memory manager and the scheduler about new rows."""
        if self._memory.manager is not None:
            self._memory.manager.arrived(source.name, batch)
        self._loop.wake(source)

    def enter(self) -> None:
        """Let in the rows of this instant that had to be judged together."""
        if not self._entering:
            return
        waiting = [s for s in self._graph.sources.values() if s.name in self._entering]
        self._entering = {}
        if any(source.must_catch_up for source in waiting):
            self._loop.catch_up()
        for source in waiting:
            source.announce()
        for source in waiting:
            source.enter(self._loop.now)
            self._loop.wake(source)
        for source in waiting:
            source.admission.judged()

    # ---------------------------------------------------------------------------------------- what is known

    def set_clock(self, now: int) -> None:
        """Rows from here on arrive at `now` of the wall clock, which never goes back. Nothing runs."""
        if now > self._loop.now:
            self.enter()
            self._loop.now = now

    def tick(self) -> None:
        """Make the periodic ETS that are due."""
        for source in self._periodic:
            source.tick(self._loop.now)

    def settle(self) -> None:
        """All rows read so far have run: rows read later are judged by what is known now."""
        for source in self._read_late:
            source.settle(self._loop.now)

    def heartbeat(self, stream: str, time: int) -> None:
        """The source itself promises that its future rows are later than `time`."""
        check_instant(time, stream)
        self.enter()
        self._graph.source(stream).heartbeat(time)

    def punctuate(self, stream: str, punctuation: Punctuation) -> None:
        """The source itself promises that no future row matches `punctuation`."""
        source = self._graph.source(stream)
        self.enter()
        if not punctuation.patterns:
            source.heartbeat(punctuation.until)
            return
        to_bytes(to_plain(punctuation))  # refused now rather than by the next snapshot
        source.close(punctuation)
        self._loop.wake(source)

    def promise(
        self, stream: str, punctuations: Iterable[Punctuation], *, read_at: int | None = None
    ) -> None:
        """Promises that were read as rows, of this stream or of another: they hold for rows read later.

        They are made by the next `advance`, after all rows that were pushed before it. `read_at` is for rows
        that do not say in which order they came, such as those of two streams: the clock when the promises
        were read. They then wait until this stream has been read beyond that instant (`read_until`), so that
        no row is late that reached its source before the promise did.
        """
        source = self._graph.source(stream)
        for punctuation in punctuations:
            if punctuation.patterns:
                source.check_patterns(punctuation)
                to_bytes(to_plain(punctuation))
            else:
                check_instant(punctuation.until, stream)
            source.spoken.append((MIN_TIME if read_at is None else read_at, punctuation))
        if source.spoken:
            self._promising.add(stream)

    def apply_promises(self) -> None:
        """Make the promises that were read (`promise`) and whose time has come."""
        for name in sorted(self._promising):
            source = self._graph.source(name)
            if source.apply_promises():
                self._loop.wake(source)
            if not source.spoken:
                self._promising.discard(name)

    def end(self, stream: str) -> None:
        """A stream ends: no more rows come."""
        source = self._graph.source(stream)
        self.enter()
        source.end()

    def observe(self, stream: str, times: ArrayLike, cells: Cells | None = None) -> None:
        """Rows with these times arrived now on a stream; this engine gets only a part of its rows.

        `cells` are those of the rows' sources, if the stream has sources by a column.
        """
        source = self._graph.source(stream)
        source.observe(np.asarray(times, np.int64), self._loop.now, cells)
        self._loop.asking.came(source)

    def read_until(self, stream: str, instant: int) -> None:
        """Everything that reached the source of an external stream by `instant` of the clock has been pushed.

        For sources at which rows wait until they are read. After the first call, the clock promises nothing
        about the stream beyond the last such instant, rows of other streams promise nothing about it until it
        has been read up to the same instant as they were, and its rows are judged by the heartbeat at the
        last call of `advance`: no row is late because it was read late. Before the first call, and for
        streams without such calls, a row reaches its source when it is pushed. `MIN_TIME` means that nothing
        is known yet.
        """
        if instant != MIN_TIME:
            check_instant(instant, stream)
        source = self._graph.source(stream)
        if source.kind is not TimeKind.EXTERNAL:
            return
        if source.read_until is None:
            self._read_late.append(source)
        source.read_up_to(instant)
        if self.keeper is not None:
            self.keeper.read_up_to(stream, instant)

    def known(self, stream: str) -> int:
        """The largest heartbeat that is known now, even if no operator has asked for it."""
        return self._graph.source(stream).known(self._loop.now)

    def slowest(self, stream: str) -> SlowestGroup | None:
        """The group of sources that holds a stream back, if the stream has sources by a column."""
        source = self._graph.source(stream)
        if not isinstance(source.promise, SourcesPromise):
            return None
        return source.promise.slowest(self._loop.now, source.read_until)

    def declared(self, stream: str) -> Declared:
        """How late the rows of a stream may be, as far as its bounds say it in one number."""
        if stream not in self._declared:
            self._declared[stream] = declared(self._graph.source(stream).promise, stream)
        return self._declared[stream]

    # ------------------------------------------------------------------------------------------- accounting

    def reject(self, stream: str, raw: Iterable[str], code: str, reason: str) -> None:
        """Account for input that could not be parsed into rows."""
        admission = self._graph.source(stream).admission
        self._spoken.add(stream)
        rejected = Rejected(stream, code, reason, raw=tuple(raw))
        admission.rows_in += len(rejected)
        admission.reject(rejected)

    def shed(self, stream: str, rows: int) -> None:
        """Account for rows that were dropped by load shedding."""
        admission = self._graph.source(stream).admission
        admission.rows_in += rows
        admission.rows_shed += rows

    def merged(self, stream: str, rows: int) -> None:
        """Account for rows that were merged into others before those were pushed."""
        self._graph.source(stream).admission.rows_in += rows

    def drain_late(self) -> list[Late]:
        """Rows that were late since the last call."""
        self.enter()
        return [late for source in self._spoken_of() for late in _emptied(source.admission.late)]

    def drain_rejected(self) -> list[Rejected]:
        """Input since the last call that did not fit the schema of its stream."""
        rejected = [r for source in self._spoken_of() for r in _emptied(source.admission.rejected)]
        self._spoken = {s.name for s in self._spoken_of() if s.admission.late}
        return rejected

    def _spoken_of(self) -> list[SourceNode]:
        """The sources that may have late or rejected rows, in order."""
        if not self._spoken:
            return []
        return [source for name, source in self._graph.sources.items() if name in self._spoken]


def _chosen(
    data: pa.RecordBatch, times: ArrayLike | pa.Array | None, cells: Cells | None, mask: Mask | None
) -> tuple[pa.RecordBatch, ArrayLike | pa.Array | None, Cells | None]:
    """The rows in the mask, with their times and cells; None: all rows."""
    if mask is None:
        return data, times, cells
    rows = data.filter(pa.array(mask))
    cells = None if cells is None else cells[mask]
    if times is None:
        return rows, None, cells
    known = times if isinstance(times, pa.Array | pa.ChunkedArray) else pa.array(times)
    return (rows, known.filter(pa.array(mask)), cells) if len(known) == len(mask) else (data, times, cells)


def _emptied(kept: list[T]) -> list[T]:
    """The content of a list, which is empty afterwards."""
    taken = kept[:]
    kept.clear()
    return taken
