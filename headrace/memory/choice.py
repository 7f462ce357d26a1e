"""Which windows and granularities to change: the least loss of quality that fits.

The loss of a window of size w within [MIN, MAX] is x², x = (MAX − w) / (MAX − MIN), once for each query that
uses it; that of a granularity g is x² too, x = (g − FINEST) / (COARSEST − FINEST); the objective is the sum
of these. It is convex, so a loss is spread over the windows and no query
pays for all. Where the need is linear in the sizes, as it is in the long run, the best choice has x in
proportion to what a window can save, MAX less MIN in bytes, over its weight, cut off at 1: one number is
left to find, and it is found by bisection because the need falls with it. What a granularity saves falls off
quickly, and it saves for all windows before it: some are tried, and the windows are chosen again for each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace import tuning
from headrace.arrays import Reals
from headrace.time.timestamp import MAX_TIME

_STEPS = 40
_ROUGH = 14
_SWEEPS = 2


def loss(demands: Sequence[Demand], sizes: Sequence[float]) -> float:
    """The loss of quality at these window sizes."""
    return sum(
        d.weight * ((d.most - w) / (d.most - d.least)) ** 2
        for d, w in zip(demands, sizes, strict=True)
        if d.most > d.least
    )


def choose(outlook: Outlook, limit: float, steps: int = _STEPS) -> list[int]:
    """Sizes whose need is at most `limit`, of least loss in the long run; the least sizes if nothing fits.

    While rows of the past are held, other sizes may lose less (about a third as much, in random trials). But
    no sizes lose less among those that would fit if these rows were held forever.
    """
    demands = outlook.demands
    best, worst = [d.most for d in demands], [d.least for d in demands]
    if not demands or outlook.peak(best) <= limit:
        return best
    span = np.array([d.most - d.least for d in demands], np.float64)
    saving = outlook.costs * span / np.array([d.weight for d in demands])
    if not saving.any() or outlook.peak(worst) > limit:
        return worst
    low, high = 0.0, 1.0
    for _ in range(steps):
        middle = (low + high) / 2
        if outlook.peak(_sizes(demands, span, saving, middle)) <= limit:
            high = middle
        else:
            low = middle
    return [int(size) for size in _sizes(demands, span, saving, high)]


def choose_both(outlook: Outlook, grains: Sequence[GrainDemand], limit: float) -> tuple[list[int], list[int]]:
    """The sizes and granularities of least loss that fit; those that need least if none fit."""
    values = [each.least for each in grains]
    finest = outlook.at(values)
    if not grains or finest.peak([d.most for d in outlook.demands]) <= limit:
        return choose(finest, limit), values
    best = _judged(finest, 0.0, limit)
    for _ in range(_SWEEPS if len(grains) > 1 else 1):
        for i, each in enumerate(grains):
            for tried in each.candidates():
                others = [*values[:i], tried, *values[i + 1 :]]
                lost = sum(grain.loss(value) for grain, value in zip(grains, others, strict=True))
                judged = _judged(outlook.at(others), lost, limit)
                if judged < best:
                    best, values = judged, others
    return choose(outlook.at(values), limit), values


def _judged(outlook: Outlook, lost: float, limit: float) -> tuple[float, float]:
    """How to rank a choice of granularities, with the best windows for it: by excess bytes, then by loss."""
    sizes = choose(outlook, limit, _ROUGH)
    return max(0.0, outlook.peak(sizes) - limit), loss(outlook.demands, sizes) + lost


def _sizes(
    demands: Sequence[Demand], span: npt.NDArray[np.float64], saving: npt.NDArray[np.float64], at: float
) -> npt.NDArray[np.float64]:
    """Sizes at a price of memory: at 0 all are the largest, at 1 all that save memory are the smallest."""
    price = at / max(1e-12, 1 - at) / saving.max()
    lost = np.minimum(1, price * saving) if at < 1 else (saving > 0).astype(np.float64)
    return np.array([d.most for d in demands]) - np.ceil(lost * span)


@dataclass(frozen=True)
class Needs:
    """What windows and granularities hold and will need, in bytes; `fixed` depends on none of them."""

    fixed: float
    held: float
    windows: tuple[Demand, ...] = ()
    grains: tuple[GrainDemand, ...] = ()


@dataclass(frozen=True)
class Forecast:
    """Result of the last look: bytes held, needed at the current sizes, and needed at the least sizes."""

    held: int
    needed: int
    least: int


@dataclass(frozen=True)
class Decision:
    """The sizes of windows and the values of granularities to use from now on, and what they will need."""

    sizes: tuple[int, ...]
    grains: tuple[int, ...]
    forecast: Forecast


def decide(needs: Needs, budget: int) -> Decision:
    """The sizes and granularities to use from now on, with hysteresis so that they do not flap."""
    windows, grains = needs.windows, needs.grains
    outlook = Outlook(needs.fixed, windows, grains, [each.size for each in grains])
    least = least_need(needs)
    target, last = tuning.current.budget_target, tuning.current.budget_reserve
    limit = target if least <= target * budget else last
    sizes, values = choose_both(outlook, grains, limit * budget)
    pressed = needs.held > target * budget
    if grains and outlook.peak([each.size for each in windows]) <= last * budget:
        sizes = [max(size, each.size) for size, each in zip(sizes, windows, strict=True)]
        values = [min(value, each.size) for value, each in zip(values, grains, strict=True)]
    sizes = [
        settled(d, d.allowed(size), d.unchanged, pressed) for d, size in zip(windows, sizes, strict=True)
    ]
    longest = [max((windows[i].most for i in each.windows), default=each.most) for each in grains]
    values = [
        settled_grain(grain, grain.allowed(value), grain.unchanged, pressed, longest[i])
        for i, (grain, value) in enumerate(zip(grains, values, strict=True))
    ]
    needed = outlook.at(values).peak(sizes)
    forecast = Forecast(int(needs.held), int(needed), int(least))
    return Decision(tuple(sizes), tuple(values), forecast)


def least_need(needs: Needs) -> float:
    """The bytes needed at the smallest windows: of the finest granularities or the coarsest, the lesser."""
    outlook = Outlook(needs.fixed, needs.windows, needs.grains, [each.size for each in needs.grains])
    smallest = [each.least for each in needs.windows]
    return min(outlook.at(values).peak(smallest) for values in _extremes(needs.grains))


def _extremes(grains: Sequence[GrainDemand]) -> list[list[int]]:
    """All granularities at their finest, and all at their coarsest."""
    return [[each.least for each in grains], [each.candidates()[-1] for each in grains]]


def settled(demand: Demand, wanted: int, since_change: int, pressed: bool) -> int:
    """The size to use when `wanted` would be best, with hysteresis so that sizes do not flap.

    Shrinks at once, by a twentieth or more, or if memory is short. Grows by a tenth or more, or to the
    maximum, and not before a sixteenth of the greatest size has passed since the last change.
    """
    if wanted < demand.size:
        worth = pressed or wanted == demand.least or 20 * wanted < 19 * demand.size
        return wanted if worth else demand.size
    worth = wanted == demand.most or 10 * wanted > 11 * demand.size
    return wanted if worth and 16 * since_change >= demand.most else demand.size


def settled_grain(demand: GrainDemand, wanted: int, since_change: int, pressed: bool, window: int) -> int:
    """The granularity to use when `wanted` would be best: like `settled`, except that coarser is worse.

    `window` is the greatest size of the windows before it: a change takes that long to have its full effect.
    """
    if wanted > demand.size:
        worth = pressed or wanted == demand.most or 19 * wanted > 20 * demand.size
        return wanted if worth else demand.size
    worth = wanted == demand.least or 11 * wanted < 10 * demand.size
    return wanted if worth and 16 * since_change >= window else demand.size


# How much memory windows will need: rows that are held until their ends, and future rows.
#
# A row that has passed a window keeps its end (Cammert et al., §2.1), so a smaller window helps only from its
# instant on. So it is known in advance how long present rows are held: a function of time that only falls.
# New rows are added at their rate, and each is held for the size chosen for it.


class Outlook:
    """The peak memory that windows will need, for any choice of their sizes, with granularities `values`."""

    def __init__(
        self,
        fixed: float,
        demands: Sequence[Demand],
        grains: Sequence[GrainDemand] = (),
        values: Sequence[int] = (),
    ) -> None:
        self.demands = demands
        both: list[Demand | GrainDemand] = [*demands, *grains]
        self._counted = np.array([d.counted for d in both], np.bool_)
        self._now = np.array([d.now for d in both], np.float64)
        self._delay = np.array([d.delay for d in both], np.float64)
        self._windows = [each.windows for each in grains]
        self._fixed, self._grains = fixed, grains
        held = [(d, c) for d in both for c in d.cohorts]
        first = np.array([c.first + c.size + d.delay for d, c in held], np.float64)
        last = np.array([c.last + c.size + d.delay for d, c in held], np.float64)
        weight = np.array([c.rows * d.bytes for d, c in held])
        begin = self._now.min(initial=np.inf)
        marks = np.unique(np.concatenate((first, last, self._now)))
        self._marks = marks[marks >= begin] if both else np.zeros(1)
        self._committed = _committed(self._marks, first, last, weight)
        self._set(values)

    def _set(self, values: Sequence[int]) -> None:
        """Use these granularities: recompute costs and what is held."""
        pairs = list(zip(self._grains, values, strict=True))
        self._cost = np.array([*(d.cost for d in self.demands), *(g.cost(v) for g, v in pairs)])
        self._held = self._fixed + self._committed + sum(g.wait(v) for g, v in pairs)

    def at(self, values: Sequence[int]) -> Outlook:
        """The same outlook with other granularities."""
        other = copy(self)
        other._set(values)
        return other

    @property
    def costs(self) -> Reals:
        """Bytes that one more tick of each window costs, including lines behind its granularities."""
        found = self._cost[: len(self.demands)].copy()
        for cost, windows in zip(self._cost[len(self.demands) :], self._windows, strict=True):
            found[list(windows)] += cost
        return found

    def peak(self, sizes: Sequence[float] | Reals) -> float:
        """The greatest need at any time in the future."""
        if not len(self._now):
            return float(self._held.max())
        own = [float(size) for size in sizes]
        behind = [max((own[i] for i in windows), default=0.0) for windows in self._windows]
        lengths = np.array([*own, *behind]) + self._delay
        times = np.concatenate((self._marks, self._now + lengths))
        held = np.interp(times, self._marks, self._held)
        new = np.clip(times[:, None] - self._now, 0, lengths) @ np.where(self._counted, 0.0, self._cost)
        counted = lengths[self._counted] @ self._cost[self._counted]
        return float((held + new).max() + counted)


def _committed(times: Reals, first: Reals, last: Reals, weight: Reals) -> Reals:
    """Bytes of the rows that have passed and will still be held at each time."""
    if not len(weight):
        return np.zeros(len(times))
    span = np.maximum(last - first, 1)
    shares = np.clip((last - times[:, None]) / span, 0, 1)
    return np.asarray(shares @ weight, np.float64)


# Windows and granularities as input to the choice of their sizes: bounds, rows held, future rows.
#
# Rows of a grain start together and end together, and those that are equal in what is aggregated are one
# line. Of m rows that are drawn from N different ones, about N (1 − e^(−m/N)) are different; m grows with the
# grain.


MANY: Final = 1e12
"""A number of distinct lines so large that no two are equal."""
_TRIED: Final = 12


@dataclass(frozen=True, slots=True)
class Cohort:
    """Rows that passed a window together: times in (first, last], each held for `size` ticks."""

    first: int
    last: int
    rows: float
    size: int

    def live(self, time: int) -> float:
        """How many are still held at a time, assuming that they are spread evenly."""
        left = self.last + self.size - time
        return self.rows * min(1.0, max(0.0, left / max(1, self.last - self.first)))


@dataclass(frozen=True, kw_only=True)
class _Adjustable:
    """The common part of windows and granularities.

    `size` is the current one, `weight` the importance of the queries that a change affects. `rate` is the
    number of rows per tick from `now` on; `bytes` is what a row costs while it is held, in all operators.
    `delay` is by how much rows outlive their ends because another stream is behind. `unchanged` are the ticks
    since the last change. Values differ from the greatest one by multiples of `step`.
    """

    least: int
    most: int
    size: int
    weight: float
    now: int
    rate: float
    bytes: float
    delay: int = 0
    cohorts: tuple[Cohort, ...] = ()
    unchanged: int = MAX_TIME
    step: int = 1
    counted: bool = False

    def allowed(self, value: int) -> int:
        """The greatest allowed value that is not more than `value`."""
        return self.most - -(-(self.most - value) // self.step) * self.step


@dataclass(frozen=True, kw_only=True)
class Demand(_Adjustable):
    """A window. If it is `counted`, its size is a number of rows and `rate` the number of its partitions.

    A window of rows needs the bytes of all its rows from the start: it has no cohorts that leave with time.
    """

    @property
    def cost(self) -> float:
        """Bytes that one more tick of window, or row of each partition, costs in the long run."""
        return self.rate * self.bytes


@dataclass(frozen=True, kw_only=True)
class GrainDemand(_Adjustable):
    """A granularity: what lines cost for as long as the windows before it hold them.

    `windows` are the positions of these windows among the demands, `kinds` is the number of distinct lines,
    `bytes` what a line costs, and `waiting` what a row costs that waits for the end of its grain.
    """

    kinds: float
    waiting: float
    windows: tuple[int, ...]

    def cost(self, grain: float) -> float:
        """Bytes that one more tick of window costs in the long run."""
        return self.rate * lines_a_row(self.rate, grain, self.kinds) * self.bytes

    def wait(self, grain: float) -> float:
        """Bytes of the rows that wait for the end of their grain."""
        return self.rate * grain * self.waiting

    def loss(self, grain: float) -> float:
        """The loss of quality of a grain."""
        return (
            self.weight * ((grain - self.least) / (self.most - self.least)) ** 2
            if self.most > self.least
            else 0.0
        )

    def candidates(self) -> Sequence[int]:
        """Grains worth trying, finest first, evenly spaced on a logarithmic scale."""
        if self.most == self.least or self.kinds >= MANY:
            return (self.least,)
        ratio = (self.most / self.least) ** (1 / _TRIED)
        tried = (int(self.least * ratio**i) for i in range(_TRIED))
        return sorted({self.least, *tried, self.most})


def lines_a_row(rate: float, grain: float, kinds: float) -> float:
    """Lines per row on average, at `rate` rows per tick."""
    rows = rate * grain / kinds
    return 1.0 if rows < 1e-9 else -math.expm1(-rows) / rows
