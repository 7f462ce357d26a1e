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
import numpy.typing as npt

from headrace.errors import TimeError
from headrace.time.pareto import minimal

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, order=True, slots=True)
class Pair:
    """After `t` ticks and then `n` tuples of the bounded source, it lags by less than `delta`.

    `n == 0` is the paper's time-based pair, `t == 0 < n` its tuple-based pair. Both positive arises in the
    closure only: a time-based step followed by a tuple-based one.
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

    Held as columns `source, target, t, n, delta`, sorted and free of redundant pairs, so that two matrices
    that promise the same are equal. Bounds speak of the source's clock, not only of its tuples: that is what
    lets the closure reason with "virtual tuples" (§3.2) about a source that happens to be silent.
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
        """How many streams."""
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
        """`B * B'` of §3.2: what both say directly, and every path of one step in each.

        (t, δ) ⊗ (t', n', δ') = (t + t', n', δ + δ'): a virtual tuple at the middle source, then the second
        bound from there. A first step that counts tuples (n > 0) is not composed: it counts tuples of the
        middle source, which say nothing of how many the last source has emitted, so no pair expresses it.
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

        Bounds of streams on themselves alone are their own closure: another step only adds to t and δ.
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
    """Where each source's pairs begin, their targets, and the (t, n, δ) table, as the kernel wants them."""
    begin = np.searchsorted(m.source, np.arange(m.size + 1)).astype(np.int64)
    return begin, m.target, np.stack([m.t, m.n, m.delta], axis=1)


def _sorted(source: Ints, target: Ints, t: Ints, n: Ints, delta: Ints) -> tuple[Ints, ...]:
    order = np.lexsort((delta, n, t, target, source))
    return tuple(np.ascontiguousarray(x[order]) for x in (source, target, t, n, delta))


def _triple(pair: Pair | tuple[int, int]) -> tuple[int, int, int]:
    p = pair if isinstance(pair, Pair) else Pair(*pair)
    return p.t, p.n, p.delta


def _index(streams: Sequence[str]) -> dict[str, int]:
    index = {name: i for i, name in enumerate(streams)}
    if len(index) != len(streams):
        raise TimeError(
            "HR-T003", "a stream is named twice in a skew matrix", hint="give each stream one name"
        )
    return index


def _known(index: Mapping[str, int], name: str) -> int:
    if name not in index:
        known = ", ".join(list(index)[:8])
        raise TimeError("HR-T002", f"no stream named {name!r} in the skew matrix", hint=f"known: {known}")
    return index[name]
