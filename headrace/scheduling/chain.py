"""Chain: run first what frees the most memory for its work (Babcock et al., SIGMOD 2003; Bai et al., §3).

The progress chart of a path has a point after each operator: the work on a row so far, and the rows that are
left of it. The lower envelope of the chart cuts the path into segments, each with a slope: the rows freed per
unit of work. Operators of a segment run one after the other, and the segment with the steepest slope comes
first. The ends of segments are break nodes, which move as the measured selectivities do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.graph.node import Node
from headrace.graph.selectivity import Selectivities

LEAST = 1e-6
"""The least selectivity: a row that is dropped for certain would make the work after it free."""


def slopes(selectivities: Sequence[float], leaves: bool) -> list[float]:
    """For each operator of a path, the rows that its segment frees per unit of work.

    Each operator does one unit of work on a row that it takes. `leaves`: the last one gives its rows to the
    sink, where they are held no longer. An operator that makes more rows than it takes has a negative slope,
    unless those after it make up for that.
    """
    work, left = [0.0], [1.0]
    for selectivity in selectivities:
        work.append(work[-1] + left[-1])
        left.append(left[-1] * max(selectivity, LEAST))
    if leaves:
        left[-1] = 0.0
    found: list[float] = []
    while (begin := len(found)) < len(selectivities):
        descents = [
            (left[begin] - left[end]) / (work[end] - work[begin]) for end in range(begin + 1, len(left))
        ]
        steepest = max(descents)
        last = max(i for i, descent in enumerate(descents) if descent == steepest)
        found += [steepest] * (last + 1)
    return found


def paths(nodes: Iterable[Node]) -> Iterator[list[Node]]:
    """Every path from a source or a fork to the next fork or a sink. A join is on a path for each input."""
    for node in nodes:
        for before in node.predecessors:
            if not isinstance(before, Node) or len(before.successors) > 1:
                path = [node]
                while len(path[-1].successors) == 1:
                    path.append(path[-1].successors[0])
                yield path


class Charts:
    """The slope of each operator, on its steepest path, and the operators at which a segment ends."""

    def __init__(self) -> None:
        self.slope: dict[int, float] = {}
        self.ends: frozenset[int] = frozenset()
        self._measured = Selectivities()

    def draw(self, nodes: Sequence[Node], *, again: bool = False) -> bool:
        """Draw the charts from what was measured; whether a segment ends elsewhere than before."""
        if not self._measured.look(nodes) and not again:
            return False
        before, self.slope = self.ends, {}
        for path in paths(nodes):
            leaves = not path[-1].successors
            steep = slopes([self._measured.of(node) for node in path], leaves)
            for node, slope in zip(path, steep, strict=True):
                self.slope[node.id] = max(slope, self.slope.get(node.id, slope))
        self.ends = frozenset(node.id for node in nodes if self._is_end(node))
        return self.ends != before

    def _is_end(self, node: Node) -> bool:
        """Whether the operators after a node free less for their work than it does."""
        own = self.slope[node.id]
        return bool(node.successors) and all(self.slope[after.id] < own for after in node.successors)
