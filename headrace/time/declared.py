"""Bounds as users declare them, for each stream and between streams; what they make for an engine.

Pipeline files and `SparkOptions` are both read into these, so both runtimes promise the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.time.bounds import NEVER, Bounds
from headrace.time.estimation import Adaptivity, SkewEstimator
from headrace.time.ets import Promise, SkewPromise, StrongestPromise, TimerPromise
from headrace.time.grouping import ensure_groups_move, group_named
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats, Generator, LearnedHeartbeats
from headrace.time.quantile import Confidence, QuantileEstimator
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.sources import SourceGroups, SourcesPromise


@dataclass(frozen=True)
class Lateness:
    """What a stream promises about its rows, in ticks; None where nothing is declared.

    A row is at most `disorder` behind the newest one of its stream, and at most `slack` rows come before it
    that it should have come before. It is at most `latency` behind the clock when it comes, and keeps pace
    with the clock to within `skew`. It takes at most `transit` from its source to here (the L of Srivastava &
    Widom, §2): `disorder` and bounds between streams are about the source, and hold here so much later. With
    `fifo` rows arrive in the order in which they were sent, and `disorder` holds here at once.
    With `sources` these bounds hold for each group of sources by itself.
    """

    disorder: int | None = None
    latency: int | None = None
    confidence: Confidence | None = None
    slack: int | None = None
    transit: int = 0
    fifo: bool = False
    skew: int | None = None
    sources: SourceGroups | None = None

    @property
    def is_declared(self) -> bool:
        """Whether anything says how late rows may be."""
        said = (self.disorder, self.latency, self.confidence, self.slack, self.skew)
        return any(each is not None for each in said)

    @property
    def follows_clock(self) -> bool:
        """Whether the watermark rises with the clock alone."""
        return self.latency is not None or self.skew is not None

    def by_source(self) -> SourcesPromise | None:
        """The promise by groups of sources, if a column names them."""
        if self.sources is None:
            return None
        behind = None if self.confidence is not None else (self.disorder or 0) + 1
        return SourcesPromise(self.sources, behind, self.latency, self.confidence)

    def pairs(self) -> list[Pair]:
        """The bounds of a stream on itself."""
        found = [] if self.disorder is None else [Pair(0, self.disorder + 1)]
        return found if self.slack is None else [*found, Pair.tuples(self.slack, 1)]


@dataclass(frozen=True)
class LearnedSkew:
    """Bounds between `streams` that are learned from arrivals, for t up to `horizon` (§6).

    Without `adaptivity` the greatest skew so far counts.
    """

    streams: tuple[str, ...]
    horizon: int
    tick: int
    adaptivity: Adaptivity | None = None

    def heartbeats(self, streams: Collection[str], timeout: int) -> LearnedHeartbeats:
        """A generator for those of its streams that are read."""
        read = [name for name in self.streams if name in streams]
        steps = -(-self.horizon // self.tick)
        return LearnedHeartbeats(
            SkewEstimator(read, steps, tick=self.tick, adaptivity=self.adaptivity), timeout
        )


@dataclass(frozen=True)
class Skew:
    """What streams promise about each other: pairs (t, δ) by (stream, other stream), and how to use them.

    `timeout`: after a pause of all streams this long, no row is on its way; None: such a pause promises
    nothing. `closure` also uses what follows from several bounds. `groups` share one heartbeat each. `tick`
    coarsens the clock: heartbeats use less memory, and come up to `tick` later.
    """

    pairs: Mapping[tuple[str, str], tuple[Pair, ...]] = field(default_factory=dict)
    timeout: int | None = None
    closure: bool = True
    groups: tuple[tuple[str, ...], ...] = ()
    tick: int = 1
    learned: LearnedSkew | None = None

    def bounds_stream(self, name: str) -> bool:
        """Whether rows of some stream prove something about this one."""
        return any(on == name for _, on in self.pairs)

    def learns(self, name: str) -> bool:
        """Whether bounds of a stream are learned together with those of others."""
        return self.learned is not None and name in self.learned.streams


@dataclass(frozen=True)
class Declared:
    """The bounds of external streams, alone and about each other."""

    streams: Mapping[str, Lateness]
    skew: Skew = field(default_factory=Skew)

    def is_bounded(self, name: str) -> bool:
        """Whether anything says how late the rows of a stream may be."""
        return self.streams[name].is_declared or self.skew.bounds_stream(name) or self.skew.learns(name)

    def heartbeats(self) -> CombinedHeartbeats:
        """The generator of the heartbeats of all streams that have no sources by a column."""
        whole = {name: said for name, said in self.streams.items() if said.sources is None}
        if len(whole) < len(self.streams):
            return replace(self, streams=whole).heartbeats()
        timeout = NEVER if self.skew.timeout is None else self.skew.timeout
        generators: list[Generator] = [
            LearnedHeartbeats(QuantileEstimator([name], said.confidence), timeout)
            for name, said in self.streams.items()
            if said.confidence is not None
        ]
        bounds = self.bounds()
        if bounds.streams:
            generators.append(self._generator(bounds))
        if self.skew.learned is not None and any(map(self.skew.learns, self.streams)):
            generators.append(self.skew.learned.heartbeats(self.streams, timeout))
        return CombinedHeartbeats(list(self.streams), generators)

    def promises(self) -> dict[str, Promise]:
        """The promises that depend on the clock or on the sources of rows, by stream."""
        found: dict[str, Promise] = {}
        for name, said in self.streams.items():
            by_source = said.by_source()
            if by_source is not None:
                found[name] = by_source
                continue
            made: list[Promise] = [] if said.latency is None else [TimerPromise(said.latency)]
            made += [] if said.skew is None else [SkewPromise(said.skew)]
            if made:
                found[name] = made[0] if len(made) == 1 else StrongestPromise(tuple(made))
        return found

    def bounds(self) -> Bounds:
        """The declared bounds, of streams that have any (Srivastava & Widom, §2)."""
        entries = {(name, name): own for name, said in self.streams.items() if (own := said.pairs())}
        for (of, on), pairs in self.skew.pairs.items():
            if of in self.streams and on in self.streams:
                entries.setdefault((of, on), []).extend(pairs)
        named = {name for pair in entries for name in pair}
        names = [name for name in self.streams if name in named]
        transit = {name: self.streams[name].transit for name in names}
        timeout = NEVER if self.skew.timeout is None else self.skew.timeout
        fifo = frozenset(number for number, name in enumerate(names) if self.streams[name].fifo)
        return replace(Bounds.of(SkewMatrix.of(names, entries), transit, timeout), fifo=fifo)

    def _generator(self, bounds: Bounds) -> HeartbeatGenerator:
        """Heartbeats from declared bounds (Srivastava & Widom, Figure 2).

        Rows of several streams that come together have no known order among each other, which matters where
        rows are counted.
        """
        skew, ordered = self.skew, not bounds.skew.n.any()
        if not skew.groups:
            return HeartbeatGenerator(bounds, tick=skew.tick, close=skew.closure, ordered=ordered)
        grouped = group_named(bounds.closed() if skew.closure else bounds, skew.groups)
        promised = [name for name, said in self.streams.items() if said.follows_clock or said.confidence]
        ensure_groups_move(grouped, promised)
        return HeartbeatGenerator(grouped, tick=skew.tick, close=skew.closure, ordered=ordered)
