"""Every rewrite rule does what its file in `tests/plan/fixtures` shows.

`python -m tests.plan.rewrite_fixtures` writes the plans of all files again; `tests/plan/rewrite_fixtures.py`
describes the format.
"""

from __future__ import annotations

import pytest

from headrace.plan.rewrite import RULES, Rule
from tests.plan.rewrite_fixtures import DIRECTORY, UNCHANGED, Fixture, all_fixtures, path_of, read, rewritten


@pytest.mark.parametrize("fixture", list(all_fixtures()), ids=lambda each: f"{each.rule.name}: {each.title}")
def test_a_rule_turns_before_into_after(fixture: Fixture) -> None:
    assert str(rewritten(fixture)) == str(fixture)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_fires_in_two_of_its_cases(rule: Rule) -> None:
    _, cases = read(rule)
    assert len([case for case in cases if case.after != UNCHANGED]) >= 2
    assert len({case.title for case in cases}) == len(cases)
    assert [case.title for case in cases if case.title.startswith("not ") != (case.after == UNCHANGED)] == []


def test_the_fixtures_are_those_of_the_rules() -> None:
    assert set(DIRECTORY.iterdir()) == {path_of(rule) for rule in RULES}
