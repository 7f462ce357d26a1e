"""Admission control: a query is accepted only if the least that it asks for fits beside the others
(Cammert et al., §3.1).

The need of all queries at their smallest windows and coarsest granularities is forecast as the memory manager
does it. A window of the new query gets the rates of its streams, as measured; a row costs what rows cost
now. Without any rows nothing is known, and the query is accepted. State that does not depend on a time
window (groups, sessions, panes) is not forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headrace import tuning
from headrace.errors import BudgetError
from headrace.memory.budget import size_text
from headrace.memory.choice import MANY, Demand, GrainDemand, Needs, least_need
from headrace.memory.flows import Arrivals, rate_of, slide_of
from headrace.plan.nodes.core import Granularity, IStream, Plan, Project, Select, Union, Window
from headrace.plan.nodes.quality import bounds_of, without_bounds
from headrace.plan.nodes.trees import sources_of
from headrace.plan.nodes.windows import Range, Rows, Sliding

OVERHEAD: Final = 2.5
LINE: Final = 48
"""Until it is measured, the cost of a row is its bytes and a line of numbers, times the overhead."""
_HOLDS_NOTHING: Final = (Select, Project, Union, IStream)
_STEPS: Final = 30


def row_cost(arrivals: Sequence[Arrivals]) -> float:
    """The cost of a row of these streams while it is held, from its bytes."""
    rows = max(1, sum(each.rows for each in arrivals))
    return OVERHEAD * (sum(each.bytes for each in arrivals) / rows + LINE)


@dataclass(frozen=True)
class Measured:
    """What the running queries need, and what has come of each stream: one `Arrivals` for each engine.

    `cost`: what a row costs behind the dearest window, None if not known. `shares`: by a window's plan, the
    share of its streams' rows that come to it.
    """

    needs: Needs
    arrivals: Mapping[str, Sequence[Arrivals]]
    cost: float | None = None
    shares: Mapping[Plan, float] = field(default_factory=dict)

    def demand(self, window: Window, held: bool) -> Demand | None:
        """A window of a new query as input to `choose`; None if it holds no rows for a time."""
        spec, bounds = window.spec, bounds_of(window)
        if not isinstance(spec, (Range, Sliding)) or (isinstance(spec, Sliding) and bounds is None):
            return None
        least, most = (spec.size, spec.size) if bounds is None else (bounds.least, bounds.most)
        behind = self._behind(window)
        share = self.shares.get(without_bounds(window), 1.0)
        return Demand(
            least=least,
            most=most,
            size=most,
            weight=1,
            now=self._now(behind),
            rate=share * rate_of(behind, least, most),
            bytes=self._cost(behind) if held else 0.0,
            delay=slide_of(window),
        )

    def grain(self, grain: Granularity, windows: tuple[int, ...], demands: Sequence[Demand]) -> GrainDemand:
        """A granularity of a new query over some windows; each of its rows may become another line."""
        bounds, behind = bounds_of(grain), self._behind(grain)
        assert bounds is not None
        return GrainDemand(
            least=bounds.least,
            most=bounds.most,
            size=bounds.least,
            weight=1,
            now=max((demands[i].now for i in windows), default=0),
            rate=sum(demands[i].rate for i in windows),
            bytes=self._cost(behind),
            kinds=MANY,
            waiting=0.0,
            windows=windows,
        )

    def rows(self, window: Window) -> float:
        """Bytes of a window of rows: of one partition, as it is not known how many there are."""
        behind = self._behind(window)
        came = any(each.rows for each in behind)
        if not isinstance(window.spec, Rows) or not came:
            return 0.0
        return (window.spec.least or window.spec.count) * self._cost(behind)

    def _cost(self, behind: Sequence[Arrivals]) -> float:
        """What a row costs while it is held: as measured, but not less than the row itself."""
        assumed = row_cost(behind)
        return assumed if self.cost is None else max(self.cost, assumed / OVERHEAD)

    def _behind(self, plan: Plan) -> list[Arrivals]:
        """What has come of the streams that a plan reads."""
        names = dict.fromkeys(source.name for source in sources_of(plan))
        return [each for name in names for each in self.arrivals.get(name, ())]

    def _now(self, behind: Sequence[Arrivals]) -> int:
        """The time from which the rows of a new query count."""
        known = [each.now for each in (*self.needs.windows, *self.needs.grains)]
        newest = [each.newest for each in behind if each.newest is not None]
        return max([*known, *newest], default=0)


def check_fits(
    query: str, plan: Plan, measured: Measured, budget: int, span: Callable[[int], str] = str
) -> None:
    """Raise an error if a new query cannot have its smallest windows within the budget, beside the others."""
    if not any(each.rows for several in measured.arrivals.values() for each in several):
        return
    limit = tuning.current.budget_reserve * budget
    needed = _need_with(plan, measured)
    if needed <= limit:
        return
    raise BudgetError(
        "HR-M004",
        f"the query does not fit: at the current rates all queries would need {size_text(int(needed))} "
        f"with their smallest windows, those that run {size_text(int(least_need(measured.needs)))}, and "
        f"the budget is {size_text(budget)}",
        place=query,
        hint=_hint(plan, measured, limit, span)
        + f"a budget of {size_text(int(needed / tuning.current.budget_reserve) + 1)}, or the policy 'spill'",
    )


def _hint(plan: Plan, measured: Measured, limit: float, span: Callable[[int], str]) -> str:
    """Which windows would fit, if smaller ones do."""
    share = _largest(lambda share: _need_with(plan, measured, share) <= limit)
    if share is None:
        return "it fits with "
    found = [
        f"{sources_of(window)[0].name} [RANGE{'' if window.spec.least is None else ' MIN'} "
        f"{span(_shrunk(window.spec.least or window.spec.size, share))}]"
        for window in dict.fromkeys(window for window, _, _ in _windows(plan))
        if isinstance(window.spec, (Range, Sliding))
    ]
    return f"it fits with {', '.join(found)}; or with "


def _largest(fits: Callable[[float], bool]) -> float | None:
    """The largest share of the windows that fits, if any does; a smaller one needs less."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def _shrunk(size: int, share: float) -> int:
    return max(1, int(size * share))


