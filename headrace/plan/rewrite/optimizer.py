"""Applies the rules until none fires; the same plan always gives the same result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.trees import over
from headrace.plan.rewrite.rule import Fired, Rule
from headrace.plan.rewrite.table import RULES

MOST_STEPS: Final = 10_000
"""More steps than any plan needs: a limit in case one rule undoes another."""


@dataclass(frozen=True)
class Optimized:
    """A plan after rewriting, and the rules that fired."""

    plan: Plan
    fired: tuple[Fired, ...]


def optimize(plan: Plan, rules: Sequence[Rule] = RULES) -> Plan:
    """A plan with the same result, columns and order of columns, on which no rule fires any more."""
    return optimized(plan, rules).plan


def trace(plan: Plan, rules: Sequence[Rule] = RULES) -> tuple[Fired, ...]:
    """The rules that fire on `plan`, in order."""
    return optimized(plan, rules).fired


def optimized(plan: Plan, rules: Sequence[Rule] = RULES) -> Optimized:
    """The plan after rewriting, and the rules that fired."""
    run = _Run(tuple(rules))
    return Optimized(run.plan(plan), tuple(run.fired))


@dataclass
class _Run:
    """One optimization. `settled` has the nodes on which no rule fires, by identity."""

    rules: tuple[Rule, ...]
    fired: list[Fired] = field(default_factory=list)
    settled: dict[int, Plan] = field(default_factory=dict)
    known: dict[type[Plan], list[Rule]] = field(default_factory=dict)

    def plan(self, plan: Plan) -> Plan:
        """Local rules first, then rules for whole plans, until nothing changes."""
        plan, whole = self.settle(plan), [rule for rule in self.rules if rule.whole]
        while (changed := self._first(whole, plan)) is not None:
            plan = self.settle(changed)
        return plan

    def settle(self, plan: Plan) -> Plan:
        """The plan after all local rules, inputs first."""
        if id(plan) in self.settled:
            return plan
        plan = over(plan, [self.settle(each) for each in plan.inputs])
        changed = self._first(self._local(type(plan)), plan)
        if changed is not None:
            return self.settle(changed)
        self.settled[id(plan)] = plan
        return plan

    def _local(self, of: type[Plan]) -> list[Rule]:
        """The rules for nodes of this type."""
        if of not in self.known:
            self.known[of] = [rule for rule in self.rules if not rule.whole and issubclass(of, rule.on)]
        return self.known[of]

    def _first(self, rules: list[Rule], plan: Plan) -> Plan | None:
        """Apply the first rule that changes the plan; None if no rule does."""
        if len(self.fired) >= MOST_STEPS:
            return None
        for rule in rules:
            changed = rule.apply(plan)
            if changed is not None:
                self.fired.append(Fired(rule.name, plan, changed))
                return changed
        return None
