"""What a rewrite rule is: a name and a pure function from a plan to an equal one, or to None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.nodes import Plan
from headrace.plan.spans import Span

Rewrite = Callable[[Plan], Plan | None]


@dataclass(frozen=True)
class Rule:
    """`apply` gives a plan with the same answer and the same columns, or None where there is nothing to do.

    A rule looks at the top of the plan it is given, and is tried wherever a node is a kind of `on`. One that
    is `whole` has to see what stands above, and is given whole plans only.
    """

    name: str
    apply: Rewrite
    on: type[Plan] = Plan
    whole: bool = False


@dataclass(frozen=True)
class Fired:
    """A rule that had something to do, and the parts of the plan before and after."""

    rule: str
    before: Plan
    after: Plan

    def what(self, span: Span = str) -> str:
        """What it was done to, in a line; `span` writes durations."""
        from headrace.plan.show import show_node

        return f"{self.rule}: {show_node(self.before, span)}"

    def __str__(self) -> str:
        return self.what()
