"""A rewrite rule: a name, and a pure function from a plan to an equivalent one, or to None."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.plan.nodes.core import Plan
from headrace.plan.show import Span

Rewrite = Callable[[Plan], Plan | None]


@dataclass(frozen=True)
class Rule:
    """`apply` returns a plan with the same result and the same columns, or None if the rule does not apply.

    A rule looks at the top of the plan it is given, and is tried at all nodes of type `on`. A `whole`
    rule also needs the nodes above, and is only given whole plans.
    """

    name: str
    apply: Rewrite
    on: type[Plan] = Plan
    whole: bool = False


@dataclass(frozen=True)
class Fired:
    """A rule that was applied, with the part of the plan before and after."""

    rule: str
    before: Plan
    after: Plan

    def what(self, span: Span = str) -> str:
        """The changed part in one line; `span` formats durations."""
        from headrace.plan.show import show_node

        return f"{self.rule}: {show_node(self.before, span)}"

    def __str__(self) -> str:
        return self.what()
