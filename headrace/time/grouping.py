"""Groups of streams: one heartbeat for many sources (Srivastava & Widom §5.2).

A group's bound on another is ⊔ of its members' bounds: the weakest guarantee that any member gives on any
member of the other. Its latency is the largest of its members'. Laws: a group's heartbeat is never above the
least of its members' heartbeats; ⊔ of an idempotent matrix is idempotent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.bounds import NEVER, Bounds
from headrace.time.skew import SkewMatrix, join, minimal
from headrace.time.systems import Population

Triple = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Grouped:
    """Bounds over m groups and the group of each source: the input of the heartbeat generator.

    `names` are the names of the sources, if they have any.
    """

    bounds: Bounds
    group: Ints
    names: tuple[str, ...] = ()

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names of the sources, or their numbers."""
        return self.names or tuple(f"source {k}" for k in range(len(self.group)))


def group_bounds(bounds: Bounds, group: Sequence[int] | Ints, names: Sequence[str] | None = None) -> Grouped:
    """⊔ of a matrix (give it B* for the paper's B̂) and the latencies of the groups.

    Tuple-based pairs remain only towards a group of one: they count tuples of one source, and n tuples of a
    group need not be n tuples of each member.
    """
    index, m = _checked(group, bounds.skew.size)
    labels = _names(names, m)
    return Grouped(
        Bounds(_joined(bounds.skew, index, labels), _latency(bounds.latency, index, m), bounds.timeout),
        index,
        bounds.streams,
    )


def group_population(
    population: Population,
    group: Sequence[int] | Ints,
    timeout: int | None = None,
    names: Sequence[str] | None = None,
) -> Grouped:
    """The same for a population, without building its n × n matrix."""
    index, m = _checked(group, len(population.latency))
    labels = _names(names, m)
    return Grouped(
        Bounds(population.grouped(index, labels), _latency(population.latency, index, m), timeout), index
    )


def group_named(bounds: Bounds, groups: Sequence[Sequence[str]]) -> Grouped:
    """`group_bounds` for groups by name; streams that are in no group stay alone."""
    members = [[name for name in group if name in bounds.streams] for group in groups]
    named = {name for group in members for name in group}
    members += [[name] for name in bounds.streams if name not in named]
    members = [group for group in members if group]
    number = {name: i for i, group in enumerate(members) for name in group}
    return group_bounds(bounds, [number[name] for name in bounds.streams], ["+".join(g) for g in members])


def ensure_groups_move(grouped: Grouped, others: Collection[str] = ()) -> None:
    """Refuse a group whose heartbeat never rises: the rows of its members would wait forever.

    `others`: members with another promise.
    """
    bounds = grouped.bounds
    if bounds.timeout is not None and bounds.timeout != NEVER:
        return
    several = np.bincount(grouped.group, minlength=len(bounds.streams)) > 1
    still = several & ~np.isin(np.arange(len(several)), bounds.skew.target)
    for name, group in zip(grouped.members, grouped.group, strict=True):
        if still[group] and name not in others:
            raise TimeError(
                "HR-T044",
                f"no stream bounds every member of the group of {name!r}, so its heartbeat never rises",
                place=f"group {bounds.streams[group]}",
                hint="declare skew bounds between the members, or a timeout, or take the group apart",
            )


def join_entries(entries: Iterable[Sequence[Triple]]) -> list[Triple]:
    """⊔ of sets of (t, n, δ): pairwise maxima without redundant ones; empty if one of the sets is empty."""
    return reduce(_join_two, map(list, entries))


def _join_two(left: list[Triple], right: list[Triple]) -> list[Triple]:
    """The least upper bounds of all pairs, without those that others imply."""
    both = {(max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2])) for a in left for b in right}
    if not both:
        return []
    t, n, delta = np.array(sorted(both), dtype=np.int64).T
    keep = minimal(np.zeros_like(t), t, n, delta)
    return [(int(t[k]), int(n[k]), int(delta[k])) for k in keep]


def _joined(skew: SkewMatrix, group: Ints, names: Sequence[str]) -> SkewMatrix:
    """The skew matrix between groups. Tuple-based pairs count only for groups of one."""
    m = len(names)
    size = np.bincount(group, minlength=m)
    usable = np.flatnonzero((skew.n == 0) | (size[group[skew.target]] == 1))
    block = group[skew.source[usable]] * m + group[skew.target[usable]]
    order = usable[np.argsort(block, kind="stable")]
    begin = np.searchsorted(np.sort(block), np.arange(m * m + 1))
    rows = []
    for ab in range(m * m):
        a, b = divmod(ab, m)
        part = order[begin[ab] : begin[ab + 1]]
        rows += [(a, b, t, n, d) for t, n, d in _block(skew, part, int(size[a] * size[b]))]
    table = np.array(rows, dtype=np.int64).reshape(-1, 5)
    return SkewMatrix.build(names, *table.T)


def _block(skew: SkewMatrix, part: Ints, entries: int) -> list[Triple]:
    """⊔ of the pairs in `part`; empty unless they cover all `entries` of the block."""
    begin = np.flatnonzero(np.diff(skew.key[part], prepend=-1))
    if len(begin) < entries:
        return []
    if not skew.n[part].any():
        t, delta = join(skew.t[part], skew.delta[part], begin)
        return [(int(x), 0, int(y)) for x, y in zip(t, delta, strict=True)]
    rows = [(int(skew.t[k]), int(skew.n[k]), int(skew.delta[k])) for k in part]
    return join_entries(rows[lo:hi] for lo, hi in zip(begin, [*begin[1:], len(rows)], strict=True))


def _latency(latency: Sequence[int] | Ints, group: Ints, m: int) -> tuple[int, ...]:
    """L of a group: the largest of its members' (§5.2)."""
    worst = np.zeros(m, dtype=np.int64)
    np.maximum.at(worst, group, np.asarray(latency, dtype=np.int64))
    return tuple(int(x) for x in worst)


def _names(names: Sequence[str] | None, m: int) -> tuple[str, ...]:
    return tuple(names) if names is not None else tuple(f"group {k}" for k in range(m))


def _checked(group: Sequence[int] | Ints, sources: int) -> tuple[Ints, int]:
    """The group numbers as an array and the number of groups; raises if a group is empty."""
    index = np.asarray(group, dtype=np.int64)
    if len(index) != sources:
        raise TimeError("HR-T041", f"{len(index)} group numbers for {sources} sources", hint="one per source")
    count = np.bincount(index) if len(index) and index.min() >= 0 else np.zeros(1, dtype=np.int64)
    if (count == 0).any():
        raise TimeError("HR-T040", "a group has no members", hint="number the groups 0 … m − 1 without gaps")
    return index, len(count)
