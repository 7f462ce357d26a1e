"""Random plans are well typed, have a finite answer, and reach every node; runs are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
from hypothesis import find, given
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from headrace.expressions import col
from headrace.plan.nodes import core as nodes
from headrace.plan.nodes import windows
from headrace.plan.nodes.core import AggregateCall, Plan, Source, Window
from headrace.plan.nodes.sequence import Sequence
from headrace.testing import oracle
from headrace.testing.compare import assert_ordered
from tests.laws import searching
from tests.strategies import legal, plans, runs
from tests.strategies.plans import Case

A = Source("a", pa.schema([("k", pa.int64())]))


def nodes_of(plan: Plan) -> Iterator[Plan]:
    yield plan
    for below in plan.inputs:
        yield from nodes_of(below)


@given(plans.cases())
def test_every_plan_is_a_value_and_has_an_ordered_answer_of_its_schema(case: Case) -> None:
    answer = oracle.stream(case.plan, case.sources)
    assert_ordered(answer)
    names = case.plan.schema.names
    assert len(set(names)) == len(names)
    columns = list(zip(*(row for _, row in answer), strict=True)) or [()] * len(names)
    for values, field in zip(columns, case.plan.schema, strict=True):
        assert pa.array(values, field.type).to_pylist() == list(values)
    copy = case.plan.with_inputs(case.plan.inputs)
    assert copy == case.plan
    assert hash(copy) == hash(case.plan)


KINDS = {node for node in oracle.MEANINGS if node.__module__ == nodes.__name__} | {Sequence, *oracle.WINDOWS}


def test_plans_reach_every_node_and_window() -> None:
    missing = set[type](KINDS)

    def all_found(plan: Plan) -> bool:
        for node in nodes_of(plan):
            missing.difference_update((type(node), type(getattr(node, "spec", None))))
        return not missing

    with suppress(NoSuchExample):
        find(plans.plans(), all_found, settings=searching(3000))
    assert not missing, "never drawn"


def test_failures_shrink_to_small_plans() -> None:
    def has_join(plan: Plan) -> bool:
        return any(isinstance(node, nodes.Join) for node in nodes_of(plan))

    smallest = find(plans.relations(2), has_join, settings=searching(300))
    kinds = [type(node).__name__ for node in nodes_of(smallest)]
    leaf = [["Window", "Source"], ["Table"]]
    assert kinds in [["Join", *left, "Project", *right] for left in leaf for right in leaf]


def test_ends_are_known_of_time_windows_and_what_keeps_intervals() -> None:
    ranged, rows = Window(A, windows.Range(3)), Window(A, windows.Rows(3))
    renamed = nodes.Project(ranged, (("j", col("k")),))
    assert legal.ends_are_known(nodes.Join(ranged, renamed))
    assert not legal.ends_are_known(nodes.Union((ranged, rows)))
    assert not legal.ends_are_known(nodes.Distinct(ranged))
    assert legal.ends_are_known(Window(nodes.IStream(rows), windows.Range(3)))


def test_starts_are_known_of_row_windows_unless_partitioned() -> None:
    assert legal.starts_are_known(nodes.Select(Window(A, windows.Rows(3)), col("k") > 1))
    assert not legal.starts_are_known(Window(A, windows.Rows(3, ("k",))))
    assert not legal.starts_are_known(nodes.Distinct(Window(A, windows.Range(3))))


def test_finite_is_what_leaves_in_the_end() -> None:
    ranged, unbounded = Window(A, windows.Range(3)), Window(A, windows.Unbounded())
    renamed = nodes.Project(unbounded, (("j", col("k")),))
    assert legal.is_finite(nodes.Join(ranged, renamed))
    assert legal.is_finite(nodes.Except(ranged, unbounded))
    assert not legal.is_finite(nodes.Union((ranged, unbounded)))
    sliding = nodes.SlidingAggregate(A, (), (AggregateCall("n", "count"),), windows.Sliding(4, 2))
    assert legal.is_finite(sliding)
    assert legal.ticks_of(sliding) == {windows.Ticks(2)}


@given(st.data())
def test_a_run_pushes_all_rows_of_its_case(draw: st.DataObject) -> None:
    case = draw.draw(plans.cases())
    run = draw.draw(runs.runs(case))
    streams = {source.name for source in plans.sources_of(case.plan)}
    rows = sum(len(step[2]) for step in run.steps if step[0] == "push")
    assert rows == sum(len(case.sources[name]) for name in streams)
    assert {step[1] for step in run.steps if step[0] == "end"} == streams
    assert all(0 <= place < len(run.steps) for place in {*run.snapshots, *(place for place, _ in run.swaps)})
    assert repr(run).startswith("Run(k=")
