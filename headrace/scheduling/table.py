"""The state table: rows (state, pred, succ, rule), as the papers print it (Bai et al., Tables 1–3)."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace import tuning
from headrace.errors import ScheduleError
from headrace.graph.node import Node
from headrace.graph.source import SourceNode
from headrace.scheduling.ranking import (
    Cut,
    Rank,
    Ranking,
    Standing,
    between_paths,
    between_segments,
    by_deadline,
    by_place,
    by_slope,
    by_turn,
    nowhere,
)
from headrace.scheduling.rules import (
    Rule,
    Step,
    backtrack,
    demand,
    encore,
    encore_k,
    forward,
    forward_eqg,
    in_turn,
    leave,
)


@dataclass(frozen=True)
class Row:
    """One line: in `state`, when its input from `pred` is the one to go back to, decide by `rule`."""

    state: str
    pred: str
    succ: str
    rule: Rule
    strategy: Strategy


@dataclass
class Entry:
    """What the executor looks up for a node: its strategy and one rule per input (`uniform`: all alike)."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    broken: bool
    uniform: bool


class StateTable:
    """Which rule decides in which state. Changing a strategy, for all nodes or some, replaces rows."""

    def __init__(self, default: Strategy, eqg: bool) -> None:
        self.default = default
        self.eqg = eqg
        self.standing = Standing()
        self._chosen: dict[int, Strategy] = {}
        self._breaks: set[int] = set()
        self._asked: dict[int, Strategy] = {}
        self._asked_breaks: frozenset[int] = frozenset()
        self._entries: dict[int, Entry] = {}

    def choose(self, strategy: Strategy, nodes: Iterable[Node] | None) -> None:
        """Use `strategy` everywhere, or for some nodes only."""
        if nodes is None:
            self.default, self._chosen = strategy, {}
        else:
            self._chosen |= {node.id: strategy for node in nodes}
        self._entries = {}

    def set_break(self, node: Node) -> None:
        """Cut the path at the output of `node`: a sink for nodes before it, a source for nodes after it."""
        self._breaks.add(node.id)
        self._entries = {}

    def unset_break(self, node: Node) -> None:
        """Join the path again."""
        self._breaks.discard(node.id)
        self._entries = {}

    def ask(self, strategies: Mapping[int, Strategy], breaks: Iterable[int]) -> None:
        """What queries ask for at some nodes, by their ids. A choice by hand for a node counts more."""
        self._asked, self._asked_breaks = dict(strategies), frozenset(breaks)
        self._entries = {}

    def forget(self) -> None:
        """The graph or its break nodes changed: rebuild the table when it is next needed."""
        self._entries = {}

    @property
    def ranked(self) -> bool:
        """Whether a strategy in use chooses among operators with work in an order of its own."""
        used = (self.default, *self._chosen.values(), *self._asked.values())
        return any(each.ranking is not by_place for each in used)

    def rank(self, node: Node) -> Rank:
        """The rank of a node among those with work; the least goes first."""
        return self.strategy_of(node).ranking(node, self.standing)

    def strategy_of(self, node: Node) -> Strategy:
        """The strategy that runs a node."""
        return self._chosen.get(node.id) or self._asked.get(node.id, self.default)

    def is_cut(self, node: Node) -> bool:
        """Whether there is a break node after a node: set by hand, by a query, or by its strategy."""
        by_hand = node.id in self._breaks or node.id in self._asked_breaks
        return by_hand or self.strategy_of(node).cut(node, self.standing)

    def entry(self, node: Node) -> Entry:
        """The row of a node, built on first use."""
        entry = self._entries.get(node.id)
        if entry is None:
            chosen = self.strategy_of(node)
            rules = tuple(self._rule(chosen, node, before) for before in node.predecessors)
            uniform = len(set(rules)) == 1
            entry = self._entries[node.id] = Entry(chosen, rules, self.is_cut(node), uniform)
        return entry

    def _rule(self, chosen: Strategy, node: Node, before: Node | SourceNode) -> Rule:
        """The rule of a node for its input from `before`."""
        cut = isinstance(before, SourceNode) or self.is_cut(before)
        fork = isinstance(before, SourceNode) and len(before.successors) > 1
        last = not node.successors or self.is_cut(node)
        eqg = self.eqg and bool(node.tsm_successors) and not self.is_cut(node)
        return rule_for(chosen, source=cut, sink=last, eqg=eqg, fork=fork)

    def rows(self, nodes: Iterable[Node]) -> list[Row]:
        """The table, one row per state and neighbour."""
        rows: list[Row] = []
        forks: set[str] = set()
        for node in nodes:
            entry = self.entry(node)
            succ = self._succ(node)
            for before, rule in zip(node.predecessors, entry.rules, strict=True):
                if _forks(before) and before.name not in forks:
                    forks.add(before.name)
                    fork = fork_rule(entry.strategy, source=True)
                    rows.extend(
                        Row(f"fork-{before.name}", "-", s.name, fork, entry.strategy)
                        for s in before.successors
                    )
                rows.append(Row(node.name, self._pred(before), succ, rule, entry.strategy))
            if len(node.successors) > 1 and not entry.broken:
                fork = fork_rule(entry.strategy)
                rows.extend(
                    Row(f"fork{node.id}", node.name, s.name, fork, entry.strategy) for s in node.successors
                )
        return rows

    def _succ(self, node: Node) -> str:
        """The name of the state after a node, as the papers write it."""
        if not node.successors or self.is_cut(node):
            return "-"
        return node.successors[0].name if len(node.successors) == 1 else f"fork{node.id}"

    def _pred(self, before: Node | SourceNode) -> str:
        """The name of the state before a node, as the papers write it."""
        if isinstance(before, SourceNode):
            return f"fork-{before.name}" if _forks(before) else "-"
        if self.is_cut(before):
            return "-"
        return before.name if len(before.successors) == 1 else f"fork{before.id}"

    def show(self, nodes: Iterable[Node]) -> str:
        """The table as text, as the papers print it."""
        rows = ((r.state, r.pred, r.succ, r.rule.name) for r in self.rows(nodes))
        return _aligned([("state", "Pred", "Succ", "Transition"), *rows])

    def explained(self, nodes: Iterable[Node]) -> str:
        """Which operator runs before and after which, and its strategy as users name it."""
        rows = ((r.state, r.pred, r.succ, r.strategy.name) for r in self.rows(nodes))
        return _aligned([("operator", "runs after", "runs before", "strategy"), *rows])


