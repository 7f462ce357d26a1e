"""State of a whole graph put away: which operators go first."""

from __future__ import annotations

from headrace.errors import SpillError
from headrace.flow.shelf import Shelf
from headrace.graph.graph import Graph


def use_shelf(graph: Graph, shelf: Shelf) -> None:
    """Let every operator put its state on a shelf."""
    for node in graph.nodes:
        node.operator.use_shelf(shelf)


def spill(graph: Graph, shelf: Shelf | None, bytes: int) -> int:
    """Put away about `bytes`, from the operators that hold most; returns how many left memory."""
    if shelf is None:
        raise SpillError(
            "HR-M101", "this engine has nowhere to put state", hint="Engine(shelf=DirectoryShelf(path))"
        )
    freed = 0
    for node in sorted(graph.nodes, key=lambda n: -n.operator.state_bytes()):
        if freed >= bytes:
            break
        freed += node.operator.spill(bytes - freed)
    return freed
