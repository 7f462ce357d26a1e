"""No rule changes an answer: of the oracle, rule by rule and all together, and of the engine."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import event, find, given, note
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import Plan
from headrace.plan.rewrite import RULES, optimize, optimized, trace
from headrace.plan.show import show
from headrace.testing import oracle
from headrace.testing.compare import difference
from tests.laws import searching
from tests.plan.rewriting import assert_optimised_alike, layered, layers
from tests.strategies import plans
from tests.strategies.plans import Case

CASES = layered() | plans.cases()


@given(CASES)
def test_the_optimised_plan_gives_the_same_answer(case: Case) -> None:
    found = optimized(case.plan)
    for fired in found.fired:
        event(fired.rule)
    note(f"{show(case.plan)}\n→\n{show(found.plan)}")
    check(found.plan)
    assert found.plan.schema.equals(case.plan.schema)
    assert not difference(oracle.stream(found.plan, case.sources), oracle.stream(case.plan, case.sources))


@given(CASES)
def test_each_rule_alone_keeps_the_answer(case: Case) -> None:
    expected = oracle.stream(case.plan, case.sources)
    for rule in RULES:
        plan = optimize(case.plan, (rule,))
        if plan is not case.plan:
            note(f"{rule.name}\n{show(case.plan)}\n→\n{show(plan)}")
            assert plan.schema.equals(case.plan.schema)
            assert not difference(oracle.stream(plan, case.sources), expected)


@given(st.data())
def test_the_engine_answers_the_optimised_plan_alike(data: st.DataObject) -> None:
    assert_optimised_alike(data, data.draw(layered()))


@given(CASES)
def test_there_is_nothing_left_to_do(case: Case) -> None:
    plan = optimize(case.plan)
    assert not trace(plan)


def test_every_rule_fires_on_some_random_plan() -> None:
    missing = {rule.name for rule in RULES}

    def all_fired(plan: Plan) -> bool:
        missing.difference_update(each.rule for each in trace(plan))
        return not missing

    with suppress(NoSuchExample):
        find(layers(), all_fired, settings=searching(8000))
    assert not missing, "never fired"
