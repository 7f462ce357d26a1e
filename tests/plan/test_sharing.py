"""Queries share windows, joins and aggregates in one engine; `tests/plan/sharing.sql` shows their plans.

`python -m tests.plan.sharing_fixtures` writes the plans of that file again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace import Engine, StreamDef, TableDef, query
from headrace.expressions import FUNCTIONS, col, fn, register
from headrace.flow.batch import Batch
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Aggregate, AggregateCall, IStream, Plan, Project, Source, Window
from headrace.plan.nodes.trees import walk
from headrace.plan.nodes.windows import Range
from headrace.plan.rewrite import share
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import DisorderPromise
from tests.plan.rewrite_fixtures import UNCHANGED
from tests.plan.sharing_fixtures import Fixture, read, rewritten

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("w", pa.int64()), ("t", pa.string())])
ROWS = [(i, {"k": i % 3, "v": i * 7 % 5, "w": i, "t": "ab"[i % 2]}) for i in range(60)]
SOURCE = Source("s", COLUMNS)


@pytest.mark.parametrize("fixture", read()[1], ids=lambda each: each.title)
def test_plans_before_become_plans_after(fixture: Fixture) -> None:
    assert str(rewritten(fixture)) == str(fixture)
    assert fixture.title.startswith("not ") == (fixture.after == UNCHANGED) or "only" in fixture.title


def plans_of(texts: Iterable[str]) -> dict[str, Plan]:
    return {f"q{i}": query(text, {"s": COLUMNS}, ticks_per_second=None).plan for i, text in enumerate(texts)}


def run(plans: dict[str, Plan]) -> tuple[Engine, Counter[str]]:
    """An engine in which each query has given its answer, and how often each kind of node is in it."""
    engine = Engine()
    for name, plan in plans.items():
        engine.add(name, plan)
    kinds = Counter(type(node.plan).__name__ for node in engine.graph.nodes)
    rows = pa.RecordBatch.from_pylist([row for _, row in ROWS], schema=COLUMNS)
    engine.push("s", rows, np.array([time for time, _ in ROWS]))
    engine.streams.end("s")
    return engine, kinds


def assert_answers(engine: Engine, plans: dict[str, Plan]) -> None:
    for name, plan in plans.items():
        assert_same_stream(engine.drain(name), oracle.stream(plan, {"s": ROWS}), schema=plan.schema)


def test_two_queries_with_different_columns_through_one_window_share_it() -> None:
    alone = plans_of(
        ["SELECT k, v FROM s [PARTITION BY k ROWS 2]", "SELECT t FROM s [PARTITION BY k ROWS 2]"]
    )
    assert run(alone)[1]["Window"] == 2
    engine, kinds = run(share(alone))
    assert kinds["Window"] == 1
    assert_answers(engine, alone)


@pytest.mark.parametrize("window", ["RANGE 9", "RANGE 9 SLIDE 3", "SESSION 5"])
def test_twenty_aggregates_over_one_window_and_key_are_one_node(window: str) -> None:
    functions = ["sum", "min", "max", "avg", "count"]
    calls = [f"{f}({c})" for f in functions for c in ("v", "w", "v + w", "w * 2")]
    alone = plans_of(f"SELECT k, {call} AS x FROM s [{window}] GROUP BY k" for call in calls)
    assert len(alone) == 20
    engine, kinds = run(share(alone))
    assert sum(count for kind, count in kinds.items() if "Aggregate" in kind) == 1
    assert kinds["Window"] <= 1
    assert_answers(engine, alone)


@pytest.mark.parametrize(
    "window", ["RANGE MIN {}, MAX {}", "RANGE MIN {}, MAX {} SLIDE 2", "ROWS MIN {}, MAX {}"]
)
def test_bounds_of_a_shared_window_are_intersected(window: str) -> None:
    texts = [f"SELECT k FROM s [{window.format(4, 8)}]", f"SELECT v FROM s [{window.format(2, 6)}]"]
    engine, kinds = run(share(plans_of(texts)))
    assert kinds["Window"] == 1
    (setting,) = engine.quality.settings()
    assert (setting.least, setting.most) == (4, 6)
    assert set(setting.queries) == {"q0", "q1"}


def test_windows_of_rows_that_slide_by_different_numbers_are_not_shared() -> None:
    """They were: both queries got the slide of the first."""
    alone = plans_of([f"SELECT sum({c}) AS x FROM s [ROWS 6 SLIDE {n}]" for c, n in (("v", 2), ("w", 3))])
    assert share(alone) == alone
    assert run(alone)[1]["Window"] == 2


def test_windows_whose_bounds_have_no_common_value_keep_their_own_columns() -> None:
    texts = ["SELECT k FROM s [RANGE MIN 7, MAX 9]", "SELECT v FROM s [RANGE MIN 2, MAX 6]"]
    alone = plans_of(texts)
    assert share(alone) == alone
    assert run(alone)[1]["Window"] == 2


def test_a_function_of_the_user_is_not_moved() -> None:
    register("loud", lambda v: v, "bigint")
    try:
        loud = Project(SOURCE, (("k", col("k")), ("x", fn("loud", col("v")))))
        quiet = Project(SOURCE, (("k", col("k")), ("x", col("v"))))
        plans: dict[str, Plan] = {
            name: IStream(Window(plan, Range(5))) for name, plan in (("loud", loud), ("quiet", quiet))
        }
        assert share(plans) == plans
    finally:
        del FUNCTIONS["loud"]


def test_a_join_of_a_stream_with_itself_is_changed_only_for_other_queries() -> None:
    text = "SELECT a.v, b.w FROM s [RANGE 5] AS a, s [RANGE 5] AS b WHERE a.k = b.k"
    alone = plans_of([text, "SELECT t FROM s [RANGE 5]"])
    assert share({"q0": alone["q0"]}) == {"q0": alone["q0"]}
    engine, kinds = run(share(alone))
    assert kinds["Window"] == 1
    assert_answers(engine, alone)


def test_rows_in_pieces_do_not_change_what_depends_on_their_start() -> None:
    """`last` of a group's counts: an aggregate with more calls would begin rows at other instants."""
    counted = Aggregate(Window(SOURCE, Range(5)), ("k",), (AggregateCall("n", "count"),))
    last = IStream(Aggregate(counted, (), (AggregateCall("last", "last", "n"),)))
    other = IStream(Aggregate(Window(SOURCE, Range(5)), ("k",), (AggregateCall("x", "sum", "v"),)))
    plans: dict[str, Plan] = {"last": last, "other": other}
    assert share(plans) == plans