def _need_with(plan: Plan, measured: Measured, share: float = 1.0) -> float:
    """What all queries need at least, with a new one whose windows are `share` of what it asks for."""
    needs = measured.needs
    windows, demands, fixed = list[Window](), list[Demand](), needs.fixed
    behind: dict[Granularity, list[int]] = {}
    for window, held, grains in _windows(plan):
        if window in windows:
            continue
        fixed += measured.rows(window)
        demand = measured.demand(window, held)
        if demand is not None:
            for grain in grains:
                behind.setdefault(grain, []).append(len(needs.windows) + len(demands))
            windows.append(window)
            demands.append(replace(demand, least=_shrunk(demand.least, share)))
    every = (*needs.windows, *demands)
    added = [measured.grain(grain, tuple(places), every) for grain, places in behind.items()]
    return least_need(Needs(fixed, needs.held, every, (*needs.grains, *added)))


def _windows(
    plan: Plan, held: bool = False, grains: tuple[Granularity, ...] = ()
) -> Iterator[tuple[Window, bool, tuple[Granularity, ...]]]:
    """The windows of a plan: whether rows are held as they leave it, and the granularities behind."""
    if isinstance(plan, Window):
        yield plan, held, grains
        held, grains = False, ()
    elif isinstance(plan, Granularity) and plan.coarsest is not None:
        held, grains = False, (*grains, plan)
    elif not isinstance(plan, _HOLDS_NOTHING):
        held = True
    for below in plan.inputs:
        yield from _windows(below, held, grains)
