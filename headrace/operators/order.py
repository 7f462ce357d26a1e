"""The input manager of an operator: rows wait until a heartbeat proves that no earlier one can come."""

from __future__ import annotations

from collections.abc import Callable

from headrace.flow.batch import Batch
from headrace.operators.contract import Need, Waiting
from headrace.operators.held_promises import HoldsPromises
from headrace.plan.analysis.ordering import AdaptiveOrder, Order
from headrace.state.part import Part
from headrace.state.sorter import Sorter
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

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


class OrderOperator(HoldsPromises, InputManager):
    """Releases rows in order. Rows at or before its last release are too late and are dropped.

    Their source has already reported them.
    """

    def __init__(self, plan: Order | AdaptiveOrder) -> None:
        super().__init__()
        self._rows = Sorter()

    def ingest(self, input: int, batch: Batch) -> None:
        self._rows.add(batch.filter(batch.start > self.frontier))

    def answer(self, frontier: int) -> Batch | None:
        return self._rows.take(frontier)

    def due(self) -> int:
        return self._rows.next()

    def _last(self, punctuation: Punctuation) -> int:
        return self._rows.last(punctuation)

    def state(self) -> dict[str, Part]:
        return {"rows": self._rows, "promises": self._promises}
