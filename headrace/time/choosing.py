"""Which streams to group: the problem that Srivastava & Widom §5.2 leave open.

Objective: the expected heartbeat delay, averaged over streams (or over rows, with rates as weights). The
heartbeat of a stream is delayed by what its bounds make it wait for: the sum of its features, such as latency
and clock deviation. A group waits for the worst of its members in each feature, so putting j into group g
costs Σ_f max over g − Σ_f of j.

With one feature, or features with the same ranking of streams, an optimal grouping is contiguous in that
ranking (swap two streams that interleave: no maximum rises), and dynamic programming over it is exact. With
several features, the best contiguous grouping over every ranking tried is a start. For a full matrix, where
the delay also depends on what a group hears, moves of single streams then improve the exact objective until
none helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.time.bounds import Bounds

Floats = npt.NDArray[np.float64]

BLOCKS = 512
"""Neighbours in a ranking are combined into at most this many blocks: the DP is O(BLOCKS² · m)."""

_FAR = 1e15


@dataclass(frozen=True, eq=False)
class Profile:
    """Per stream, its delays (streams × features, in clock ticks) and its weight."""

    features: Floats
    weight: Floats

    @classmethod
    def of(cls, *features: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Profile:
        """From columns, declared (latency, deviation ÷ pace) or measured (an estimator's δ, 1 ÷ rate)."""
        table = np.stack([np.asarray(f, dtype=np.float64) for f in features], axis=1)
        w = np.ones(len(table)) if weight is None else np.asarray(weight, dtype=np.float64)
        if len(w) != len(table) or not len(table) or (w < 0).any() or not w.sum() > 0:
            raise TimeError(
                "HR-T042", "weights do not fit the streams", hint="one weight ≥ 0 per stream, not all 0"
            )
        return cls(table, w)

    def extra(self, group: Ints) -> float:
        """Expected delay that this grouping adds, averaged over the streams by weight."""
        worst = np.full((int(group.max()) + 1, self.features.shape[1]), -np.inf)
        np.maximum.at(worst, group, self.features)
        waits = (worst[group] - self.features).sum(axis=1)
        return float((waits * self.weight).sum() / self.weight.sum())


@dataclass(frozen=True, eq=False)
class Choice:
    """A grouping and its cost: `extra` expected delay on average, compared with one heartbeat per stream."""

    groups: int
    group: Ints
    extra: float


def choose_groups(profile: Profile, m: int) -> Choice:
    """The best grouping into at most `m` groups among the contiguous groupings of the profile's rankings."""
    return _choice(_explore(profile, m), m)


def choices(profile: Profile, most: int) -> list[Choice]:
    """The best grouping for every number of groups up to `most`: the gain of each further group.

    Law: the cost never rises with the number of groups, and is 0 with one group per stream.
    """
    explored = _explore(profile, most)
    return [_choice(explored, k) for k in range(1, min(most, len(profile.weight)) + 1)]


def _explore(profile: Profile, most: int) -> list[_Ranking]:
    """The best contiguous groupings along every ranking that is tried."""
    if most < 1:
        raise TimeError("HR-T043", f"{most} groups", hint="ask for at least one group")
    return [_along(profile, order, min(most, len(order))) for order in _rankings(profile)]


def _choice(rankings: list[_Ranking], most: int) -> Choice:
    """The cheapest grouping into at most `most` groups; of equal ones, the one with fewest groups."""
    extra, groups, best = min(
        ((cost, k + 1, r) for r in rankings for k, cost in enumerate(r.extra[:most])), key=lambda x: x[:2]
    )
    return Choice(groups, best.group(groups), extra)


@dataclass(frozen=True, eq=False)
class _Ranking:
    """The result of dynamic programming along one ranking: cuts per layer, and the cost of 1, 2, … groups."""

    order: Ints
    block: Ints
    cuts: list[Ints]
    extra: list[float]

    def group(self, groups: int) -> Ints:
        """The group of each stream, for this number of groups."""
        group = np.empty(len(self.order), dtype=np.int64)
        group[self.order] = _walk(self.cuts[: groups - 1], int(self.block[-1]) + 1)[self.block]
        return group


def _rankings(profile: Profile) -> list[Ints]:
    """By the sum of features, and by each feature with the sum to break ties."""
    total = profile.features.sum(axis=1)
    ranks = [np.argsort(total, kind="stable")]
    if profile.features.shape[1] > 1:
        ranks += [np.lexsort((total, column)) for column in profile.features.T]
    return ranks


def _along(profile: Profile, order: Ints, most: int) -> _Ranking:
    """Exact dynamic programming over contiguous groups of blocks in one ranking, for 1 … `most` groups."""
    features, weight = profile.features[order], profile.weight[order]
    block = _blocks(features, most)
    begin = np.flatnonzero(np.diff(block, prepend=-1))
    cost = _costs(np.maximum.reduceat(features, begin), np.add.reduceat(weight, begin))
    alone = float((features.sum(axis=1) * weight).sum())
    best, cuts, totals = cost[0], [], [cost[0, -1]]
    for _ in range(1, min(most, len(begin))):
        through = best[:-1, None] + cost[1:]
        at = np.argmin(through, axis=0)
        best = through[at, np.arange(len(at))]
        cuts.append(at + 1)
        totals.append(best[-1])
    return _Ranking(order, block, cuts, [max(0.0, float(x - alone)) / float(weight.sum()) for x in totals])


def _blocks(features: Floats, most: int) -> Ints:
    """The block number of each stream in ranking order: equal neighbours together, at most `BLOCKS`."""
    changes = np.any(np.diff(features, axis=0, prepend=features[:1]) != 0, axis=1)
    distinct: Ints = np.cumsum(changes, dtype=np.int64)
    room, last = max(BLOCKS, most), int(distinct[-1])
    return distinct if last < room else distinct * room // (last + 1)


def _costs(features: Floats, weight: Floats) -> Floats:
    """`cost[l, r]`: the weight of blocks l … r times the delay of their group; infinite if l > r."""
    size = len(weight)
    valid = np.tri(size, dtype=np.bool_).T
    wait = np.zeros((size, size))
    for column in features.T:
        wait += np.maximum.accumulate(np.where(valid, column, column.min()), axis=1)
    total = np.concatenate(([0.0], np.cumsum(weight)))
    return np.where(valid, wait * (total[None, 1:] - total[:-1, None]), np.inf)


def _walk(cuts: Sequence[Ints], blocks: int) -> Ints:
    """The group of each block, following the cuts back from the last block."""
    group = np.zeros(blocks, dtype=np.int64)
    end = blocks - 1
    for k in range(len(cuts), 0, -1):
        start = int(cuts[k - 1][end])
        group[start : end + 1] = k
        end = start - 1
        if end < 0:
            break
    return group


class MatrixDelay:
    """The exact objective for a full matrix: the delay of each group, given what every group hears.

    The heartbeat of a stream is delayed by D_j = L_j + min over i of (lag_ij + 1/λ_i): the best evidence,
    which is older if tuples of i are rare. lag_ij is the least t + δ ÷ pace of B_ij, `pace` being application
    ticks per clock tick. For groups, lag and L are the worst over the members and λ is their sum.
    """

    def __init__(self, bounds: Bounds, rates: npt.ArrayLike | None = None, pace: float = 1.0) -> None:
        skew = bounds.skew
        timed = skew.n == 0
        lag = np.full(skew.size * skew.size, _FAR)
        np.minimum.at(lag, skew.key[timed], skew.t[timed] + skew.delta[timed] / pace)
        self.lag = lag.reshape(skew.size, skew.size)
        self.latency = np.array(bounds.latency, dtype=np.float64)
        self.rates = np.full(skew.size, np.inf) if rates is None else np.asarray(rates, dtype=np.float64)
        self.weight = np.ones(skew.size) if rates is None else self.rates

    def delay(self, group: Ints) -> float:
        """Expected delay under a grouping, averaged over the streams by weight."""
        m = int(group.max()) + 1
        worst = np.zeros((m, m))
        np.maximum.at(worst, (group[:, None], group[None, :]), self.lag)
        latency, rate = np.zeros(m), np.zeros(m)
        np.maximum.at(latency, group, self.latency)
        np.add.at(rate, group, self.rates)
        age = np.divide(1.0, rate, out=np.full(m, _FAR), where=rate > 0)
        trailing = latency + (worst + age[:, None]).min(axis=0)
        return float((trailing[group] * self.weight).sum() / self.weight.sum())

    def profile(self) -> Profile:
        """Features per stream: how much others delay it, how much it delays others, and its latency."""
        return Profile.of(self.lag.min(axis=0), self.lag.mean(axis=1), self.latency, weight=self.weight)


def choose_matrix_groups(
    bounds: Bounds, m: int, rates: npt.ArrayLike | None = None, *, pace: float = 1.0, sweeps: int = 8
) -> Choice:
    """Groups for a full matrix: a contiguous start, then moves of single streams while one helps.

    `extra` is compared with one heartbeat per stream. A sweep costs O(n³ m): meant for hundreds of streams.
    """
    model = MatrixDelay(bounds, rates, pace)
    start = choose_groups(model.profile(), m).group
    group = _improve(model, start, min(m, len(start)), sweeps)
    _, dense = np.unique(group, return_inverse=True)
    alone = model.delay(np.arange(len(start)))
    return Choice(int(dense.max()) + 1, dense.astype(np.int64), model.delay(group) - alone)


def _improve(model: MatrixDelay, group: Ints, m: int, sweeps: int) -> Ints:
    """Local search: moves single streams to other groups as long as the expected delay falls."""
    group, best = group.copy(), model.delay(group)
    for _ in range(sweeps):
        before = best
        for j in range(len(group)):
            for g in range(m):
                home, group[j] = int(group[j]), g
                cost = model.delay(group)
                if cost < best:
                    best = cost
                else:
                    group[j] = home
        if best == before:
            break
    return group
