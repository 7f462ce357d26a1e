"""How heartbeats travel: in-band through every operator, or along the ETS arcs of the enhanced graph.

Enhanced Query Graph (Bai et al., §4, Figures 9 and 10): there is an ETS arc from a source or an
idle-waiting-prone operator to each idle-waiting-prone operator that a path reaches without passing another.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.errors import ScheduleError
from headrace.flow.arc import Arc, Reader, Register
from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.operators.contract import Operator, ignore_heartbeat
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME


@dataclass(frozen=True)
class EtsArc:
    """From `origin` directly to the register of an input, past the operators in `through`."""

    origin: Node | SourceNode
    target: Node
    input: int
    through: tuple[Operator, ...]
    register: Register

    def deliver(self, heartbeat: int) -> None:
        """Write `heartbeat`, mapped through the operators between, to the register of the target."""
        for operator in self.through:
            heartbeat = operator.map_heartbeat(heartbeat)
        if self.register.offer(heartbeat):
            self.target.fresh = True


def ets_arcs(graph: Graph) -> list[EtsArc]:
    """All ETS arcs of the enhanced graph."""
    return [
        _arc_to(node, i)
        for node in graph.nodes
        if node.operator.idle_waiting_prone
        for i in range(len(node.operator.inputs))
    ]


def _arc_to(target: Node, input: int) -> EtsArc:
    """The ETS arc that ends at an input: follow it back to the nearest origin of heartbeats."""
    readers: list[Reader] = []
    through: list[Operator] = []
    origin = target.predecessors[input]
    while isinstance(origin, Node) and not _begins_heartbeats(origin.operator):
        readers.extend(origin.operator.inputs)
        through.insert(0, origin.operator)
        origin = origin.predecessors[0]
    register = target.operator.registers[input]
    register.path = tuple(readers)
    return EtsArc(origin, target, input, tuple(through), register)


def _begins_heartbeats(operator: Operator) -> bool:
    """Whether ETS arcs start at this operator."""
    return operator.idle_waiting_prone or operator.makes_time


def wire(graph: Graph, propagation: str) -> list[EtsArc]:
    """Set how every source and operator passes heartbeats on; call it again when the graph has changed."""
    arcs = ets_arcs(graph)
    passed = [(id(operator), arc.target) for arc in arcs for operator in arc.through]
    clears: dict[int, list[Node]] = {}
    for operator, target in passed:
        clears.setdefault(operator, []).append(target)
    for node in graph.nodes:
        node.clears = list(dict.fromkeys(clears.get(id(node.operator), ())))
        mine = [a for a in arcs if a.origin is node]
        node.tsm_successors = list(dict.fromkeys(a.target for a in mine))
        node.operator.promise = (
            PROPAGATION[propagation](node.operator.output, node, mine) if mine else ignore_heartbeat
        )
    for source in (*graph.sources.values(), *graph.tables.values()):
        mine = [a for a in arcs if a.origin is source]
        source.tsm_successors = list(dict.fromkeys(a.target for a in mine))
        source.spread = PROPAGATION[propagation](source.arc, source, mine)
    for arc in arcs:
        promised = arc.origin.promised if isinstance(arc.origin, SourceNode) else arc.origin.operator.promised
        if promised > MIN_TIME:
            arc.deliver(promised)
    return arcs


Spread = Callable[[int], None]


def _along_arcs(output: Arc, origin: Node | SourceNode, arcs: list[EtsArc]) -> Spread:
    """Spread heartbeats along the ETS arcs, past the operators between."""

    def spread(heartbeat: int) -> None:
        for arc in arcs:
            arc.deliver(heartbeat)

    return spread


def _in_band(output: Arc, origin: Node | SourceNode, arcs: list[EtsArc]) -> Spread:
    """Spread heartbeats as punctuations in the output, for the next operators to pass on."""

    def spread(heartbeat: int) -> None:
        output.punctuate(Punctuation(heartbeat))
        for after in origin.successors:
            after.fresh = True

    return spread


PROPAGATION: dict[str, Callable[[Arc, Node | SourceNode, list[EtsArc]], Spread]] = {
    "direct": _along_arcs,
    "in_band": _in_band,
}
_PAPERS: Final = {"eqg": "direct", "punctuation": "in_band"}
"""What the papers call them: the enhanced query graph, and punctuation tuples."""


def propagation_named(name: str) -> str:
    """The key in `PROPAGATION` of a name; those of the papers are known too."""
    found = _PAPERS.get(name, name)
    if found not in PROPAGATION:
        near = difflib.get_close_matches(name, [*PROPAGATION, *_PAPERS], n=1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(PROPAGATION)}"
        raise ScheduleError("HR-S002", f"unknown propagation {name!r}", hint=hint)
    return found
