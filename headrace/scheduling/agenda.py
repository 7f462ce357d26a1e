"""Which operators may have something to do: those that something came to, and those that it may concern.

An operator that was found with nothing to do stays so until rows, heartbeats or punctuations reach it, or
rows on their way to it are gone. So nobody looks at operators that nothing has happened to.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from headrace.graph.node import Node


class Agenda:
    """The nodes of a graph by place; `fresh` ones first, then those that were stirred, in their order."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._fresh: list[int] = []
        self._stirred: set[int] = set()
        self._touched: set[int] = set()
        self.waiting: set[int] = set()
        """The places of the nodes that wait for a heartbeat."""

    def use(self, nodes: Iterable[Node]) -> None:
        """From now on these are the nodes; all of them may have something to do."""
        self._nodes = list(nodes)
        for place, node in enumerate(self._nodes):
            node.place, node.stir = place, self._stir
        self._fresh = [place for place, node in enumerate(self._nodes) if node.fresh]
        heapify(self._fresh)
        self.stir_all()

    def stir_all(self) -> None:
        """Something has changed that may concern every node."""
        self._stirred = set(range(len(self._nodes)))
        self._touched = set(self._stirred)

    def _stir(self, node: Node) -> None:
        self._stirred.add(node.place)
        self._touched.add(node.place)
        if node.fresh:
            heappush(self._fresh, node.place)

    def ready(self) -> Node | None:
        """A node something came to, else one that could do more."""
        while self._fresh:
            node = self._nodes[self._fresh[0]]
            if node.fresh:
                return node
            heappop(self._fresh)
        for place in sorted(self._stirred):
            node = self._nodes[place]
            if node.operator.more:
                return node
            self._settle(place, node)
        return None

    def _settle(self, place: int, node: Node) -> None:
        """Nothing can be done at a node until something happens to it."""
        self._stirred.discard(place)
        if node.waits:
            self.waiting.add(place)
        else:
            self.waiting.discard(place)

    def touched(self) -> list[Node]:
        """The nodes that something happened to since the last call."""
        touched, self._touched = self._touched, set()
        return [self._nodes[place] for place in touched]
