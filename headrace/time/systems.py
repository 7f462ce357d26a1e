"""The two example systems of Srivastava & Widom §4, for few sources or for very many.

A population has a few numbers per source, O(n) (§5.1), and builds its n × n matrix only on demand. For groups
of its sources it computes the ⊔ of §5.2 directly from those numbers, without the matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.skew import SkewMatrix
from headrace.time.timestamp import MAX_TIME


class Population(Protocol):
    """Many sources described by a few numbers each."""

    @property
    def latency(self) -> Ints:
        """The latency bound of each source."""
        ...

    def skew(self, streams: Sequence[str]) -> SkewMatrix:
        """The n × n matrix B."""
        ...

    def grouped(self, group: Ints, names: Sequence[str]) -> SkewMatrix:
        """⊔ of B over groups (§5.2): the weakest guarantee of any member on any member, never stronger."""
        ...


def _column(values: Sequence[int] | Ints, n: int | None = None) -> Ints:
    """Values ≥ 0 as an array; a single value is repeated n times."""
    column = np.atleast_1d(np.asarray(values, dtype=np.int64))
    column = np.broadcast_to(column, (n,)).copy() if n is not None and len(column) == 1 else column
    if len(column) and column.min() < 0:
        raise TimeError("HR-T001", "a bound of a source cannot be negative", hint="use values ≥ 0")
    return column


def _ceil_div(a: Ints, b: Ints) -> Ints:
    quotient: Ints = -(-a // b)
    return quotient


def _table(streams: Sequence[str], parts: list[tuple[Ints, Ints, Ints, Ints, int]]) -> SkewMatrix:
    """Join parts (source, target, t, delta, n) into a matrix."""
    stacked = [np.concatenate([np.ravel(part[k]) for part in parts]) for k in range(4)]
    n = np.concatenate([np.full(np.size(part[0]), part[4], dtype=np.int64) for part in parts])
    source, target, t, delta = stacked
    return SkewMatrix.build(streams, source, target, t, n, delta)


@dataclass(frozen=True, eq=False)
class GlobalCounter:
    """§4.1: sources get times from one counter and spend between `fastest` and `slowest` on each token.

    B_ij = {(max(slowest_j − fastest_i, 0), 0), tuple-based (1, 0)}, B_ii = {(0, 0)}; no timeout is needed.
    """

    fastest: Ints
    slowest: Ints
    latency: Ints

    @classmethod
    def of(
        cls,
        fastest: Sequence[int] | Ints,
        slowest: Sequence[int] | Ints,
        latency: Sequence[int] | Ints = (0,),
    ) -> GlobalCounter:
        """Check and build; `fastest` and `slowest` have one value per source."""
        low, high = _column(fastest), _column(slowest)
        if len(low) != len(high) or (low > high).any():
            raise TimeError(
                "HR-T006", "a fastest above the slowest", hint="0 ≤ fastest ≤ slowest, one per source"
            )
        return cls(low, high, _column(latency, len(low)))

    def skew(self, streams: Sequence[str]) -> SkewMatrix:
        """Time-based and tuple-based pairs between different sources; (0, 0) within a source."""
        i, j = np.divmod(np.arange(len(streams) ** 2, dtype=np.int64), len(streams))
        other, same = i != j, i == j
        lag = np.maximum(self.slowest[j] - self.fastest[i], 0)[other]
        zero, nothing = np.zeros_like(lag), np.zeros(len(streams), dtype=np.int64)
        timed = (i[other], j[other], lag, zero, 0)
        counted = (i[other], j[other], zero, zero, 1)
        return _table(streams, [timed, counted, (i[same], j[same], nothing, nothing, 0)])

    def grouped(self, group: Ints, names: Sequence[str]) -> SkewMatrix:
        """Exact for the time-based pairs; tuple-based ones count one source's tuples, not a group's."""
        m = len(names)
        slow, fast = _top(self.slowest, group, m), _top(-self.fastest, group, m)
        a, b = np.divmod(np.arange(m * m, dtype=np.int64), m)
        lag = slow.first[b] + fast.first[a]
        within = _pairwise(slow, fast)
        lag[a == b] = within
        lag = np.maximum(lag, 0)
        return _table(names, [(a, b, lag, np.zeros_like(lag), 0)])


@dataclass(frozen=True, eq=False)
class DistributedSensors:
    """§4.2: local clocks deviate from a global one by at most `deviation`, kept by periodic synchronisation.

    B_ij = {(0, d_i + d_j)}, B_ii = {(0, d_i)}: a timeout is needed. If source j's clock advances by at least
    `rate_j` per tick, B_ij also has (⌈(d_i + d_j) / r_j⌉, 0) and B_jj (⌈d_j / r_j⌉, 0): then none is needed.
    """

    deviation: Ints
    latency: Ints
    rate: Ints | None = None

    @classmethod
    def of(
        cls,
        deviation: Sequence[int] | Ints,
        latency: Sequence[int] | Ints = (0,),
        rate: Sequence[int] | Ints | None = None,
    ) -> DistributedSensors:
        """Check and build; a `rate` adds pairs with δ = 0."""
        d = _column(deviation)
        r = None if rate is None else _column(rate, len(d))
        if r is not None and (r == 0).any():
            raise TimeError("HR-T006", "a minimum rate of 0 says nothing", hint="leave the rate out")
        return cls(d, _column(latency, len(d)), r)

    def skew(self, streams: Sequence[str]) -> SkewMatrix:
        i, j = np.divmod(np.arange(len(streams) ** 2, dtype=np.int64), len(streams))
        delta = np.where(i == j, self.deviation[i], self.deviation[i] + self.deviation[j])
        parts = [(i, j, np.zeros_like(delta), delta, 0)]
        if self.rate is not None:
            parts.append((i, j, _ceil_div(delta, self.rate[j]), np.zeros_like(delta), 0))
        return _table(streams, parts)

    def grouped(self, group: Ints, names: Sequence[str]) -> SkewMatrix:
        """Exact without rates. With rates, only the two end pairs of the ⊔: correct, but possibly later."""
        m = len(names)
        top = _top(self.deviation, group, m)
        a, b = np.divmod(np.arange(m * m, dtype=np.int64), m)
        delta = top.first[a] + top.first[b]
        delta[a == b] = np.where(top.alone, top.first, top.first + top.second)
        parts = [(a, b, np.zeros_like(delta), delta, 0)]
        if self.rate is not None:
            parts.append((a, b, self._catch_up(group, top), np.zeros_like(delta), 0))
        return _table(names, parts)

    def _catch_up(self, group: Ints, top: _Top) -> Ints:
        """The greatest ⌈(d_i + d_j) / r_j⌉ over i in a, j in b (⌈d_j / r_j⌉ if a = b has one member)."""
        assert self.rate is not None
        m = len(top.first)
        waits = np.zeros((m, m), dtype=np.int64)
        for a in range(m):
            ahead = np.where((group == a) & top.alone[group], 0, top.first[a])
            np.maximum.at(waits[a], group, _ceil_div(self.deviation + ahead, self.rate))
        return waits


@dataclass(frozen=True, eq=False)
class SourceClasses:
    """Sources of a few classes: `between` bounds any two different sources by their classes, `within` each
    source against itself (one diagonal entry per class)."""

    source_class: Ints
    between: SkewMatrix
    within: SkewMatrix
    latency: Ints

    def skew(self, streams: Sequence[str]) -> SkewMatrix:
        every = np.arange(len(streams), dtype=np.int64)
        return self.grouped(every, streams)

    def grouped(self, group: Ints, names: Sequence[str]) -> SkewMatrix:
        """⊔ over the classes present in each group: m² · c² entries, for any number of sources."""
        from headrace.time.grouping import join_entries

        present = self._present(group, len(names))
        rows = []
        for a in range(len(names)):
            for b in range(len(names)):
                rows += [(a, b, t, n, d) for t, n, d in join_entries(self._entries(present, a, b))]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return SkewMatrix.build(names, *table.T)

    def _present(self, group: Ints, m: int) -> list[dict[int, int]]:
        """How many members of each class each group has."""
        count = np.zeros((m, self.between.size), dtype=np.int64)
        np.add.at(count, (group, self.source_class), 1)
        return [{int(c): int(row[c]) for c in np.flatnonzero(row)} for row in count]

    def _entries(self, present: list[dict[int, int]], a: int, b: int) -> list[list[tuple[int, int, int]]]:
        """The pairs between the members of two groups, one entry per pair of classes."""
        counted = sum(present[b].values()) == 1
        entries = []
        for x in present[a]:
            for y in present[b]:
                if a != b or x != y or present[a][x] > 1:
                    entries.append(_triples(self.between, x, y, counted))
            if a == b:
                entries.append(_triples(self.within, x, x, counted))
        return entries


def _triples(m: SkewMatrix, x: int, y: int, counted: bool) -> list[tuple[int, int, int]]:
    return [(p.t, p.n, p.delta) for p in m.entry(x, y) if counted or not p.n]


@dataclass(frozen=True, eq=False)
class _Top:
    """The two largest values of each group and the position of the largest; `alone` marks groups of one."""

    first: Ints
    second: Ints
    owner: Ints
    alone: np.ndarray[tuple[int], np.dtype[np.bool_]]


_LOW = -MAX_TIME // 4


def _top(values: Ints, group: Ints, m: int) -> _Top:
    """The two greatest values of each group."""
    order = np.lexsort((-values, group))
    begin = np.searchsorted(group[order], np.arange(m + 1))
    size = np.diff(begin)
    if (size == 0).any():
        raise TimeError("HR-T040", "a group has no members", hint="number the groups 0 … m − 1 without gaps")
    last = len(values) - 1
    second = np.where(size > 1, values[order[np.minimum(begin[:-1] + 1, last)]], _LOW)
    return _Top(values[order[begin[:-1]]], second, order[begin[:-1]], size == 1)


def _pairwise(x: _Top, y: _Top) -> Ints:
    """The greatest x_i + y_j over two members i ≠ j; far below zero if there is only one member."""
    apart = x.first + y.first
    crossed = np.maximum(x.first + y.second, x.second + y.first)
    return np.where(x.owner == y.owner, crossed, apart)
