"""The rule library decides as the paper's rules say (Bai et al., §2.3)."""

from __future__ import annotations

import pytest

from headrace import tuning
from headrace.errors import ScheduleError
from headrace.scheduling.rules import Action, Variables
from headrace.scheduling.table import fork_rule, rule_for, strategy

F, E, B, X, D, T = (
    Action.FORWARD,
    Action.ENCORE,
    Action.BACKTRACK,
    Action.EXIT,
    Action.DEMAND,
    Action.FORWARD_TSM,
)
CASES = [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("dfs", [F, F, E, B]),
        ("bfs", [E, F, E, B]),
        ("rr", [E, F, E, X]),
    ],
)
def test_each_strategy_is_its_order_of_steps(name: str, expected: list[Action]) -> None:
    rule = rule_for(strategy(name), source=False, sink=False, eqg=False)
    assert [rule.decide(Variables(yields=y, more=m)) for y, m in CASES] == expected


@pytest.mark.parametrize(
    ("source", "sink", "eqg", "name", "expected"),
    [
        (True, False, False, "DFS-Source", [F, F, E, D]),
        (False, True, False, "DFS-Sink", [E, B, E, B]),
        (True, True, False, "DFS-Source-Sink", [E, D, E, D]),
        (False, False, True, "DFS-NOS-EQG", [F, F, E, B]),
    ],
)
def test_the_position_of_a_state_changes_its_rule(
    source: bool, sink: bool, eqg: bool, name: str, expected: list[Action]
) -> None:
    rule = rule_for(strategy("dfs"), source=source, sink=sink, eqg=eqg)
    assert rule.name == name
    assert [rule.decide(Variables(yields=y, more=m)) for y, m in CASES] == expected


def test_the_enhanced_graph_forwards_tuples_before_timestamps() -> None:
    rule = rule_for(strategy("dfs"), source=False, sink=False, eqg=True)
    assert rule.decide(Variables(yields=True, more=True, tsm_yields=True)) is F
    assert rule.decide(Variables(yields=False, more=True, tsm_yields=True)) is T


def test_k_tuple_batching_forwards_after_k_rows() -> None:
    rule = rule_for(strategy("dfs(10)"), source=False, sink=False, eqg=False)
    assert rule.decide(Variables(yields=True, more=True, processed=9, k=10)) is E
    assert rule.decide(Variables(yields=True, more=True, processed=10, k=10)) is F
    assert rule.decide(Variables(yields=False, more=True, processed=10, k=10)) is E


def test_a_fork_visits_its_branches_and_goes_back() -> None:
    rule = fork_rule(strategy("dfs"))
    assert rule.decide(Variables(yields=True, more=True)) is F
    assert rule.decide(Variables(yields=False, more=True)) is B


def test_auto_grows_with_the_backlog_and_is_one_when_idle() -> None:
    auto = strategy("auto")
    assert [auto.limit(n) for n in (0, 1, 500, 10**9)] == [1, 1, 500, tuning.current.batch_rows]
    assert strategy("dfs(7)").limit(10**9) == 7
    assert strategy("bfs").limit(10**9) == 1


@pytest.mark.parametrize("name", ["dsf", "dfs(0)", "dfs(x)", ""])
def test_an_unknown_strategy_is_refused_with_a_hint(name: str) -> None:
    with pytest.raises(ScheduleError, match="HR-S001") as caught:
        strategy(name)
    assert caught.value.hint
