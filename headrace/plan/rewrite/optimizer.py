"""The rules applied until none has anything to do; the same plan always ends as the same plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.plan.nodes import Plan
from headrace.plan.rewrite.rule import Fired, Rule
from headrace.plan.rewrite.table import RULES
from headrace.plan.trees import over

MOST_STEPS: Final = 10_000
"""More steps than any plan needs: a rule that undoes another would otherwise never end."""


@dataclass(frozen=True)
class Optimized:
    """A plan after rewriting, and the rules that made it so."""

    plan: Plan
    fired: tuple[Fired, ...]


def optimize(plan: Plan, rules: Sequence[Rule] = RULES) -> Plan:
    """A plan with the same answer, columns and order of columns, in which no rule has anything left to do."""
    return optimized(plan, rules).plan


def trace(plan: Plan, rules: Sequence[Rule] = RULES) -> tuple[Fired, ...]:
    """The rules that fire on `plan`, in order."""
    return optimized(plan, rules).fired


def optimized(plan: Plan, rules: Sequence[Rule] = RULES) -> Optimized:
    """The plan after rewriting and how it came about."""
    run = _Run(tuple(rules))
    return Optimized(run.plan(plan), tuple(run.fired))


@dataclass
class _Run:
    """One optimisation. `settled` holds the nodes in which no rule has anything to do, by identity."""

    rules: tuple[Rule, ...]
    fired: list[Fired] = field(default_factory=list)
    settled: dict[int, Plan] = field(default_factory=dict)
    known: dict[type[Plan], list[Rule]] = field(default_factory=dict)

    def plan(self, plan: Plan) -> Plan:
        """Local rules first, then those that see the whole, until nothing changes."""
        plan, whole = self.settle(plan), [rule for rule in self.rules if rule.whole]
        while (changed := self._first(whole, plan)) is not None:
            plan = self.settle(changed)
        return plan

    def settle(self, plan: Plan) -> Plan:
        """The plan with no local rule left to fire in it, inputs first."""
        if id(plan) in self.settled:
            return plan
        plan = over(plan, [self.settle(each) for each in plan.inputs])
        changed = self._first(self._local(type(plan)), plan)
        if changed is not None:
            return self.settle(changed)
        self.settled[id(plan)] = plan
        return plan

    def _local(self, of: type[Plan]) -> list[Rule]:
        """The rules that a node of this type may be for."""
        if of not in self.known:
            self.known[of] = [rule for rule in self.rules if not rule.whole and issubclass(of, rule.on)]
        return self.known[of]

    def _first(self, rules: list[Rule], plan: Plan) -> Plan | None:
        if len(self.fired) >= MOST_STEPS:
            return None
        for rule in rules:
            changed = rule.apply(plan)
            if changed is not None:
                self.fired.append(Fired(rule.name, plan, changed))
                return changed
        return None
