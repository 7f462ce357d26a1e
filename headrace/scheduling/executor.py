"""The two-step cycle: execute the current operator, then select the next (Bai et al., Figure 4)."""

from __future__ import annotations

from collections.abc import Callable

from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.rules import Action
from headrace.scheduling.table import Entry, StateTable


class Executor:
    """Runs a component from a node until a rule exits. Holds nothing but the table and counts."""

    def __init__(self, table: StateTable, demand: Callable[[SourceNode], bool]) -> None:
        self.table = table
        self.steps = 0
        self._demand = demand
        self._ask = True

    def run(self, start: Node, *, ask: bool = True) -> None:
        """Iterate the two steps, beginning with `start`; sources make ETS only if they may be asked."""
        self._ask = ask
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
        taken = operator.execute(self.table.entry(node).strategy.limit(backlog(node)))
        if output.version != version:
            for after in node.successors:
                after.fresh = True
        for after in node.clears:
            after.stir(after)
        node.runs += 1
        node.rows_in += taken
        self.steps += 1
        return taken

    def _select(self, node: Node, processed: int) -> Node | None:
        while True:
            entry = self.table.entry(node)
            held_by = 0 if entry.uniform else blocked_input(node)
            action = entry.rules[held_by].decide(NodeView(node, entry, processed))
            if action is Action.BACKTRACK:
                before = node.predecessors[blocked_input(node)]
                assert isinstance(before, Node)
                node, processed = before, 0
            else:
                return self._apply(action, node)

    def _apply(self, action: Action, node: Node) -> Node | None:
        if action is Action.FORWARD:
            return next_branch(node, node.successors)
        if action is Action.FORWARD_TSM:
            return next_branch(node, node.tsm_successors)
        if action is Action.ENCORE:
            return node
        if action is Action.DEMAND:
            before = node.predecessors[blocked_input(node)]
            if (
                self._ask
                and isinstance(before, SourceNode)
                and node_waits_below(node)
                and self._demand(before)
            ):
                return first_fresh(before)
        return None


class NodeView:
    """The state variables of a node, looked up when a rule asks."""

    __slots__ = ("_entry", "_node", "processed")

    def __init__(self, node: Node, entry: Entry, processed: int) -> None:
        self._node = node
        self._entry = entry
        self.processed = processed

    @property
    def yields(self) -> bool:
        return not self._entry.broken and any_fresh(self._node.successors)

    @property
    def tsm_yields(self) -> bool:
        return not self._entry.broken and any_fresh(self._node.tsm_successors)

    @property
    def more(self) -> bool:
        return self._node.operator.more

    @property
    def k(self) -> int:
        return self._entry.strategy.limit(backlog(self._node))


def any_fresh(nodes: list[Node]) -> bool:
    """Whether something came to one of these since it last ran."""
    return any(node.fresh for node in nodes)


def backlog(node: Node) -> int:
    """Rows waiting at the fullest input."""
    most = 0
    for reader in node.operator.inputs:
        if reader.rows > most:
            most = reader.rows
    return most


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
