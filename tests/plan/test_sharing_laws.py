"""Sharing changes no answer, never makes more nodes, and leaves alone what runs already."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import event, given, note
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.flow.batch import Batch
from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable
from headrace.plan.rewrite import share
from headrace.plan.show import show
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream, difference
from tests.engine.driving import execute_all
from tests.plan.sharing import Workload, costly, workloads
from tests.strategies.runs import runs


def shown(plans: Mapping[str, Plan]) -> str:
    return "\n\n".join(f"{name}:\n{show(plan)}" for name, plan in plans.items())


def assert_same_answers(before: Mapping[str, Plan], after: Mapping[str, Plan], work: Workload) -> None:
    """Each plan has the answer, the columns and the bounds that it had."""
    assert before.keys() == after.keys()
    for name, plan in after.items():
        check(plan)
        assert plan.schema.equals(before[name].schema)
        assert not difference(
            oracle.stream(plan, work.case.sources), oracle.stream(before[name], work.case.sources)
        )


@given(workloads())
def test_shared_plans_give_the_same_answers(work: Workload) -> None:
    after = share(work.queries)
    note(f"{shown(work.queries)}\n\n→\n\n{shown(after)}")
    saved = len(costly(work.queries.values())) - len(costly(after.values()))
    event(f"nodes saved: {saved}")
    assert saved >= 0
    assert_same_answers(work.queries, after, work)


@given(st.data())
def test_an_engine_answers_shared_plans_as_the_oracle_answers_each_alone(data: st.DataObject) -> None:
    work = data.draw(workloads())
    after = share(work.queries)
    note(f"{shown(work.queries)}\n\n→\n\n{shown(after)}")
    answers, engine = execute_all(work.case, data.draw(runs(work.case)), after)
    for name, plan in after.items():
        _assert_exact(engine, name, answers[name], plan, work)


def _assert_exact(engine: Engine, name: str, answers: list[Batch], plan: Plan, work: Workload) -> None:
    """The answers are those of the query as it was, under the window sizes that the engine chose."""
    before, histories = work.queries[name], engine.quality.histories(name)
    written = dict(zip(adaptable(before), map(histories.__getitem__, adaptable(plan)), strict=True))
    assert_same_stream(answers, oracle.stream(before, work.case.sources, written), schema=before.schema)


@given(workloads(), st.data())
def test_fixed_plans_stay_and_others_may_use_them(work: Workload, data: st.DataObject) -> None:
    names = data.draw(st.sets(st.sampled_from(sorted(work.queries)), min_size=1))
    running = share({name: work.queries[name] for name in names})
    after = share(work.queries, fixed=running)
    note(f"fixed {sorted(names)}\n{shown(work.queries)}\n\n→\n\n{shown(after)}")
    assert {name: after[name] for name in names} == running
    assert len(costly(after.values())) <= len(costly({**work.queries, **running}.values()))
    assert_same_answers(work.queries, after, work)
    rest = {name: plan for name, plan in work.queries.items() if name not in names}
    assert share(rest, fixed=running) == {name: after[name] for name in rest}


@given(workloads(), st.randoms(use_true_random=False))
def test_the_order_of_queries_does_not_matter(work: Workload, random: st.Random) -> None:
    names = list(work.queries)
    random.shuffle(names)
    assert share({name: work.queries[name] for name in names}) == share(work.queries)


@given(workloads())
def test_a_query_alone_is_not_changed(work: Workload) -> None:
    for name, plan in work.queries.items():
        assert share({name: plan}) == {name: plan}
        assert share({name: plan, "copy": plan}) == {name: plan, "copy": plan}
