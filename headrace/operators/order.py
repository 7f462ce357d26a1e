"""The input manager of an operator: rows wait until a heartbeat proves that no earlier one can come."""

from __future__ import annotations

from collections.abc import Callable

from headrace.flow.batch import Batch
from headrace.operators.contract import Need, Waiting
from headrace.plan.analysis.ordering import Order
from headrace.state.part import Part
from headrace.state.promises import Held
from headrace.state.sorter import Sorter
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

# Operators that take rows in any order, and still track how far time has come.


class AnyOrder(Waiting):
    """Takes every row as it comes; rows wait inside it, not in its input arcs."""

    order_sensitive = False

    @property
    def more(self) -> bool:
        if any(not reader.empty for reader in self.inputs):
            return True
        reach = self.reach()
        due = self.due()
        return (due <= reach and due != MAX_TIME) or self._may_promise(reach)

    def _horizon(self, reach: int, limit: int) -> int:
        return MAX_TIME

    def _wanted(self) -> int:
        return self.due()


def no_label() -> int:
    """The label of an operator-level input manager: only its own stream holds it back."""
    return MAX_TIME


class InputManager(AnyOrder):
    """Takes disordered rows, and advances time up to the heartbeat of its input and of its label.

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
    """Releases rows in order. Rows at or before its last release are too late and are dropped.

    Their source has already reported them.
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
        """Pass it on after the last matching row that is held here; no row that comes later can match."""
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
