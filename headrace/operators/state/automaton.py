"""Patterns as automata: their states, and in order of preference those that come after each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from headrace.arrays import Ids, Ints, Lines
from headrace.plan.nodes.match import Either, Match, One, Pattern, Repeat

ACCEPT: Final = -1
NONE: Final = -1


@dataclass(frozen=True)
class Automaton:
    """State q waits for a row of variable `variables[q]`, before one of `unless[q]`, if that is not NONE.

    `lapses[q]` are the ticks that pass before that row, or NONE, and whether time is counted from it on.
    `targets[begins[q] : begins[q + 1]]` are the states after it, preferred ones first; ACCEPT ends the list.
    The last list, at `begins[size]`, has the states at the beginning.
    """

    variables: Ids
    unless: Ids
    lapses: Lines
    begins: Ids
    targets: Ids

    @property
    def size(self) -> int:
        """The number of states."""
        return len(self.variables)

    @property
    def first(self) -> Ids:
        """The states at the beginning."""
        return self.targets[self.begins[self.size] :]

    @property
    def fan_out(self) -> int:
        """The most states that come after one."""
        return int(np.diff(self.begins).max())


def automaton(plan: Match) -> Automaton:
    """The automaton of a pattern."""
    graph = _Graph({variable.name: i for i, variable in enumerate(plan.variables)})
    begin = graph.add(plan.pattern, ACCEPT)
    lists = [*(graph.reached(after) for _, _, after in graph.rows), graph.reached(begin)]
    begins = np.cumsum([0, *map(len, lists)])
    targets: Ints = np.array([target for each in lists for target in each], np.int64)
    variables, unless = (np.array([row[i] for row in graph.rows], np.int64) for i in range(2))
    lapses = np.array(
        [(NONE if one.after is None else one.after, one.counts) for one in graph.ones], np.int64
    )
    return Automaton(variables, unless, lapses, begins, targets)


class _Graph:
    """A graph of rows and splits, built from the end. Rows are numbered from 0, splits from −2 downwards."""

    def __init__(self, numbers: dict[str, int]) -> None:
        self._numbers = numbers
        self.rows: list[tuple[int, int, int]] = []
        self.ones: list[One] = []
        self._splits: list[tuple[int, ...]] = []

    def add(self, pattern: Pattern, after: int) -> int:
        """Add a pattern that goes on at `after`; returns where it begins."""
        if isinstance(pattern, One):
            unless = NONE if pattern.unless is None else self._numbers[pattern.unless]
            self.rows.append((self._numbers[pattern.variable], unless, after))
            self.ones.append(pattern)
            return len(self.rows) - 1
        if isinstance(pattern, Repeat):
            return self._repeat(pattern, after)
        if isinstance(pattern, Either):
            return self._split(tuple(self.add(part, after) for part in pattern.parts))
        for part in reversed(pattern.parts):
            after = self.add(part, after)
        return after

    def _repeat(self, pattern: Repeat, after: int) -> int:
        """The optional repetitions as a loop or one in the other, then the required ones before them."""
        entry = after
        if pattern.most is None:
            entry = self._split(())
            body = self.add(pattern.part, entry)
            self._splits[-2 - entry] = (body, after) if pattern.greedy else (after, body)
        for _ in range((pattern.most or 0) - pattern.least):
            body = self.add(pattern.part, entry)
            entry = self._split((body, after) if pattern.greedy else (after, body))
        for _ in range(pattern.least):
            entry = self.add(pattern.part, entry)
        return entry

    def _split(self, targets: tuple[int, ...]) -> int:
        self._splits.append(targets)
        return -1 - len(self._splits)

    def reached(self, node: int) -> list[int]:
        """The rows that can come at a node, in order of preference, up to the end of the pattern."""
        found: list[int] = []
        seen: set[int] = set()
        stack = [node]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            if at >= ACCEPT:
                found.append(at)
                if at == ACCEPT:
                    break
            else:
                stack.extend(reversed(self._splits[-2 - at]))
        return found
