"""The rule library: next-operator selection as small pure functions (Bai et al., §2.3 and §3).

A *step* looks at an operator's state variables and returns an action, or None to let the next step decide. A
*rule* is a sequence of steps under a name. Strategies differ in their sequences, never in code: DFS asks
Forward before Encore, BFS the other way round, round robin exits where the others backtrack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Action(Enum):
    """What the continuation step decides."""

    FORWARD = "next := succ"
    FORWARD_TSM = "next := TSM-succ"
    ENCORE = "next := self"
    TURN = "next := the next branch of the fork"
    BACKTRACK = "next := pred, repeat"
    DEMAND = "ask the source for an ETS, else exit"
    EXIT = "exit"


class View(Protocol):
    """The state variables of an operator: all that a rule may look at.

    `processed` counts the rows taken since control came to it; `k` is the strategy's batch size. `fork_more`:
    it reads a source that others read too, and one of them has input.
    """

    @property
    def yields(self) -> bool: ...

    @property
    def tsm_yields(self) -> bool: ...

    @property
    def more(self) -> bool: ...

    @property
    def fork_more(self) -> bool: ...

    @property
    def processed(self) -> int: ...

    @property
    def k(self) -> int: ...


@dataclass(frozen=True)
class Variables:
    """State variables as plain values."""

    yields: bool
    more: bool
    tsm_yields: bool = False
    fork_more: bool = False
    processed: int = 0
    k: int = 1


Step = Callable[[View], Action | None]


def forward(view: View) -> Action | None:
    """Forward: if yield then next := succ."""
    return Action.FORWARD if view.yields else None


def forward_eqg(view: View) -> Action | None:
    """Forward in the enhanced graph: if tuple-yield then tuple-succ, else if TSM-yield then TSM-succ."""
    if view.yields:
        return Action.FORWARD
    return Action.FORWARD_TSM if view.tsm_yields else None


def encore(view: View) -> Action | None:
    """Encore: if more then next := self."""
    return Action.ENCORE if view.more else None


def encore_k(view: View) -> Action | None:
    """Encore with k-tuple batching: if more and fewer than k rows were taken since the last forward."""
    return Action.ENCORE if view.more and view.processed < view.k else None


def in_turn(view: View) -> Action | None:
    """Fork at a source: if a branch has input then next := that branch, in turn."""
    return Action.TURN if view.fork_more else None


def backtrack(view: View) -> Action | None:
    """Backtrack: next := pred (of the input that holds this operator back); repeat the step on it."""
    return Action.BACKTRACK


def demand(view: View) -> Action | None:
    """Backtrack at a source: let it make an ETS; if it cannot, return control to the scheduler."""
    return Action.DEMAND


def leave(view: View) -> Action | None:
    """Exit: return control to the scheduler."""
    return Action.EXIT


@dataclass(frozen=True)
class Rule:
    """A named sequence of steps; the first that returns an action decides."""

    name: str
    steps: tuple[Step, ...]

    def decide(self, view: View) -> Action:
        """What to do next for an operator in this state."""
        for step in self.steps:
            action = step(view)
            if action is not None:
                return action
        return Action.EXIT
