"""The input manager of an operator: rows wait until a heartbeat proves that no earlier one can come."""

from __future__ import annotations

from collections.abc import Callable

from headrace.flow.batch import Batch
from headrace.flow.promises import Held
from headrace.flow.sorter import Sorter
from headrace.flow.state import Part
from headrace.operators.contract import Need
from headrace.operators.loose import Loose
from headrace.plan.ordering import Order
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


def no_label() -> int:
    """The label of an operator-level input manager: no stream but its own holds it back."""
    return MAX_TIME


class InputManager(Loose):
    """Takes disordered rows, and lets time pass up to the heartbeat of its input and of its label.

    `label` is what makes the levels of Srivastava & Widom, §7: all streams of the query (query-level), none
    beyond its own (operator-level), or those of Figure 6 (memory-aware).
    """

    label: Callable[[], int] = staticmethod(no_label)

    def reach(self) -> int:
        return min(super().reach(), self.label())

    def needs(self) -> list[Need]:
        """A heartbeat on its input, or on a stream of its label."""
        wanted = self.due()
        return [Need(0, wanted)] if self.reach() < wanted < MAX_TIME else []


class OrderOperator(InputManager):
    """Releases rows in order. Rows at or before what it has released come too late for it and are dropped.

    Their source has reported them.
    """

    def __init__(self, plan: Order) -> None:
        super().__init__()
        self._rows = Sorter()
        self._promises = Held()

    def ingest(self, input: int, batch: Batch) -> None:
        self._rows.add(batch.filter(batch.start > self.frontier))

    def answer(self, frontier: int) -> Batch | None:
        return self._rows.take(frontier)

    def due(self) -> int:
        return self._rows.next()

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """It passes on after the last row here that it speaks of: no later row matches, but held ones may."""
        last = self._rows.last(punctuation)
        if last == MIN_TIME:
            return punctuation
        self._promises.hold(last, punctuation)
        return None

    def _pass_on(self) -> None:
        for punctuation in self._promises.take(self.frontier):
            self.output.punctuate(punctuation)
        super()._pass_on()

    def state(self) -> dict[str, Part]:
        return {"rows": self._rows, "promises": self._promises}
