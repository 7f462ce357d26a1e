"""Operators whose quality may be changed while they run, within bounds (Cammert et al., §2)."""

from __future__ import annotations

from headrace.flow.state import Part
from headrace.operators.contract import Stateless
from headrace.operators.history import History
from headrace.plan.quality import Bounds
from headrace.time.timestamp import plus


class Adaptable(Stateless):
    """One value, its bounds and its history. It holds no rows, so queries may join in while it runs."""

    def __init__(self, bounds: Bounds | None) -> None:
        super().__init__()
        assert bounds is not None
        self.history = History(bounds)

    @property
    def remembers(self) -> bool:
        return False

    @property
    def earliest(self) -> int:
        """The first instant from which the value may still be changed."""
        return plus(self.history.answered, 1)

    def change(self, at: int, value: int) -> int:
        """From `at` on the value is another; returns the instant from which it really is."""
        assert value in self.history.bounds
        self.history.change(at, value)
        return at

    def state(self) -> dict[str, Part]:
        return {"history": self.history}
