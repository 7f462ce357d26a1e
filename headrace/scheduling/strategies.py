"""Strategies as rows: the steps of each, and what becomes of a step by position (Bai et al., §2.3, §3)."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from headrace.errors import ScheduleError
from headrace.scheduling.rules import (
    Rule,
    Step,
    backtrack,
    demand,
    encore,
    encore_k,
    forward,
    forward_eqg,
    leave,
)

AUTO = 0
AUTO_CEILING = 131_072


@dataclass(frozen=True)
class Strategy:
    """A sequence of steps and the number of rows an operator may take at a time (AUTO: by backlog)."""

    name: str
    label: str
    steps: tuple[Step, ...]
    k: int = 1

    def limit(self, backlog: int) -> int:
        """How many rows to take with `backlog` rows waiting: auto grows with it, and is 1 when idle."""
        return self.k if self.k != AUTO else max(1, min(backlog, AUTO_CEILING))


_DEPTH_FIRST = (forward, encore, backtrack)
_BREADTH_FIRST = (encore, forward, backtrack)
_ROUND_ROBIN = (encore, forward, leave)
_DEPTH_FIRST_BATCHED = (encore_k, forward, encore, backtrack)

FAMILIES: dict[str, tuple[str, tuple[Step, ...], tuple[Step, ...]]] = {
    "dfs": ("DFS", _DEPTH_FIRST, _DEPTH_FIRST_BATCHED),
    "bfs": ("BFS", _BREADTH_FIRST, _BREADTH_FIRST),
    "rr": ("RR", _ROUND_ROBIN, _ROUND_ROBIN),
}

AT_SOURCE: dict[Step, Step] = {backtrack: demand}
IN_EQG: dict[Step, Step] = {forward: forward_eqg}
_NAME = re.compile(r"(?P<family>[a-z]+)(\((?P<k>\d+|auto)\))?")


def strategy(name: str) -> Strategy:
    """`dfs`, `bfs`, `rr`, each also with `(k)` or `(auto)`; `auto` is `dfs(auto)`."""
    if name == "auto":
        return strategy("dfs(auto)")
    match = _NAME.fullmatch(name.strip().lower())
    if match is None or match["family"] not in FAMILIES or match["k"] == "0":
        near = difflib.get_close_matches(name, [*FAMILIES, "auto"], n=1)
        hint = f"did you mean {near[0]}?" if near else "known: dfs, bfs, rr, dfs(k), auto"
        raise ScheduleError("HR-S001", f"unknown strategy {name!r}", hint=hint)
    label, one_by_one, batched = FAMILIES[match["family"]]
    if match["k"] is None:
        return Strategy(name, label, one_by_one)
    k = AUTO if match["k"] == "auto" else int(match["k"])
    return Strategy(name, f"{label}({match['k']})", batched, k)


def rule_for(chosen: Strategy, *, source: bool, sink: bool, eqg: bool) -> Rule:
    """The rule of a state by its position: before it a source, after it a sink, in the enhanced graph."""
    steps = chosen.steps
    if sink and not eqg:
        steps = tuple(s for s in steps if s is not forward)
    if source:
        steps = tuple(AT_SOURCE.get(s, s) for s in steps)
    if eqg:
        steps = tuple(IN_EQG.get(s, s) for s in steps)
    position = "-".join(["Source"] * source + ["Sink"] * sink) or "NOS"
    return Rule(f"{chosen.label}-{position}" + ("-EQG" if eqg else ""), steps)


def fork_rule(chosen: Strategy) -> Rule:
    """The rule of a fork: visit each branch that has something to take in turn, then go back."""
    return Rule(f"{chosen.label}-Fork", (forward, backtrack))
