"""Quality of service in a shared graph: an operator keeps the bounds of all queries that use it
(Cammert et al., §3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.graph.node import Node
from headrace.operators.adaptable import Adaptable
from headrace.operators.state.history import Entries
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import Bounds, adaptable, bounds_of


@dataclass(frozen=True)
class Claim:
    """A query's use of an operator that may change: `written` in the query's own plan, within `bounds`."""

    written: Plan
    node: Node
    operator: Adaptable
    bounds: Bounds


class Quality:
    """Which query allows what. An operator's bounds are the intersection of those of all its queries.

    Law: every value that a row of a query gets is within the bounds that the query wrote.
    """

    def __init__(self) -> None:
        self._claims: dict[str, list[Claim]] = {}
        self.importance: dict[str, float] = {}
        """How much the quality of each query counts; 1 if it is not named."""

    def allows(self, plan: Plan, node: Node) -> bool:
        """Whether a query may use the node and all below it; its plan differs from theirs only in bounds."""
        return all(_fits(bounds, operator) for _, operator, bounds in _adaptables(plan, node))

    def claim(self, query: str, written: Plan, placed: Plan, root: Node) -> None:
        """Add a query; it runs as `placed`, which has the same windows as the plan `written`."""
        found = zip(adaptable(written), _adaptables(placed, root), strict=True)
        self._claims[query] = [Claim(of, *each) for of, each in found]
        self._settle([claim.operator for claim in self._claims[query]])

    def release(self, query: str) -> None:
        """Remove a query; operators that it shared may get wider bounds again."""
        gone = self._claims.pop(query, [])
        self._settle([claim.operator for claim in gone])

    def _settle(self, operators: list[Adaptable]) -> None:
        """Recompute the bounds of operators that are still in use."""
        for operator in operators:
            claims = [c.bounds for c in self._all() if c.operator is operator]
            if claims:
                _rebound(operator, claims)

    def _all(self) -> Iterator[Claim]:
        return (claim for claims in self._claims.values() for claim in claims)

    def nodes(self) -> dict[Node, list[str]]:
        """Every node that may change, with the queries that use it."""
        found: dict[Node, list[str]] = {}
        for query, claims in self._claims.items():
            for claim in claims:
                users = found.setdefault(claim.node, [])
                if query not in users:
                    users.append(query)
        return found

    def weight(self, queries: Iterable[str]) -> float:
        """How much the quality of an operator counts that these queries use."""
        return sum(self.importance.get(query, 1.0) for query in queries)

    def node(self, query: str, written: Plan) -> Node | None:
        """The node that runs a window or granularity of a query's plan as written."""
        return next((c.node for c in self._claims.get(query, ()) if c.written == written), None)

    def histories(self, query: str) -> dict[Plan, Entries]:
        """The histories of a query's windows and granularities, by the nodes of its plan as written."""
        return {c.written: c.operator.history.entries for c in self._claims.get(query, ())}


def _adaptables(plan: Plan, node: Node) -> Iterator[tuple[Node, Adaptable, Bounds]]:
    """The nodes that may change, in the order of `plan.nodes.quality.adaptable`, with their bounds."""
    for below, before in zip(plan.inputs, node.predecessors, strict=True):
        if isinstance(before, Node):
            yield from _adaptables(below, before)
    bounds = bounds_of(plan)
    if bounds is not None:
        assert isinstance(node.operator, Adaptable)
        yield node, node.operator, bounds


def _fits(bounds: Bounds, operator: Adaptable) -> bool:
    """Whether the bounds overlap with those in force, and every value still to be used is within both."""
    history = operator.history
    met = history.bounds.meet(bounds)
    return met is not None and (not history.begun or all(value in met for value in history.to_come()))


def _rebound(operator: Adaptable, claims: list[Bounds]) -> None:
    """Give an operator the common bounds of its queries; a value that was the best stays the best."""
    history, bounds = operator.history, claims[0]
    for each in claims[1:]:
        met = bounds.meet(each)
        assert met is not None
        bounds = met
    if not history.begun:
        history.rebase(bounds)
        return
    was_best, history.bounds = history.value == history.bounds.best, bounds
    if was_best and history.value != bounds.best:
        operator.change(operator.earliest, bounds.best)
