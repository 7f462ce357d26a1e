"""Components with shares of the work (Bai et al. 2007, §3): weighted turns, by stride scheduling.

Each component has a *pass*: the steps that it has had, divided by its share. The component with the least
pass is next. One that has had no work begins where the others are, so that it does not make up for the past.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace import tuning
from headrace.graph.graph import Graph
from headrace.graph.service import USUAL


@dataclass
class Component:
    """Operators that are connected, their queries, and the share and the priority of these together."""

    queries: tuple[str, ...]
    share: float
    priority: int
    passed: float = 0.0


class Turns:
    """Whose turn it is. A component of a higher priority goes first unless it is ahead of its share.

    Laws: while components have work, the steps of each divided by its share differ by a bounded number, so
    each gets its share; each gets a turn after a bounded number of steps.
    """

    def __init__(self, components: Iterable[Component]) -> None:
        self.components = list(components)
        self._working: frozenset[int] = frozenset()
        self._reached = 0.0

    def choose(self, working: Collection[int]) -> int:
        """The component, of those with work, that is next."""
        for number in set(working) - self._working:
            component = self.components[number]
            component.passed = max(component.passed, self._reached)
        self._working = frozenset(working)
        self._reached = least = min(self.components[number].passed for number in working)
        ahead = tuning.current.turn_steps
        near = [n for n in working if (self.components[n].passed - least) * self.components[n].share < ahead]
        return min(near, key=lambda n: (-self.components[n].priority, self.components[n].passed, n))

    def charge(self, number: int, steps: int) -> None:
        """A component has had its turn."""
        component = self.components[number]
        component.passed += steps / component.share

    def follow(self, before: Turns) -> None:
        """Continue after the graph has changed: a query stays where its component was."""
        passed = {query: each.passed for each in before.components for query in each.queries}
        self._reached = before._reached
        for component in self.components:
            known = [passed[query] for query in component.queries if query in passed]
            component.passed = max(known, default=self._reached)


def turns_of(graph: Graph) -> Turns | None:
    """Turns of the components of a graph, whose nodes get its number; None if no query has a share."""
    if all((s.share, s.priority) == (USUAL.share, USUAL.priority) for s in graph.services.values()):
        return None
    users = {query: {node.id for node in graph.nodes_of(query)} for query in graph.sinks}
    found: list[Component] = []
    for nodes in graph.components():
        for node in nodes:
            node.component = len(found)
        ids = {node.id for node in nodes}
        found.append(_component(graph, [query for query, used in users.items() if used & ids]))
    return Turns(found) if len(found) > 1 else None


def _component(graph: Graph, queries: list[str]) -> Component:
    """The shares of its queries together, and the highest of their priorities."""
    services = [graph.services[query] for query in queries]
    share = sum(service.share for service in services)
    return Component(tuple(queries), share or 1.0, max((s.priority for s in services), default=0))
