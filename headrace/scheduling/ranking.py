"""Who goes first among the operators with work, and where a strategy cuts the graph by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace import tuning
from headrace.graph.node import Node
from headrace.scheduling.chain import Charts
from headrace.time.timestamp import MAX_TIME

Rank = tuple[float, float]
"""The operator with the least rank goes first."""
_LAST = float("inf")


class Standing:
    """What ranks depend on: the charts of Chain, the turns of round robin, and the clock."""

    def __init__(self) -> None:
        self.charts = Charts()
        self.clock: Callable[[], int] = no_clock
        self._turns: dict[int, int] = {}
        self._heads: dict[int, int] = {}
        self._turn = 0
        self._drawn = 0

    def rewire(self, nodes: Sequence[Node]) -> None:
        """The graph has changed."""
        self._heads = {}
        self.charts.draw(nodes, again=True)

    def came(self, node: Node) -> None:
        """It is the turn of a node."""
        self._turn += 1
        self._turns[self._head(node)] = self._turn

    def turn(self, node: Node) -> int:
        """When the path of a node last had its turn."""
        return self._turns.get(self._head(node), 0)

    def _head(self, node: Node) -> int:
        """The first node of the path that a node is on, between two cuts of round robin."""
        if node.id not in self._heads:
            before = node.predecessors[0] if len(node.predecessors) == 1 else None
            inside = isinstance(before, Node) and not between_paths(before, self)
            self._heads[node.id] = self._head(before) if inside and isinstance(before, Node) else node.id
        return self._heads[node.id]

    def look(self, nodes: Sequence[Node], steps: int) -> bool:
        """Draw the charts again if enough was done since; whether a segment ends elsewhere than before."""
        if steps - self._drawn < tuning.current.chart_steps:
            return False
        self._drawn = steps
        return self.charts.draw(nodes)


Ranking = Callable[[Node, Standing], Rank]
Cut = Callable[[Node, Standing], bool]


def by_place(node: Node, standing: Standing) -> Rank:
    """Inputs first."""
    return 0.0, node.place


def by_turn(node: Node, standing: Standing) -> Rank:
    """The path that has waited longest for its turn, and its first operator with work."""
    return 0.0, standing.turn(node)


def by_slope(node: Node, standing: Standing) -> Rank:
    """What frees the most rows for its work; of those in one segment, the last one."""
    return -standing.charts.slope.get(node.id, 0.0), -node.place


def by_deadline(node: Node, standing: Standing) -> Rank:
    """The operator whose oldest row has the earliest deadline; queries without one get the time that is left.

    A row's deadline is that long after it arrived. What only a heartbeat or a timer releases counts from now.
    """
    arrived = min((at for each in node.operator.inputs if (at := each.arrived()) is not None), default=None)
    since = standing.clock() if arrived is None else arrived
    return (_LAST, since) if node.deadline == MAX_TIME else (since + node.deadline, -node.place)


def no_clock() -> int:
    """The clock of a table that is not in an engine."""
    return 0


def nowhere(node: Node, standing: Standing) -> bool:
    """The graph is not cut."""
    return False


def between_paths(node: Node, standing: Standing) -> bool:
    """Round robin runs paths: cut the graph at forks, and before operators with several inputs."""
    after = node.successors
    return len(after) > 1 or (len(after) == 1 and len(after[0].predecessors) > 1)


def between_segments(node: Node, standing: Standing) -> bool:
    """Chain runs segments: cut the graph where they end."""
    return node.id in standing.charts.ends