def test_a_plan_that_runs_is_not_changed_by_a_new_query() -> None:
    running = share(plans_of(["SELECT k, sum(v) AS x FROM s [RANGE 9] GROUP BY k"]))
    new = {"new": plans_of(["SELECT k, max(w) AS x FROM s [RANGE 9] GROUP BY k"])["q0"]}
    assert share({**running, **new}, fixed=running) == {**running, **new}


def test_a_new_query_uses_an_aggregate_that_runs_already() -> None:
    texts = [
        f"SELECT k, {call} AS x FROM s [RANGE 9] GROUP BY k" for call in ("sum(v)", "max(w)", "count(*)")
    ]
    plans = plans_of(texts)
    running = share({name: plans[name] for name in ("q0", "q1")})
    again = {"again": plans_of(["SELECT k, max(w) AS most FROM s [RANGE 9] GROUP BY k"])["q0"]}
    after = share(again, fixed=running)
    (aggregate,) = [each for each in walk(running["q0"]) if isinstance(each, Aggregate)]
    assert aggregate in walk(after["again"])
    engine, kinds = run({**running, **after})
    assert kinds["Aggregate"] == 1
    assert_answers(engine, {"q0": plans["q0"], "q1": plans["q1"], **again})
    engine, kinds = run({**running, **share({"q2": plans["q2"]}, fixed=running)})
    assert (kinds["Window"], kinds["Aggregate"]) == (1, 2), "the window has all that count(*) needs"
    assert_answers(engine, plans)


def test_joins_with_a_table_are_shared_although_the_table_is_loaded_first() -> None:
    names = pa.table({"id": [0, 1], "name": ["zero", "one"]})
    table = TableDef("names", names.schema, names)
    texts = [f"SELECT {c}, n.name FROM s [NOW] AS s, names AS n WHERE s.k = n.id" for c in ("s.v", "s.w")]
    queries = {f"q{i}": query(text, [StreamDef("s", COLUMNS), table]) for i, text in enumerate(texts)}
    shared = share({name: each.plan for name, each in queries.items()})
    engine = Engine()
    for name, each in queries.items():
        engine.add(name, each.with_plan(shared[name]))
    assert Counter(type(node.plan).__name__ for node in engine.graph.nodes)["Join"] == 1


def late_and_answers(plans: dict[str, Plan], enforce: str) -> tuple[list[Any], dict[str, list[Any]]]:
    """The late rows and the answers of queries in one engine, over rows out of order."""
    engine = Engine()
    rules = Rules(disordered=True, enforce=enforce)
    engine.streams.declare(SOURCE, promise=DisorderPromise(4), rules=rules)
    for name, plan in plans.items():
        engine.add(name, plan)
    late: list[Any] = []
    answers: dict[str, list[Any]] = {name: [] for name in plans}
    rng = np.random.default_rng(5)
    for i in range(0, 300, 10):
        times = np.array([i + j - int(rng.integers(0, 9)) for j in range(10)])
        rows = [
            {"k": int(t % 3), "v": int(t * 7 % 5), "w": i + j, "t": "ab"[j % 2]} for j, t in enumerate(times)
        ]
        engine.push("s", pa.RecordBatch.from_pylist(rows, schema=COLUMNS), times)
        for name in plans:
            answers[name] += [_row(each, j) for each in engine.drain(name) for j in range(len(each))]
        late += [(each.times.tolist(), each.rows.to_pylist()) for each in engine.drain_late()]
    return late, {name: sorted(map(str, rows)) for name, rows in answers.items()}


def _row(batch: Batch, i: int) -> tuple[int, dict[str, Any]]:
    return int(batch.start[i]), batch.data.slice(i, 1).to_pylist()[0]


@pytest.mark.parametrize("enforce", ["strict", "admit"])
def test_out_of_order_and_late_rows_are_the_same(enforce: str) -> None:
    window = "s [RANGE 8 SLIDE 4]"
    alone = plans_of(
        [
            f"SELECT k, sum(v) AS x FROM {window} GROUP BY k",
            f"SELECT k, max(w) AS x, window_start FROM {window} GROUP BY k",
            f"SELECT k, count(*) AS n FROM {window} GROUP BY k HAVING count(*) > 1",
            f"SELECT k, w FROM {window}",
            f"SELECT t FROM {window}",
            "SELECT k, sum(v) AS x FROM s [SESSION 3] GROUP BY k",
            "SELECT k, max(w) AS x FROM s [SESSION 3] GROUP BY k",
        ]
    )
    shared = share(alone)
    late, answers = late_and_answers(shared, enforce)
    assert late
    assert late_and_answers(alone, enforce) == (late, answers)
    for name, plan in alone.items():
        assert answers[name]
        assert late_and_answers({name: plan}, enforce)[1][name] == answers[name]
