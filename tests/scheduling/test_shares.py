"""Components with shares: each gets its part of the steps while all have work, and none starves."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from headrace import tuning
from headrace.engine import Engine
from headrace.expressions import col
from headrace.graph.service import Service
from headrace.plan.nodes.core import Plan, Select, Source, TimeKind
from tests.scheduling.test_chain import recorded

SCHEMA = pa.schema([("v", pa.int64())])
STRATEGIES = ["dfs", "bfs", "rr", "chain", "edf", "dfs(3)"]


def path_of(query: int, operators: int) -> Plan:
    plan: Plan = Source(f"s{query}", SCHEMA, TimeKind.INTERNAL)
    for i in range(operators):
        plan = Select(plan, col("v") < 100 + i)
    return plan


def push(engine: Engine, query: int, rows: int) -> None:
    engine.push(f"s{query}", pa.RecordBatch.from_pydict({"v": [1] * rows}, SCHEMA))


def engine_with(services: list[Service], operators: list[int], strategy: str = "dfs") -> Engine:
    engine = Engine(strategy=strategy)
    for query, (service, count) in enumerate(zip(services, operators, strict=True)):
        engine.add(f"q{query}", path_of(query, count), service=service)
    return engine


def turns(engine: Engine, rows: list[int]) -> list[int]:
    """The component of each step, until all rows are through."""
    of = {node.name: int(node.predecessors[0].name[1:]) for node in engine.graph.nodes if _first(node)}
    for node in engine.graph.nodes:
        of.setdefault(node.name, of.get(node.predecessors[0].name, -1))
    ran = recorded(engine)
    for query, count in enumerate(rows):
        push(engine, query, count)
    engine.run()
    return [of[name] for name in ran]


def _first(node: object) -> bool:
    return node.predecessors[0].name.startswith("s") and node.predecessors[0].name[1:].isdigit()  # type: ignore[attr-defined]


services = st.builds(
    Service, share=st.sampled_from([0.5, 1.0, 2.0, 3.0, 10.0]), priority=st.sampled_from([0, 0, 0, 1, 5])
)
TURN = 4


@tuning.using(turn_steps=TURN)
@given(st.lists(services, min_size=2, max_size=5), st.sampled_from(STRATEGIES), st.data())
def test_each_component_gets_its_share_under_backlog_and_none_starves(
    found: list[Service], strategy: str, data: st.DataObject
) -> None:
    """As long as all have work: steps by share differ by two turns at most, counted in the smallest share."""
    if all((each.share, each.priority) == (1.0, 0) for each in found):
        return
    operators = [data.draw(st.integers(1, 3)) for _ in found]
    engine = engine_with(found, operators, strategy)
    ran = turns(engine, [60] * len(found))
    total = Counter(ran)
    event(f"{len(found)} components, {strategy}")
    done, waited = Counter[int](), Counter[int]()
    least = min(each.share for each in found)
    for step in ran:
        done[step] += 1
        for other in range(len(found)):
            waited[other] = 0 if other == step or done[other] == total[other] else waited[other] + 1
        if any(done[i] == total[i] for i in range(len(found))):
            break
        by_share = [done[i] / each.share for i, each in enumerate(found)]
        assert max(by_share) - min(by_share) <= 3 * TURN / least
        whole = sum(each.share for each in found)
        for i, each in enumerate(found):
            assert waited[i] <= 3 * TURN * whole * (1 / each.share + 1 / least)


@tuning.using(turn_steps=1)
def test_three_to_one() -> None:
    ran = turns(engine_with([Service(share=3.0), Service()], [1, 1]), [30, 30])
    assert Counter(ran[:40]) == {0: 30, 1: 10}
    assert all(Counter(ran[i : i + 4]) == {0: 3, 1: 1} for i in range(0, 40, 4))


@tuning.using(turn_steps=5)
def test_a_component_of_a_higher_priority_goes_first_within_its_share() -> None:
    engine = engine_with([Service(), Service(priority=1)], [1, 1])
    ran = turns(engine, [20, 20])
    assert ran[:5] == [1] * 5, "new work of a higher priority goes first"
    assert Counter(ran[:20])[0] >= 5, "and does not keep others from their share"
    push(engine, 0, 3)
    push(engine, 1, 3)
    again = recorded(engine)
    engine.run()
    assert again[:3] == ["select1"] * 3


def test_queries_of_one_component_add_up() -> None:
    engine = Engine()
    for i, source in enumerate((0, 0, 1)):
        plan = Select(path_of(source, 1), col("v") < 50 + i)
        engine.add(f"q{i}", plan, service=Service(share=2.0))
    assert engine.scheduling.shares() == {"q0": 2 / 3, "q1": 2 / 3, "q2": 1 / 3}
    engine.remove("q0")
    assert engine.scheduling.shares() == {"q1": 1 / 2, "q2": 1 / 2}


def test_without_shares_nothing_changes() -> None:
    engine = engine_with([Service(), Service(deadline=5)], [1, 1])
    assert engine.scheduling.shares() == {}
    assert turns(engine, [3, 3]) == [0, 0, 0, 1, 1, 1]


@tuning.using(turn_steps=2)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_component_that_had_no_work_does_not_make_up_for_the_past(strategy: str) -> None:
    engine = engine_with([Service(share=2.0), Service(share=2.0)], [1, 1], strategy)
    push(engine, 0, 500)
    engine.run()
    ran = turns(engine, [40, 40])
    assert abs(Counter(ran[:20])[0] - 10) <= 4
