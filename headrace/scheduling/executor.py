"""The two-step cycle: execute the current operator, then select the next (Bai et al., Figure 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.ranking import Rank
from headrace.scheduling.rules import Action
from headrace.scheduling.table import Entry, StateTable, fork_rule
from headrace.time.timestamp import MAX_TIME

# The operators that may have work: those with new input, and those that it may affect.
#
# An operator without work stays without work until rows, heartbeats or punctuations reach it, or rows on
# their way to it are gone. So operators to which nothing has happened are not checked.


class Agenda:
    """The nodes of a graph by place; `fresh` ones first, then those that were stirred, in their order."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._fresh: list[int] = []
        self._stirred: set[int] = set()
        self._touched: set[int] = set()
        self.waiting: set[int] = set()
        """The places of the nodes that wait for a heartbeat."""
        self.rank: Callable[[Node], Rank] | None = None
        """The order of nodes with work, the least first; None: fresh ones first, inputs before outputs."""

    def use(self, nodes: Iterable[Node]) -> None:
        """Replace the nodes; all of the new ones may have work."""
        self._nodes = list(nodes)
        for place, node in enumerate(self._nodes):
            node.place, node.stir = place, self._stir
        self._fresh = [place for place, node in enumerate(self._nodes) if node.fresh]
        heapify(self._fresh)
        self.stir_all()

    def stir_all(self) -> None:
        """Something has changed that may affect every node."""
        self._stirred = set(range(len(self._nodes)))
        self._touched = set(self._stirred)

    def _stir(self, node: Node) -> None:
        """Note that something happened to a node."""
        self._stirred.add(node.place)
        self._touched.add(node.place)
        if node.fresh:
            heappush(self._fresh, node.place)

    def ready(self) -> Node | None:
        """A node with new input, else one that may have work; with ranks, the first of those with work."""
        if self.rank is not None:
            return self._first(self.rank)
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

    def _first(self, rank: Callable[[Node], Rank]) -> Node | None:
        """The node with work that has the least rank."""
        for node in sorted((self._nodes[place] for place in self._stirred), key=rank):
            if node.fresh or node.operator.more:
                return node
            self._settle(node.place, node)
        return None

    def firsts(self) -> dict[int, Node]:
        """By component, the first of its nodes with work."""
        found: dict[int, Node] = {}
        nodes = (self._nodes[place] for place in self._stirred)
        for node in sorted(nodes, key=self.rank or _fresh_first):
            if node.component in found:
                continue
            if node.fresh or node.operator.more:
                found[node.component] = node
            else:
                self._settle(node.place, node)
        return found

    def _settle(self, place: int, node: Node) -> None:
        """Take a node without work off the agenda until something happens to it."""
        self._stirred.discard(place)
        if node.waits:
            self.waiting.add(place)
        else:
            self.waiting.discard(place)

    def touched(self) -> list[Node]:
        """The nodes that something happened to since the last call."""
        touched, self._touched = self._touched, set()
        return [self._nodes[place] for place in touched]


def _fresh_first(node: Node) -> Rank:
    """New input first, then inputs before outputs."""
    return float(not node.fresh), node.place


class Executor:
    """Runs a component from a node until a rule exits. Its only state is the table and counters."""

    def __init__(self, table: StateTable, demand: Callable[[SourceNode], bool]) -> None:
        self.table = table
        self.steps = 0
        self._demand = demand
        self._ask = True

    def run(self, start: Node, *, ask: bool = True, most: int = MAX_TIME) -> None:
        """Iterate the two steps, beginning with `start`; sources make ETS only if they may be asked.

        After `most` steps it stops where it is: what is left has work, so the agenda has it.
        """
        self._ask = ask
        end = self.steps + most
        node: Node | None = start
        before: Node | None = None
        processed = 0
        while node is not None and self.steps < end:
            processed = processed + self._execute(node) if node is before else self._execute(node)
            before, node = node, self._select(node, processed)

    def _execute(self, node: Node) -> int:
        """Step 1: run an operator once, and tell its neighbours; returns how many rows it took."""
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
        """Step 2: choose the operator to run next, backtracking as the rules say; None to exit."""
        while True:
            entry = self.table.entry(node)
            held_by = 0 if entry.uniform else blocked_input(node)
            action = entry.rules[held_by].decide(NodeView(node, entry, processed))
            if action is Action.BACKTRACK:
                before = node.predecessors[blocked_input(node)]
                assert isinstance(before, Node)
                if (branch := self._fork(before)) is not None:
                    return branch
                node, processed = before, 0
            else:
                return self._apply(action, node)

    def _fork(self, node: Node) -> Node | None:
        """The branch that the fork after a node visits next; None if there is no fork, or nothing to do."""
        entry = self.table.entry(node)
        if len(node.successors) < 2 or entry.broken:
            return None
        action = fork_rule(entry.strategy).decide(NodeView(node, entry, 0))
        return self._apply(action, node) if action is Action.FORWARD else None

    def _apply(self, action: Action, node: Node) -> Node | None:
        """The operator to run next after an action; None to exit."""
        if action is Action.FORWARD:
            return next_branch(node, node.successors)
        if action is Action.FORWARD_TSM:
            return next_branch(node, node.tsm_successors)
        if action is Action.ENCORE:
            return node
        if action is Action.TURN:
            return next_reader(node.predecessors[blocked_input(node)], node)
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
    def fork_more(self) -> bool:
        before = self._node.predecessors[blocked_input(self._node)]
        return isinstance(before, SourceNode) and any(has_work(after) for after in before.successors)

    @property
    def k(self) -> int:
        return self._entry.strategy.limit(backlog(self._node))


def any_fresh(nodes: list[Node]) -> bool:
    """Whether one of these got new input since it last ran."""
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
    """The next branch that has input, in turn (the Fork operator of Figure 7)."""
    if len(branches) == 1:
        return branches[0]
    for step in range(1, len(branches) + 1):
        branch = branches[(node.branch + step) % len(branches)]
        if branch.fresh:
            node.branch = (node.branch + step) % len(branches)
            return branch
    return branches[0]


def has_work(node: Node) -> bool:
    """Whether a node got new input or has some left."""
    return node.fresh or node.operator.more


def next_reader(before: Node | SourceNode, node: Node) -> Node | None:
    """The reader of a source that is next in turn after `node` and has work (the Fork of Figure 7)."""
    branches = before.successors
    own = branches.index(node)
    return next((each for each in (*branches[own + 1 :], *branches[: own + 1]) if has_work(each)), None)


def first_fresh(source: SourceNode) -> Node | None:
    """The operator that an ETS just reached."""
    return next((node for node in source.reached() if node.fresh), None)
