"""Operators that take rows whatever their order, and still know how far time has come."""

from __future__ import annotations

from headrace.operators.contract import Waiting
from headrace.time.timestamp import MAX_TIME


class Loose(Waiting):
    """Takes every row as it comes; what it holds waits inside it, not in its input arcs."""

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
