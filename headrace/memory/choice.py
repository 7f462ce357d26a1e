"""Which windows and granularities to change: the least loss of quality that fits.

The loss of a window of size w within [MIN, MAX] is x², x = (MAX − w) / (MAX − MIN), once for each query that
uses it; that of a granularity g is x² too, x = (g − FINEST) / (COARSEST − FINEST); the objective is the sum
of these. It is convex, so a loss is spread over the windows and no query
pays for all. Where the need is linear in the sizes, as it is in the long run, the best choice has x in
proportion to what a window can save, MAX less MIN in bytes, over its weight, cut off at 1: one number is
left to find, and it is found by bisection because the need falls with it. What a granularity saves falls off
quickly, and it saves for all windows before it: some are tried, the windows chosen anew for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headrace.memory.demands import Demand, GrainDemand
from headrace.memory.need import Outlook

_STEPS = 40
_ROUGH = 14
_SWEEPS = 2


def loss(demands: Sequence[Demand], sizes: Sequence[float]) -> float:
    """The loss of quality of some sizes."""
    return sum(
        d.weight * ((d.most - w) / (d.most - d.least)) ** 2
        for d, w in zip(demands, sizes, strict=True)
        if d.most > d.least
    )


def choose(outlook: Outlook, limit: float, steps: int = _STEPS) -> list[int]:
    """The sizes of least loss whose need is at most `limit`; the least sizes if nothing fits."""
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
    """The sizes and the granularities of least loss that fit; what needs least if nothing does."""
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
    """What is too much first, then the loss, with the windows that suit these granularities."""
    sizes = choose(outlook, limit, _ROUGH)
    return max(0.0, outlook.peak(sizes) - limit), loss(outlook.demands, sizes) + lost


def _sizes(
    demands: Sequence[Demand], span: npt.NDArray[np.float64], saving: npt.NDArray[np.float64], at: float
) -> npt.NDArray[np.float64]:
    """Sizes for a price of memory: 0 leaves all at their best, 1 makes all that save anything the least."""
    price = at / max(1e-12, 1 - at) / saving.max()
    lost = np.minimum(1, price * saving) if at < 1 else (saving > 0).astype(np.float64)
    return np.array([d.most for d in demands]) - np.ceil(lost * span)


def settled(demand: Demand, wanted: int, since_change: int, pressed: bool) -> int:
    """The size to take, now that `wanted` would be best: hysteresis, so that sizes do not flap.

    Down at once, if by a twentieth or if memory is short. Up only by a tenth, or all the way, and not sooner
    after a change than a sixteenth of the greatest size.
    """
    if wanted < demand.size:
        worth = pressed or wanted == demand.least or 20 * wanted < 19 * demand.size
        return wanted if worth else demand.size
    worth = wanted == demand.most or 10 * wanted > 11 * demand.size
    return wanted if worth and 16 * since_change >= demand.most else demand.size


def settled_grain(demand: GrainDemand, wanted: int, since_change: int, pressed: bool, window: int) -> int:
    """The granularity to take, now that `wanted` would be best: as with windows, only that coarser is worse.

    `window` is the greatest size of the windows before it: so long it takes until a change has done its work.
    """
    if wanted > demand.size:
        worth = pressed or wanted == demand.most or 19 * wanted > 20 * demand.size
        return wanted if worth else demand.size
    worth = wanted == demand.least or 11 * wanted < 10 * demand.size
    return wanted if worth and 16 * since_change >= window else demand.size
