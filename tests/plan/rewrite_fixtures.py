"""Rewrite rules as text: each file of `tests/plan/fixtures` shows what one rule does to some queries.

A file is named after its rule and has a comment, then cases:

    -- case: what this case shows
    SELECT k FROM s [RANGE 60] WHERE v > 1
    -- before
    select v > 1
      window [RANGE 60]
        stream s (external time)
    -- after
    window [RANGE 60]
      select v > 1
        stream s (external time)

`before` and `after` are the part of the plan that the rule changes when it fires for the first time while the
query is optimized. Where the rule must not fire, the title starts with "not", `before` is the whole optimized
plan and `after` is the line `(unchanged)`. Numbers in windows are ticks. The streams are those of `STREAMS`.

To add a case, write its `-- case:` line and its query, then write the plans of all files with

    python -m tests.plan.rewrite_fixtures

and read the difference that git shows. Do the same after a change of a rule or of `headrace.plan.show`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headrace import query
from headrace.expressions.substitution import conjunction, conjuncts
from headrace.plan.nodes.core import Join, Plan, Select
from headrace.plan.nodes.trees import over
from headrace.plan.rewrite import RULES, Rule, optimized
from headrace.plan.show import show

DIRECTORY = Path(__file__).parent / "fixtures"
CASE, BEFORE, AFTER = "-- case: ", "-- before\n", "-- after\n"
UNCHANGED = "(unchanged)"

STREAMS = {
    "s": pa.schema([("k", pa.int64()), ("v", pa.float64()), ("t", pa.string())]),
    "r": pa.schema([("j", pa.int64()), ("w", pa.float64())]),
    **{name: pa.schema([(name, pa.int64())]) for name in "abc"},
}


@dataclass(frozen=True)
class Fixture:
    """One case of a rule. `before` and `after` are empty if they have not been written yet."""

    rule: Rule
    title: str
    text: str
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        return f"{CASE}{self.title}\n{self.text}\n{BEFORE}{self.before}\n{AFTER}{self.after}\n"


def path_of(rule: Rule) -> Path:
    """The file with the cases of a rule."""
    return DIRECTORY / f"{rule.name.replace(' ', '_')}.sql"


def read(rule: Rule) -> tuple[str, list[Fixture]]:
    """The comment at the top of a rule's file, and its cases."""
    comment, *cases = path_of(rule).read_text().split(CASE)
    return comment, [_parse(rule, case) for case in cases]


def _parse(rule: Rule, case: str) -> Fixture:
    written, _, plans = case.partition(BEFORE)
    title, _, text = written.partition("\n")
    before, _, after = plans.partition(AFTER)
    return Fixture(rule, title.strip(), text.strip(), before.rstrip(), after.rstrip())


def all_fixtures() -> Iterator[Fixture]:
    for rule in RULES:
        yield from read(rule)[1]


def rewritten(fixture: Fixture) -> Fixture:
    """The fixture with the plans that its rule really sees and makes."""
    plan = query(fixture.text, STREAMS, ticks_per_second=None).logical
    if fixture.rule.name == "conditions below join":
        plan = _with_residuals(plan)
    found = optimized(plan)
    for fired in found.fired:
        if fired.rule == fixture.rule.name:
            return replace(fixture, before=show(fired.before), after=show(fired.after))
    return replace(fixture, before=show(found.plan), after=UNCHANGED)


def _with_residuals(plan: Plan) -> Plan:
    """The conditions above joins as part of these joins: SQL alone never gives a join such conditions."""
    plan = over(plan, [_with_residuals(each) for each in plan.inputs])
    if isinstance(plan, Select) and isinstance(plan.input, Join):
        join = plan.input
        return replace(join, residual=conjunction([*conjuncts(join.residual), *conjuncts(plan.predicate)]))
    return plan


def write(rule: Rule) -> None:
    """Write the plans of a rule's cases into its file."""
    comment, cases = read(rule)
    path_of(rule).write_text(comment.rstrip() + "\n\n" + "\n".join(str(rewritten(case)) for case in cases))


if __name__ == "__main__":
    for each in RULES:
        write(each)
