"""An input manager that chooses what runs before rows wait and what after, by measurement.

Srivastava & Widom, §7.5, leave open where order is restored best: after a selection fewer rows wait, after an
unnesting more. The paper's rule of thumb is to order as late as possible; here bytes are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace import tuning
from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.operators.contract import Stateless
from headrace.operators.order import OrderOperator
from headrace.operators.project import ProjectOperator
from headrace.operators.select import SelectOperator
from headrace.operators.unnest import UnnestOperator
from headrace.plan.analysis.ordering import AdaptiveOrder
from headrace.plan.nodes.core import Plan, Project, Select
from headrace.plan.nodes.unnest import Unnest
from headrace.state.part import Cell, Part
from headrace.state.sorter import Sorter
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME

_PER_ROW = 24
"""Bytes that a row costs beside its columns: its time, and its place in the order."""


@dataclass
class Size:
    """What a step makes of rows: how many of each, and of how many bytes. New measurements count half."""

    taken: int = 0
    given: int = 0
    bytes: int = 0
    ratio: float = 1.0
    width: float = 0.0
    known: bool = False

    def count(self, taken: int, batch: Batch) -> None:
        """Rows were taken, and these were given."""
        self.taken, self.given, self.bytes = (
            self.taken + taken,
            self.given + len(batch),
            self.bytes + int(batch.data.nbytes),
        )

    def look(self) -> None:
        """Measure, if enough rows were taken."""
        if self.taken < tuning.current.selectivity_rows:
            return
        ratio = self.given / self.taken
        width = self.bytes / self.given if self.given else self.width
        self.ratio = (self.ratio + ratio) / 2 if self.known else ratio
        self.width = (self.width + width) / 2 if self.known else width
        self.known = True
        self.taken = self.given = self.bytes = 0


class AdaptiveOrderOperator(OrderOperator):
    """Rows wait in a sorter for each number of steps that they have taken; new rows take `cut` steps at once.

    Rows that have taken more steps came before those that have taken fewer, so simultaneous rows stay in
    order of arrival. To wait later, all rows take the missing steps; to wait earlier, new rows take fewer.
    """

    def __init__(self, plan: AdaptiveOrder, steps: Sequence[Stateless]) -> None:
        super().__init__(plan)
        self.plan = plan
        self._steps = tuple(steps)
        self._sorters = [Sorter() for _ in range(len(steps) + 1)]
        self.sizes = [Size() for _ in range(len(steps) + 1)]
        self._cut = Cell(steps=0)

    @property
    def cut(self) -> int:
        """How many steps rows take before they wait."""
        return int(self._cut["steps"])

    def ingest(self, input: int, batch: Batch) -> None:
        batch = batch.filter(batch.start > self.frontier)
        if not len(batch):
            return
        self.sizes[0].count(len(batch), batch)
        self._sorters[self.cut].add(self._after(batch, 0, self.cut))
        self._choose()

    def _after(self, batch: Batch, begin: int, end: int) -> Batch:
        """Rows that have taken `begin` steps, after `end`."""
        for at in range(begin, end):
            taken = len(batch)
            batch = self._steps[at].apply(batch)
            self.sizes[at + 1].count(taken, batch)
        return batch

    def _choose(self) -> None:
        """Wait where rows are fewest bytes, if that saves a good part of them."""
        for size in self.sizes:
            size.look()
        if not self.is_measured:
            self._try_all()
            return
        costs = self.costs()
        best = min(range(len(costs)), key=costs.__getitem__)
        if costs[best] < tuning.current.order_gain * costs[self.cut]:
            self._wait_after(best)

    @property
    def is_measured(self) -> bool:
        """Whether it is known what each step makes of rows."""
        return all(size.known for size in self.sizes)

    def _try_all(self) -> None:
        """Until all steps are measured, rows take them as soon as there are enough to measure."""
        waiting = self._sorters[self.cut]
        if self.cut < len(self._steps) and len(waiting) >= tuning.current.selectivity_rows:
            self._wait_after(len(self._steps))

    def costs(self) -> list[float]:
        """Bytes that wait for each row that comes, for each number of steps taken before."""
        rows, found = 1.0, []
        for size in self.sizes:
            rows *= size.ratio
            found.append(rows * (size.width + _PER_ROW))
        return found

    def _wait_after(self, cut: int) -> None:
        """From now on, rows take so many steps before they wait; no row that waits has taken fewer."""
        for at in range(cut - 1, -1, -1):
            rows = self._sorters[at].batches_held()
            self._sorters[at] = Sorter()
            for batch in rows:
                self._sorters[cut].add(self._after(batch, at, cut))
        self._cut["steps"] = cut

    def answer(self, frontier: int) -> Batch | None:
        pieces: list[Batch] = []
        for at in range(len(self._steps), -1, -1):
            rows = self._sorters[at].take(frontier)
            if rows is not None:
                pieces.append(self._after(rows, at, len(self._steps)))
        pieces = [piece for piece in pieces if len(piece)]
        return sort_by_start(concat(pieces)) if pieces else None

    def due(self) -> int:
        return min(sorter.next() for sorter in self._sorters)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """It leaves as it is after all steps, behind the rows that match it wherever they wait."""
        said: list[Punctuation] = [punctuation]
        for step in self._steps:
            passed = step.on_punctuation(0, said[-1])
            if passed is None:
                return None
            said.append(passed)
        last = max(s.last(p) for s, p in zip(self._sorters, said, strict=True))
        if last == MIN_TIME:
            return said[-1]
        self._promises.hold(last, said[-1])
        return None

    def state(self) -> dict[str, Part]:
        waiting: dict[str, Part] = {f"rows/{i}": sorter for i, sorter in enumerate(self._sorters)}
        return {**waiting, "promises": self._promises, "cut": self._cut}


STEPS: Final[dict[type[Plan], Callable[[Any], Stateless]]] = {
    Select: SelectOperator,
    Project: ProjectOperator,
    Unnest: UnnestOperator,
}
"""The steps that rows may take before or after they wait."""


def adaptive_order(plan: AdaptiveOrder) -> AdaptiveOrderOperator:
    """The operator, with those of the steps that it runs itself."""
    return AdaptiveOrderOperator(plan, [STEPS[type(step)](step) for step in plan.steps])
