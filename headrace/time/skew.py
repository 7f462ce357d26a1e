"""Skew bounds: sets of pairs (t, δ) between named sources, and their closure B*.

Srivastava & Widom, "Flexible Time Management in Data Stream Systems", §2, §3.1 and §3.2. A bound (t, δ) of
`a` on `b` says: when `a` emits a tuple with time τ at instant c, every tuple that `b` emits after c + t has
a time > τ − δ. A tuple-based bound counts tuples emitted by `b` in place of ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.arrays import Ints
from headrace.errors import TimeError

# Redundant pairs (S⁻ of Srivastava & Widom, §3.2) and the join ⊔ (§5.2), over columns of (t, n, δ).
#
# A pair is redundant if the set has another one that is no later in `t` and `n` and no larger in δ.


def minimal(key: Ints, t: Ints, n: Ints, delta: Ints) -> Ints:
    """Positions of the non-redundant pairs of each key, sorted by (key, t, n, δ); one of equal pairs is kept.

    One sweep per distinct `n`: among pairs that count at most `n` tuples, sorted by t, only those whose δ
    is below every earlier one survive.
    """
    if not len(key):
        return np.zeros(0, dtype=np.int64)
    if len(np.unique(key)) == len(key):
        return np.argsort(key)
    kept = [_level(key, t, n, delta, int(count)) for count in np.unique(n)]
    chosen = np.concatenate(kept)
    order = np.lexsort((delta[chosen], n[chosen], t[chosen], key[chosen]))
    return chosen[order]


def _level(key: Ints, t: Ints, n: Ints, delta: Ints, count: int) -> Ints:
    """The pairs of exactly `count` tuples that no pair of at most `count` makes redundant."""
    able = np.flatnonzero(n <= count)
    order = able[np.lexsort((n[able], delta[able], t[able], key[able]))]
    rank = np.unique(delta[order], return_inverse=True)[1].astype(np.int64)
    _, entry = np.unique(key[order], return_inverse=True)
    falling = rank - entry.astype(np.int64) * (len(order) + 1)
    below = np.ones(len(order), dtype=np.bool_)
    below[1:] = falling[1:] < np.minimum.accumulate(falling)[:-1]
    survivors: Ints = order[below]
    exact: Ints = survivors[n[survivors] == count]
    return exact


def join(t: Ints, delta: Ints, begin: Ints) -> tuple[Ints, Ints]:
    """⊔ of time-based sets: at each instant the weakest of their guarantees (§5.2).

    `begin` marks where each set starts in the columns. Instants at which some set has no guarantee yet are
    left out; the result has no redundant pairs.
    """
    nothing = np.iinfo(np.int64).max
    instants = np.unique(t)
    weakest = np.array(
        [np.minimum.reduceat(np.where(t <= x, delta, nothing), begin).max() for x in instants], dtype=np.int64
    )
    said = weakest < nothing
    keep = minimal(
        np.zeros(said.sum(), dtype=np.int64), instants[said], np.zeros_like(instants[said]), weakest[said]
    )
    return instants[said][keep], weakest[said][keep]


@dataclass(frozen=True, order=True, slots=True)
class Pair:
    """After `t` ticks and then `n` tuples of the bounded source, it lags by less than `delta`.

    `n == 0` is the paper's time-based pair, `t == 0 < n` its tuple-based pair. Both positive occurs only in
    the closure: a time-based step followed by a tuple-based one.
    """

    t: int
    delta: int
    n: int = 0

    def __post_init__(self) -> None:
        if min(self.t, self.delta, self.n) < 0:
            raise TimeError("HR-T001", f"a skew bound cannot be negative: {self}", hint="t, δ and n are ≥ 0")

    @classmethod
    def tuples(cls, n: int, delta: int) -> Pair:
        """The tuple-based pair (n, δ) of §3.1; with `n == 0` it is the time-based (0, δ)."""
        return cls(0, delta, n)

    def __str__(self) -> str:
        if not self.n:
            return f"({self.t}, {self.delta})"
        wait = f"{self.t} ticks, then {self.n} tuples" if self.t else f"{self.n} tuples"
        return f"({wait}, {self.delta})"


@dataclass(frozen=True, eq=False)
class SkewMatrix:
    """The skew-bound matrix B over named streams; an entry is a set of pairs, possibly empty.

    Stored as columns `source, target, t, n, delta`, sorted and without redundant pairs, so that two matrices
    with the same promises are equal. Bounds are about the source's clock, not only about its tuples: so the
    closure can reason with "virtual tuples" (§3.2) about a source that is silent.
    """

    streams: tuple[str, ...]
    source: Ints
    target: Ints
    t: Ints
    n: Ints
    delta: Ints

    @classmethod
    def of(
        cls, streams: Sequence[str], entries: Mapping[tuple[str, str], Iterable[Pair | tuple[int, int]]]
    ) -> SkewMatrix:
        """From named entries; a plain tuple (t, δ) is a time-based pair."""
        index = _index(streams)
        rows = [
            (_known(index, a), _known(index, b), *_triple(p))
            for (a, b), pairs in entries.items()
            for p in pairs
        ]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return cls.build(streams, *table.T)

    @classmethod
    def build(
        cls, streams: Sequence[str], source: Ints, target: Ints, t: Ints, n: Ints, delta: Ints
    ) -> SkewMatrix:
        """From columns in any order; redundant pairs are removed."""
        _index(streams)
        columns = [np.asarray(x, dtype=np.int64) for x in (source, target, t, n, delta)]
        if len(columns[0]) and min(int(x.min()) for x in columns) < 0:
            raise TimeError("HR-T001", "a skew bound cannot be negative", hint="t, δ and n are ≥ 0")
        keep = minimal(columns[0] * len(streams) + columns[1], *columns[2:])
        return cls(tuple(streams), *(x[keep] for x in columns))

    @property
    def size(self) -> int:
        """The number of streams."""
        return len(self.streams)

    @cached_property
    def key(self) -> Ints:
        """Entry number `source · size + target` of each pair, ascending."""
        keys: Ints = self.source * self.size + self.target
        return keys

    def __getitem__(self, at: tuple[str, str]) -> tuple[Pair, ...]:
        index = _index(self.streams)
        return self.entry(_known(index, at[0]), _known(index, at[1]))

    def entry(self, i: int, j: int) -> tuple[Pair, ...]:
        """The set B_ij by position, earliest pair first."""
        lo, hi = np.searchsorted(self.key, [i * self.size + j, i * self.size + j + 1])
        columns = zip(self.t[lo:hi], self.delta[lo:hi], self.n[lo:hi], strict=True)
        return tuple(Pair(int(t), int(d), int(n)) for t, d, n in columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SkewMatrix) and self.streams == other.streams and self._same(other)

    __hash__ = None  # type: ignore[assignment]

    def _same(self, other: SkewMatrix) -> bool:
        mine = (self.key, self.t, self.n, self.delta)
        return all(map(np.array_equal, mine, (other.key, other.t, other.n, other.delta)))

    def product(self, other: SkewMatrix) -> SkewMatrix:
        """`B * B'` of §3.2: the pairs of both, and every path of one step in each.

        (t, δ) ⊗ (t', n', δ') = (t + t', n', δ + δ'): a virtual tuple at the middle source, then the second
        bound from there. A first step that counts tuples (n > 0) is not composed: it counts tuples of the
        middle source, which do not show how many the last source has emitted, so no pair expresses it.
        """
        if self.streams != other.streams:
            raise TimeError(
                "HR-T002", "matrices over different streams", hint="name the same streams in order"
            )
        from headrace.kernels.skew import product_row

        left, right = _rows(self), _rows(other)
        rows = [product_row(i, self.size, *left, *right) for i in range(self.size)]
        source = np.repeat(np.arange(self.size), [len(target) for target, _ in rows])
        target = np.concatenate([target for target, _ in rows])
        t, n, delta = np.concatenate([pairs for _, pairs in rows]).T
        return SkewMatrix(self.streams, *_sorted(source, target, t, n, delta))

    __mul__ = product

    def is_idempotent(self) -> bool:
        """Whether B² = B, "recognised with one multiplication" (§3.2)."""
        return self.product(self) == self

    def closure(self) -> SkewMatrix:
        """B*: squared until idempotent, which takes at most ⌈log₂ n⌉ + 1 multiplications (§3.2).

        Matrices with only bounds of streams on themselves are their own closure: another step only adds to t
        and δ.
        """
        if np.array_equal(self.source, self.target):
            return self
        current = self
        while (square := current.product(current)) != current:
            current = square
        return current

    def tightest(self) -> Ints:
        """δ_min of Theorem 3.3 as an n × n array, −1 where no time-based pair exists.

        Tuple-based pairs are left out: once every stream has paused, no further tuple is counted.
        """
        timed = self.n == 0
        best = np.full(self.size * self.size, np.iinfo(np.int64).max, dtype=np.int64)
        np.minimum.at(best, self.key[timed], self.delta[timed])
        best[best == np.iinfo(np.int64).max] = -1
        return best.reshape(self.size, self.size)


def _rows(m: SkewMatrix) -> tuple[Ints, Ints, Ints]:
    """Where each source's pairs begin, their targets, and the (t, n, δ) table, for the kernel."""
    begin = np.searchsorted(m.source, np.arange(m.size + 1)).astype(np.int64)
    return begin, m.target, np.stack([m.t, m.n, m.delta], axis=1)


def _sorted(source: Ints, target: Ints, t: Ints, n: Ints, delta: Ints) -> tuple[Ints, ...]:
    order = np.lexsort((delta, n, t, target, source))
    return tuple(np.ascontiguousarray(x[order]) for x in (source, target, t, n, delta))


def _triple(pair: Pair | tuple[int, int]) -> tuple[int, int, int]:
    """The pair as (t, n, δ)."""
    p = pair if isinstance(pair, Pair) else Pair(*pair)
    return p.t, p.n, p.delta


def _index(streams: Sequence[str]) -> dict[str, int]:
    """The place of each stream by name; raises HR-T003 if a name occurs twice."""
    index = {name: i for i, name in enumerate(streams)}
    if len(index) != len(streams):
        raise TimeError(
            "HR-T003", "a stream is named twice in a skew matrix", hint="give each stream one name"
        )
    return index


def _known(index: Mapping[str, int], name: str) -> int:
    """The place of a stream; raises HR-T002 if it is unknown."""
    if name not in index:
        known = ", ".join(list(index)[:8])
        raise TimeError("HR-T002", f"no stream named {name!r} in the skew matrix", hint=f"known: {known}")
    return index[name]