def _forks(before: Node | SourceNode) -> bool:
    """Whether several operators read this source."""
    return isinstance(before, SourceNode) and len(before.successors) > 1


def _aligned(lines: list[tuple[str, ...]]) -> str:
    """Lines of cells as text, with columns aligned."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines
    )


# Strategies as rows: the steps of each, and how steps change by position (Bai et al., §2.3, §3).


AUTO = 0


@dataclass(frozen=True)
class Strategy:
    """A sequence of steps and the number of rows an operator may take at a time (AUTO: by backlog).

    `ranking`: which of the operators with work goes first. `cut`: the break nodes that it sets by itself.
    """

    name: str
    label: str
    steps: tuple[Step, ...]
    k: int = 1
    ranking: Ranking = by_place
    cut: Cut = nowhere

    def limit(self, backlog: int) -> int:
        """How many rows to take with `backlog` rows waiting: auto grows with it, and is 1 when idle."""
        return self.k if self.k != AUTO else max(1, min(backlog, tuning.current.batch_rows))


@dataclass(frozen=True)
class Family:
    """A strategy without its k: `steps` row by row, `batched` with k rows at a time."""

    label: str
    steps: tuple[Step, ...]
    batched: tuple[Step, ...]
    ranking: Ranking = by_place
    cut: Cut = nowhere


_DEPTH_FIRST = (forward, encore, backtrack)
_BREADTH_FIRST = (encore, forward, backtrack)
_ROUND_ROBIN = (encore, forward, leave)
_DEPTH_FIRST_BATCHED = (encore_k, forward, encore, backtrack)
_ALONG_A_PATH = (forward, leave)

FAMILIES: dict[str, Family] = {
    "dfs": Family("DFS", _DEPTH_FIRST, _DEPTH_FIRST_BATCHED),
    "bfs": Family("BFS", _BREADTH_FIRST, _BREADTH_FIRST),
    "rr": Family("RR", _ROUND_ROBIN, _ROUND_ROBIN, by_turn, between_paths),
    "chain": Family("Chain", _ALONG_A_PATH, _ALONG_A_PATH, by_slope, between_segments),
    "edf": Family("EDF", _ALONG_A_PATH, _ALONG_A_PATH, by_deadline, between_paths),
}

AT_SOURCE: dict[Step, Step] = {backtrack: demand}
IN_EQG: dict[Step, Step] = {forward: forward_eqg}
_NAME = re.compile(r"(?P<family>[a-z]+)(\((?P<k>\d+|auto)\))?")


def strategy(name: str) -> Strategy:
    """`dfs`, `bfs`, `rr`, `chain`, `edf`, each also with `(k)` or `(auto)`; `auto` is `dfs(auto)`."""
    if name == "auto":
        return strategy("dfs(auto)")
    match = _NAME.fullmatch(name.strip().lower())
    if match is None or match["family"] not in FAMILIES or match["k"] == "0":
        near = difflib.get_close_matches(name, [*FAMILIES, "auto"], n=1)
        hint = f"did you mean {near[0]}?" if near else "known: dfs, bfs, rr, chain, edf, dfs(k), auto"
        raise ScheduleError("HR-S001", f"unknown strategy {name!r}", hint=hint)
    family = FAMILIES[match["family"]]
    if match["k"] is None:
        return Strategy(name, family.label, family.steps, 1, family.ranking, family.cut)
    k = AUTO if match["k"] == "auto" else int(match["k"])
    return Strategy(name, f"{family.label}({match['k']})", family.batched, k, family.ranking, family.cut)


def rule_for(chosen: Strategy, *, source: bool, sink: bool, eqg: bool, fork: bool = False) -> Rule:
    """The rule of a state by its position: before it a source, after it a sink, in the enhanced graph.

    `fork`: other operators read the source too. They take turns.
    """
    steps = chosen.steps
    if fork:
        steps = _taking_turns(steps)
    if sink and not eqg:
        steps = tuple(s for s in steps if s is not forward)
    if source:
        steps = tuple(AT_SOURCE.get(s, s) for s in steps)
    if eqg:
        steps = tuple(IN_EQG.get(s, s) for s in steps)
    position = "-".join(["Source"] * source + ["Sink"] * sink) or "NOS"
    return Rule(f"{chosen.label}-{position}" + ("-EQG" if eqg else ""), steps)


def _taking_turns(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Steps at a fork: visit the other branches before going back, and before an encore after Forward."""
    found: list[Step] = []
    for step in steps:
        if step is backtrack or (step is encore and forward in found):
            found.append(in_turn)
        if step is not encore or forward not in found:
            found.append(step)
    return tuple(dict.fromkeys(found))


def fork_rule(chosen: Strategy, *, source: bool = False) -> Rule:
    """The rule of a fork: visit each branch that has input in turn, then go back; at a source, ask it."""
    if source:
        return Rule(f"{chosen.label}-Source-Fork", (in_turn, demand))
    return Rule(f"{chosen.label}-Fork", (forward, backtrack))
