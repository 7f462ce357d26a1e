"""One heartbeat generator for all streams of an engine: arrivals on one may move the heartbeat of another."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.arrays import Times
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.origins import origins_behind
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator
from headrace.scheduling.executor import Agenda
from headrace.time.timestamp import MAX_TIME, MIN_TIME


class Heartbeats(Protocol):
    """Declared bounds (`HeartbeatGenerator`) or learned ones (`LearnedHeartbeats`)."""

    @property
    def streams(self) -> tuple[str, ...]: ...

    def heard_by(self, streams: Collection[str]) -> frozenset[str]: ...

    def counts_rows(self, stream: str) -> bool: ...

    def arrive(self, streams: npt.ArrayLike, times: npt.ArrayLike, clocks: npt.ArrayLike) -> None: ...

    def read_up_to(self, clocks: npt.ArrayLike) -> None: ...

    def heartbeats(self, now: int) -> Times: ...

    @property
    def settings(self) -> str: ...

    def sent(self) -> Times: ...

    def begin_at(self, heartbeats: Times) -> None: ...

    def resume(self, settings: str, snapshot: Mapping[str, Any]) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: Mapping[str, Any]) -> None: ...


class Timekeeper:
    """The heartbeat of each stream; asks the generator once per instant."""

    def __init__(self, generator: Heartbeats) -> None:
        self.generator = generator
        self._known: Times | None = None
        self._at = MIN_TIME
        self._force: Times = np.full(len(generator.streams), MIN_TIME, np.int64)
        self._force_at = MIN_TIME
        self._places = {name: place for place, name in enumerate(generator.streams)}
        self._read: Times | None = None
        self._read_on = False
        self._written = ""

    def use(self, generator: Heartbeats) -> None:
        """Use other bounds, perhaps for more streams; heartbeats in force stay in force."""
        before = self._places
        self.generator, self._known = generator, None
        self._places = {name: place for place, name in enumerate(generator.streams)}
        self._force = self._by_name(self._force, before, MIN_TIME)
        if self._read is not None:
            self._read, self._read_on = self._by_name(self._read, before, MAX_TIME), True

    def _by_name(self, values: Times, before: Mapping[str, int], missing: int) -> Times:
        """The values of each stream in its new place."""
        found = [int(values[before[name]]) if name in before else missing for name in self._places]
        return np.array(found, np.int64)

    def read_up_to(self, stream: str, instant: int) -> None:
        """Everything that reached the source of a stream by `instant` has come in.

        Without such calls, rows of a stream come in as they reach their source.
        """
        place = self._places.get(stream)
        if place is None:
            return
        if self._read is None:
            self._read = np.full(self.streams, MAX_TIME, np.int64)
        if self._read[place] == MAX_TIME or instant > self._read[place]:
            self._read[place] = instant
            self._read_on, self._known = True, None

    def _say_read(self) -> None:
        """Pass on to the generator up to when the sources were read, if that has changed."""
        if self._read_on and self._read is not None:
            self.generator.read_up_to(self._read)
            self._read_on = False

    def arrive(self, stream: int, times: Times, now: int) -> None:
        """Rows with these times came in at `now` on a stream."""
        self._say_read()
        if self._some_unread:
            self._hold(now)
        self.generator.arrive(np.full(len(times), stream, np.int64), times, now)
        self._known = None

    def heartbeat(self, stream: int, now: int) -> int:
        """The heartbeat of a stream at `now`."""
        return int(self.all(now)[stream])

    def all(self, now: int) -> Times:
        """The heartbeats of all streams at `now`."""
        if self._known is None or self._at != now:
            self._say_read()
            self._known, self._at = self.generator.heartbeats(now), now
        return self._known

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.generator.streams)

    def before(self, stream: int, now: int) -> int:
        """The heartbeat that decides whether rows that arrive on a stream at `now` are late.

        It is the same for all arrivals of one instant, no matter what was asked or run before. So how rows
        are cut into batches does not decide which are late, as long as all rows of an instant are pushed
        before it runs.
        """
        self._hold(now)
        return int(self._force[stream])

    def _hold(self, now: int) -> None:
        """Fix the heartbeats by which rows of `now` are judged, before the first of them arrives."""
        if self._force_at != now:
            self._force = self.generator.heartbeats(max(now - 1, self._at))
            self._force_at = now

    @property
    def _some_unread(self) -> bool:
        """Whether rows of some stream are judged by what was known before they came in (`before`)."""
        return self._read is None or bool((self._read == MAX_TIME).any())

    def promise_of(self, stream: int) -> GeneratedPromise:
        """The promise of one stream."""
        return GeneratedPromise(self, stream)

    def bytes(self) -> int:
        return sum(v.nbytes for v in self.generator.snapshot().values() if isinstance(v, np.ndarray))

    def changes(self, full: bool) -> Mapping[str, Any]:
        self._say_read()
        own = {"asked": self._at, "force": self._force, "force_at": self._force_at}
        if self._read is not None:
            own["read"] = self._read
        if full or self._written != self.generator.settings:
            self._written = self.generator.settings
            own["settings"] = json.dumps([self._written, self.generator.streams])
        return {f"generator.{k}": v for k, v in self.generator.snapshot().items()} | own

    def apply(self, chunk: Mapping[str, Any]) -> None:
        prefix = "generator."
        self.generator.restore({k[len(prefix) :]: v for k, v in chunk.items() if k.startswith(prefix)})
        self._known, self._at = None, chunk["asked"]
        self._force, self._force_at = chunk["force"], chunk["force_at"]
        self._read, self._read_on = (np.array(chunk["read"]) if "read" in chunk else self._read), False
        if "settings" in chunk:
            self._written = self.generator.settings

    def resume(self, chunk: Mapping[str, Any], heartbeats: Mapping[str, int]) -> None:
        """Continue from a snapshot made under other bounds or for other streams, as far as they are the same.

        `heartbeats` were given before by stream, and are never taken back.
        """
        settings, streams = json.loads(chunk["settings"])
        if settings == self.generator.settings:
            self.apply(chunk)
            return
        prefix = "generator."
        state = {k[len(prefix) :]: v for k, v in chunk.items() if k.startswith(prefix)}
        self.generator.resume(settings, state)
        before = {name: int(value) for name, value in zip(streams, chunk["force"], strict=True)}
        given = [max(before.get(name, MIN_TIME), heartbeats.get(name, MIN_TIME)) for name in self._places]
        self.generator.begin_at(np.array(given, np.int64))
        self._force = np.array([before.get(name, MIN_TIME) for name in self._places], np.int64)
        self._known, self._at, self._force_at = None, chunk["asked"], chunk["force_at"]
        if "read" in chunk:
            for name, instant in zip(streams, chunk["read"].tolist(), strict=True):
                if instant != MAX_TIME:
                    self.read_up_to(name, instant)


class GeneratedPromise:
    """The promise that the timekeeper makes for one stream. Its state is in the timekeeper."""

    def __init__(self, keeper: Timekeeper, stream: int) -> None:
        self._keeper = keeper
        self.place = stream

    @property
    def generator(self) -> Heartbeats:
        """What the timekeeper asks."""
        return self._keeper.generator

    by_clock = False

    def observe(self, times: Times, now: int, read: int | None = None) -> None:
        self._keeper.arrive(self.place, times, now)

    def at(self, now: int, read: int | None = None) -> int:
        return self._keeper.heartbeat(self.place, now)

    def before(self, now: int) -> int:
        return self._keeper.before(self.place, now)

    def snapshot(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        return None


# Which sources to ask for the heartbeat that an operator waits for: those that may have a new one.
#
# A source is asked when rows came to it, when the heartbeat generator knows more than the source has
# promised, or when its heartbeat follows the clock. A source without any news is skipped.


Origin = SourceNode | Operator


class Asking:
    """For each origin of heartbeats, the operators that may wait for it, and which origins may have news."""

    def __init__(self, graph: Graph, agenda: Agenda) -> None:
        self._graph, self._agenda = graph, agenda
        self._keeper: Timekeeper | None = None
        self._askers: dict[Origin, list[tuple[Node, int]]] = {}
        self._by_clock: list[Origin] = []
        self._by_bounds: dict[int, SourceNode] = {}
        self._given = np.empty(0, np.int64)
        self._came: dict[Origin, None] = {}

    def use(self, keeper: Timekeeper | None) -> None:
        """Call when the graph or the promises of its sources have changed: all origins may have news."""
        self._keeper, self._askers = keeper, {}
        for node in self._graph.nodes:
            for input, before in enumerate(node.predecessors):
                for origin in [*origins_behind(before), *node.label]:
                    self._askers.setdefault(origin, []).append((node, input))
        self._by_bounds = {}
        for origin in self._askers:
            if isinstance(origin, SourceNode) and isinstance(origin.promise, GeneratedPromise):
                self._by_bounds[origin.promise.place] = origin
        self._by_clock = [origin for origin in self._askers if _tells_by_clock(origin)]
        self._given = np.full(0 if keeper is None else keeper.streams, MIN_TIME, np.int64)
        self._came = dict.fromkeys(self._askers)

    def refresh(self) -> None:
        """Call when operators wait for other heartbeats than before."""
        self.use(self._keeper)

    def came(self, source: SourceNode) -> None:
        """A source has new rows or a new heartbeat."""
        self._came[source] = None

    def ask(self, now: int) -> bool:
        """Ask on behalf of the operators that wait; true if an origin made an ETS."""
        waiting = self._agenda.waiting
        if not waiting:
            return False
        made = False
        wanted: dict[int, set[int]] = {}
        for origin, place in self._with_news(now).items():
            for node, input in self._askers.get(origin, ()):
                if node.place not in waiting:
                    continue
                if node.place not in wanted:
                    wanted[node.place] = {need.input for need in node.operator.needs()}
                if input in wanted[node.place]:
                    if origin.demand(now):
                        made = True
                        self._stir(origin)
                    self._came.pop(origin, None)
                    if place is not None and self._keeper is not None:
                        self._given[place] = self._keeper.heartbeat(place, now)
                    break
        return made

    def _stir(self, origin: Origin) -> None:
        """Operators that wait for an origin which is not before them can go on."""
        for node, _ in self._askers[origin]:
            if origin in node.label:
                node.stir(node)

    def _with_news(self, now: int) -> dict[Origin, int | None]:
        """The origins that may know more than they promised, and their places among those with bounds."""
        found: dict[Origin, int | None] = dict.fromkeys([*self._came, *self._by_clock])
        if self._keeper is not None and self._by_bounds:
            for place in np.flatnonzero(self._keeper.all(now) > self._given).tolist():
                if place in self._by_bounds:
                    found[self._by_bounds[place]] = place
        return found


def _tells_by_clock(origin: Origin) -> bool:
    """Whether its heartbeat can rise with the clock alone; for streams with bounds, the generator knows."""
    return not isinstance(origin, SourceNode) or origin.promise.by_clock
