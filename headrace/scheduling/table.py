"""The state table: rows (state, pred, succ, rule), as the papers print it (Bai et al., Tables 1–3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.rules import Rule
from headrace.scheduling.strategies import Strategy, fork_rule, rule_for


@dataclass(frozen=True)
class Row:
    """One line: in `state`, when its input from `pred` is the one to go back to, decide by `rule`."""

    state: str
    pred: str
    succ: str
    rule: Rule


@dataclass
class Entry:
    """What the executor looks up for a node: its strategy and one rule per input (`uniform`: all alike)."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    broken: bool
    uniform: bool


class StateTable:
    """Which rule decides in which state. Swapping a strategy, for the whole or a part, replaces rows."""

    def __init__(self, default: Strategy, eqg: bool) -> None:
        self.default = default
        self.eqg = eqg
        self._chosen: dict[int, Strategy] = {}
        self._breaks: set[int] = set()
        self._entries: dict[int, Entry] = {}

    def choose(self, strategy: Strategy, nodes: Iterable[Node] | None) -> None:
        """Use `strategy` everywhere, or for some nodes only."""
        if nodes is None:
            self.default, self._chosen = strategy, {}
        else:
            self._chosen |= {node.id: strategy for node in nodes}
        self._entries = {}

    def set_break(self, node: Node) -> None:
        """Cut the path at the output of `node`: a sink for what is before, a source for what is after."""
        self._breaks.add(node.id)
        self._entries = {}

    def unset_break(self, node: Node) -> None:
        """Join the path again."""
        self._breaks.discard(node.id)
        self._entries = {}

    def forget(self) -> None:
        """The graph changed: build the rows anew when they are next asked for."""
        self._entries = {}

    def entry(self, node: Node) -> Entry:
        """The row of a node, built on first use."""
        entry = self._entries.get(node.id)
        if entry is None:
            chosen = self._chosen.get(node.id, self.default)
            rules = tuple(self._rule(chosen, node, before) for before in node.predecessors)
            uniform = len(set(rules)) == 1
            entry = self._entries[node.id] = Entry(chosen, rules, node.id in self._breaks, uniform)
        return entry

    def _rule(self, chosen: Strategy, node: Node, before: Node | SourceNode) -> Rule:
        cut = isinstance(before, SourceNode) or before.id in self._breaks
        last = not node.successors or node.id in self._breaks
        eqg = self.eqg and bool(node.tsm_successors) and node.id not in self._breaks
        return rule_for(chosen, source=cut, sink=last, eqg=eqg)

    def rows(self, nodes: Iterable[Node]) -> list[Row]:
        """The table, one row per state and neighbour."""
        rows: list[Row] = []
        for node in nodes:
            entry = self.entry(node)
            succ = self._succ(node)
            for before, rule in zip(node.predecessors, entry.rules, strict=True):
                rows.append(Row(node.name, self._pred(before), succ, rule))
            if len(node.successors) > 1 and not entry.broken:
                fork = fork_rule(entry.strategy)
                rows.extend(Row(f"fork{node.id}", node.name, s.name, fork) for s in node.successors)
        return rows

    def _succ(self, node: Node) -> str:
        if not node.successors or node.id in self._breaks:
            return "-"
        return node.successors[0].name if len(node.successors) == 1 else f"fork{node.id}"

    def _pred(self, before: Node | SourceNode) -> str:
        if isinstance(before, SourceNode) or before.id in self._breaks:
            return "-"
        return before.name if len(before.successors) == 1 else f"fork{before.id}"

    def show(self, nodes: Iterable[Node]) -> str:
        """The table as text."""
        head = ("state", "Pred", "Succ", "Transition")
        lines = [head, *((r.state, r.pred, r.succ, r.rule.name) for r in self.rows(nodes))]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        return "\n".join(
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
        )
