"""Measured selectivities: how many rows each operator gives for a row it takes, lately."""

from __future__ import annotations

from collections.abc import Iterable

from headrace import tuning
from headrace.graph.node import Node


class Selectivities:
    """Rows out per row in of each node. New measurements count half, and only if they rest on enough rows.

    So a few rows change little, and a stream that changes is followed.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, int]] = {}
        self._known: dict[int, float] = {}

    def look(self, nodes: Iterable[Node]) -> bool:
        """Measure again; whether a selectivity has changed."""
        before = dict(self._known)
        for node in nodes:
            taken, given = self._seen.get(node.id, (0, 0))
            more_in, more_out = node.rows_in - taken, node.operator.rows_out - given
            if more_in >= tuning.current.selectivity_rows:
                found = max(more_out, 0) / more_in
                known = self._known.get(node.id)
                self._known[node.id] = found if known is None else (known + found) / 2
                self._seen[node.id] = node.rows_in, node.operator.rows_out
        return self._known != before

    def of(self, node: Node) -> float:
        """Rows out per row in; 1 before enough rows have come."""
        return self._known.get(node.id, 1.0)
