"""The two-step cycle: execute the current operator, then select the next (Bai et al., Figure 4)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.rules import Action, View
from headrace.scheduling.table import Entry, StateTable


class Executor:
    """Runs a component from a node until a rule exits. Holds nothing but the table and counts."""

    def __init__(self, table: StateTable, demand: Callable[[SourceNode], bool]) -> None:
        self.table = table
        self.steps = 0
        self._demand = demand

    def run(self, start: Node) -> None:
        """Iterate the two steps, beginning with `start`."""
        node: Node | None = start
        before: Node | None = None
        processed = 0
        while node is not None:
            processed = processed + self._execute(node) if node is before else self._execute(node)
            before, node = node, self._select(node, processed)

    def _execute(self, node: Node) -> int:
        operator = node.operator
        output = operator.output
        version = output.version
        node.fresh = False
        backlog = max((r.rows for r in operator.inputs), default=0)
        taken = operator.execute(self.table.entry(node).strategy.limit(backlog))
        if output.version != version:
            for after in node.successors:
                after.fresh = True
        node.runs += 1
        self.steps += 1
        return taken

    def _select(self, node: Node, processed: int) -> Node | None:
        while True:
            entry = self.table.entry(node)
            held_by = blocked_input(node)
            action = entry.rules[held_by].decide(self._view(node, entry, processed))
            if action is not Action.BACKTRACK:
                return self._apply(action, node, held_by)
            before = node.predecessors[held_by]
            assert isinstance(before, Node)
            node, processed = before, 0

    def _view(self, node: Node, entry: Entry, processed: int) -> View:
        strategy = entry.strategy
        return View(
            yields=not entry.broken and any(after.fresh for after in node.successors),
            more=node.operator.more,
            tsm_yields=not entry.broken and any(after.fresh for after in node.tsm_successors),
            processed=processed,
            k=strategy.limit(max((r.rows for r in node.operator.inputs), default=0)),
        )

    def _apply(self, action: Action, node: Node, held_by: int) -> Node | None:
        if action is Action.FORWARD:
            return next_branch(node, node.successors)
        if action is Action.FORWARD_TSM:
            return next_branch(node, node.tsm_successors)
        if action is Action.ENCORE:
            return node
        if action is Action.DEMAND:
            before = node.predecessors[held_by]
            if isinstance(before, SourceNode) and node_waits_below(node) and self._demand(before):
                return first_fresh(before)
        return None


def blocked_input(node: Node) -> int:
    """The input to go back to: one whose heartbeat is needed, else one that is empty."""
    inputs = node.operator.inputs
    if len(inputs) == 1:
        return 0
    needs = node.operator.needs()
    if needs:
        return needs[0].input
    return next((i for i, reader in enumerate(inputs) if reader.empty), 0)


def node_waits_below(node: Node) -> bool:
    """Whether this operator, or one downstream of it, holds something that a heartbeat would release."""
    return node.waits or any(node_waits_below(after) for after in node.successors)


def next_branch(node: Node, branches: list[Node]) -> Node:
    """The next branch with something to take, in turn (the Fork operator of Figure 7)."""
    if len(branches) == 1:
        return branches[0]
    for step in range(1, len(branches) + 1):
        branch = branches[(node.branch + step) % len(branches)]
        if branch.fresh:
            node.branch = (node.branch + step) % len(branches)
            return branch
    return branches[0]


def first_fresh(source: SourceNode) -> Node | None:
    """The operator that an ETS just reached."""
    return next((node for node in source.reached() if node.fresh), None)
