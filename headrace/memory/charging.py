"""Whose memory it is: bytes of operators and arcs, charged to the windows that their rows came through.

What comes through a granularity that may change is charged to that, by lines. Rows that wait for the end of
a grain are charged to nobody: they follow the grain and no window.
"""

from __future__ import annotations

from headrace.graph.graph import Graph
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.memory.accounting import Account
from headrace.plan.nodes import Granularity

Rows = dict[int, float]
"""By the id of a window's node, how many rows are held behind it."""


def charge(graph: Graph, held: Account, rows: Rows) -> dict[int, float]:
    """Bytes by window; what comes through several is charged to them in proportion to their rows."""
    charged = dict.fromkeys(rows, 0.0)
    for node in graph.nodes:
        waiting = 0 if node.sinks and not node.successors else held.arcs[node.name]
        if node.id in rows:
            charged[node.id] += 0 if isinstance(node.plan, Granularity) else waiting
            continue
        sides = node.operator.bytes_by_input() or ()
        for before, size in zip(node.predecessors, sides, strict=False):
            _share(charged, _behind([before], rows), size)
        rest = max(0, held.states[node.name] - sum(sides))
        _share(charged, _behind(list(node.predecessors), rows), waiting + rest)
    return charged


def _behind(nodes: list[Node | SourceNode], rows: Rows) -> Rows:
    """The windows that rows come through on their way to some nodes."""
    found: Rows = {}
    queue = nodes[:]
    while queue:
        one = queue.pop()
        if isinstance(one, SourceNode):
            continue
        if one.id in rows:
            found[one.id] = rows[one.id]
        else:
            queue.extend(one.predecessors)
    return found


def _share(charged: dict[int, float], windows: Rows, size: float) -> None:
    """Charge bytes in proportion to rows; to nobody if there is no window."""
    total = sum(windows.values())
    for id, held in windows.items():
        charged[id] += size * held / total if total else size / len(windows)
