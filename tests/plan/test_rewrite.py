"""Each rewrite rule: what it makes of a plan, and where it must not touch one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace import Engine, query
from headrace.expressions import FUNCTIONS, Expression, col, fn, lit, register
from headrace.plan.analysis.ordering import Disorder, Order, place_orders
from headrace.plan.nodes.core import (
    Aggregate,
    AggregateCall,
    Distinct,
    DStream,
    Except,
    Granularity,
    IStream,
    Join,
    Plan,
    Project,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Table,
    Union,
    Window,
)
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.plan.nodes.session import SessionAggregate
from headrace.plan.nodes.top_n import TopN, ascending
from headrace.plan.nodes.trees import walk as nodes_of
from headrace.plan.nodes.windows import Now, Range, Rows, Sliding, Unbounded
from headrace.plan.rewrite import RULES, optimize, trace

S = Source("s", pa.schema([("k", pa.int64()), ("v", pa.float64()), ("t", pa.string())]))
R = Source("r", pa.schema([("j", pa.int64()), ("w", pa.float64())]))
BY_NAME = {rule.name: rule for rule in RULES}

K, V, T, J, W = (col(name) for name in "kvtjw")
HOUR = Range(60)
SUM = AggregateCall("total", "sum", "v")
LAST = AggregateCall("last", "last", "t")


def columns(*names: str, **made: Expression) -> tuple[tuple[str, Expression], ...]:
    return (*((name, col(name)) for name in names), *made.items())


def kept(plan: Plan, *names: str) -> Plan:
    return Project(plan, columns(*names))


def window(plan: Plan = S, spec: object = HOUR) -> Window:
    return Window(plan, spec)  # type: ignore[arg-type]


def outer(
    kind: JoinKind, left: Plan | None = None, right: Plan | None = None, residual: Expression | None = None
) -> OuterJoin:
    return OuterJoin(left or window(), right or window(R), ("k",), ("j",), residual, kind=kind)


ON = Join(window(), window(R), ("k",), ("j",))
A, B, C = (
    window(Source(n, pa.schema([(n, pa.int64())])), Range(size)) for n, size in (("a", 9), ("b", 5), ("c", 1))
)
A_B_C = Join(Join(A, B, ("a",), ("b",)), C, ("b",), ("c",))
CROSSED = Join(Join(A, C), B, ("a", "c"), ("b", "b"))

FIXTURES: list[tuple[str, Plan, Plan]] = [
    ("merge selections", Select(Select(S, K > 1), V > 2.0), Select(S, (K > 1) & (V > 2.0))),
    (
        "selection below projection",
        Select(Project(window(), columns("v", x=K + 1)), (col("x") > 5) & (V > 0.0)),
        Project(Select(window(), (K + 1 > 5) & (V > 0.0)), columns("v", x=K + 1)),
    ),
    (
        "selection below union",
        Select(Union((kept(S, "k"), kept(R, "j"))), K > 1),
        Union((Select(kept(S, "k"), K > 1), Select(kept(R, "j"), J > 1))),
    ),
    *(
        ("selection below window", Select(window(S, spec), V > 1.0), window(Select(S, V > 1.0), spec))
        for spec in (HOUR, Sliding(4, 2), Now(), Unbounded())
    ),
    (
        "selection below window",
        Select(window(S, Rows(3, ("k", "t"))), (K > 1) & (V > 2.0)),
        Select(window(Select(S, K > 1), Rows(3, ("k", "t"))), V > 2.0),
    ),
    (
        "selection below granularity",
        Select(Granularity(window(), 5), V > 1.0),
        Granularity(Select(window(), V > 1.0), 5),
    ),
    ("selection below distinct", Select(Distinct(window()), V > 1.0), Distinct(Select(window(), V > 1.0))),
    (
        "selection below except",
        Select(Except(kept(window(), "k"), kept(window(R), "j"), all=True), K > 1),
        Except(Select(kept(window(), "k"), K > 1), Select(kept(window(R), "j"), J > 1), all=True),
    ),
    (
        "selection below aggregate",
        Select(Aggregate(window(), ("k", "t"), (SUM,)), (K > 1) & (col("total") > 5.0)),
        Select(Aggregate(Select(window(), K > 1), ("k", "t"), (SUM,)), col("total") > 5.0),
    ),
    (
        "selection below aggregate",
        Select(SlidingAggregate(S, ("k",), (SUM,), Sliding(4, 2)), K > 1),
        SlidingAggregate(Select(S, K > 1), ("k",), (SUM,), Sliding(4, 2)),
    ),
    (
        "selection below aggregate",
        Select(SessionAggregate(S, ("k", "t"), (SUM,), 5, partition=("k",)), (K > 1) & T.eq("x")),
        Select(SessionAggregate(Select(S, K > 1), ("k", "t"), (SUM,), 5, partition=("k",)), T.eq("x")),
    ),
    (
        "selection below aggregate",
        Select(TopN(window(), ("k",), (ascending("v"),), 3, "n"), (K > 1) & (col("n") < 3)),
        Select(TopN(Select(window(), K > 1), ("k",), (ascending("v"),), 3, "n"), col("n") < 3),
    ),
    *(
        ("selection below stream", Select(make(window()), K > 1), make(Select(window(), K > 1)))
        for make in (IStream, DStream, RStream)
    ),
    (
        "selection into join",
        Select(Join(window(), window(R)), K.eq(J) & (V > 1.0) & (V < W) & (W > 2.0)),
        Join(Select(window(), V > 1.0), Select(window(R), W > 2.0), ("k",), ("j",), V < W),
    ),
    (
        "selection into join",
        Select(ON, K > 1),
        Join(Select(window(), K > 1), Select(window(R), J > 1), ("k",), ("j",)),
    ),
    (
        "conditions below join",
        Join(window(), window(R), ("k",), ("j",), (V < W) & (W > 2.0)),
        Join(window(), Select(window(R), W > 2.0), ("k",), ("j",), V < W),
    ),
    *(
        (
            "selection below outer join",
            Select(outer(kind), (K > 1) & (V > 1.0)),
            outer(kind, Select(window(), (K > 1) & (V > 1.0))),
        )
        for kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
    ),
    (
        "selection below outer join",
        Select(outer(JoinKind.LEFT), (V > 1.0) & (W > 2.0)),
        Select(outer(JoinKind.LEFT, Select(window(), V > 1.0)), W > 2.0),
    ),
    *(
        (
            "conditions below outer join",
            outer(kind, residual=(V < W) & (W > 2.0)),
            outer(kind, right=Select(window(R), W > 2.0), residual=V < W),
        )
        for kind in (JoinKind.LEFT, JoinKind.SEMI, JoinKind.ANTI)
    ),
    (
        "conditions below outer join",
        outer(JoinKind.SEMI, residual=V > 1.0),
        outer(JoinKind.SEMI, Select(window(), V > 1.0)),
    ),
    ("remove projection", kept(S, "k", "v", "t"), S),
    (
        "merge projections",
        Project(Project(S, columns("k", x=V + 1.0)), columns(y=col("x") * 2.0, z=K)),
        Project(S, columns(y=(V + 1.0) * 2.0, z=K)),
    ),
    ("projection below window", kept(window(), "k"), window(kept(S, "k"))),
    (
        "projection below window",
        Project(window(S, Rows(3, ("k",))), columns(key=K, double=V * 2.0)),
        window(Project(S, columns(key=K, double=V * 2.0)), Rows(3, ("key",))),
    ),
    (
        "projection below union",
        Project(Union((kept(S, "k"), kept(R, "j"))), columns(x=K + 1)),
        Union((Project(kept(S, "k"), columns(x=K + 1)), Project(kept(R, "j"), columns(x=J + 1)))),
    ),
    ("projection below stream", kept(RStream(window(), 2), "k"), RStream(kept(window(), "k"), 2)),
    ("projection below stream", kept(Granularity(window(), 2), "k"), Granularity(kept(window(), "k"), 2)),
    (
        "panes",
        Aggregate(window(S, Sliding(4, 2)), ("k",), (SUM, LAST)),
        SlidingAggregate(S, ("k",), (SUM, LAST), Sliding(4, 2)),
    ),
    (
        "report once",
        RStream(SlidingAggregate(S, ("k",), (SUM,), Sliding(4, 2)), 2),
        RStream(SlidingAggregate(S, ("k",), (SUM,), Sliding(4, 2)), 2, once=True),
    ),
    ("nothing to remember", IStream(window(S, Unbounded())), IStream(window(S, Unbounded()), nets=False)),
    (
        "order joins",
        IStream(A_B_C),
        IStream(kept(Join(Join(C, B, ("c",), ("b",)), A, ("b",), ("a",)), "a", "b", "c")),
    ),
    (
        "order joins",
        IStream(CROSSED),
        IStream(kept(Join(Join(C, B, ("c",), ("b",)), A, ("b",), ("a",)), "a", "c", "b")),
    ),
    (
        "prune columns",
        IStream(kept(Join(window(), window(R), ("k",), ("j",), lit(3.0) > V), "w")),
        IStream(kept(Join(window(kept(S, "k", "v")), window(R), ("k",), ("j",), lit(3.0) > V), "w")),
    ),
    (
        "prune columns",
        IStream(kept(Aggregate(window(), ("k",), (SUM, LAST)), "k", "total")),
        IStream(kept(Aggregate(window(kept(S, "k", "v")), ("k",), (SUM,)), "k", "total")),
    ),
    (
        "prune columns",
        IStream(kept(Join(window(), Table("d", R.columns), ("k",), ("j",)), "k")),
        IStream(kept(Join(window(kept(S, "k")), kept(Table("d", R.columns), "j"), ("k",), ("j",)), "k")),
    ),
    (
        "prune columns",
        IStream(kept(Union((window(kept(S, "k", "v")), window(R))), "v")),
        IStream(kept(Union((window(kept(S, "v")), window(kept(R, "w")))), "v")),
    ),
]


def _ids(fixtures: list[tuple[str, Plan, Plan]]) -> list[str]:
    return [f"{name}-{i}" for i, (name, _, _) in enumerate(fixtures)]


@pytest.mark.parametrize(("name", "before", "after"), FIXTURES, ids=_ids(FIXTURES))
def test_a_rule_makes_of_a_plan(name: str, before: Plan, after: Plan) -> None:
    assert optimize(before, (BY_NAME[name],)) == after
    assert after.schema.equals(before.schema)


def test_every_rule_has_a_fixture() -> None:
    assert {name for name, _, _ in FIXTURES} == BY_NAME.keys()


MIXED = Union((kept(S, "k", "t"), Project(S, columns("k", t=T))))
UNTOUCHED: dict[str, Plan] = {
    "a condition on rows that are counted": Select(window(S, Rows(3)), K > 1),
    "a condition on what is no partition": Select(window(S, Rows(3, ("k",))), V > 1.0),
    "a condition on an aggregate": Select(Aggregate(window(), ("k",), (SUM,)), col("total") > 1.0),
    "a condition on one of the groups that share a session": Select(
        SessionAggregate(S, ("k",), (SUM,), 5, partition=()), K > 1
    ),
    "the text of a float, where zeros are one group": Select(
        Aggregate(window(kept(S, "v")), ("v",), (AggregateCall("n", "count"),)), V.cast("string").eq("0.0")
    ),
    "a projection of changes": kept(IStream(window()), "k"),
    "a projection of distinct rows": kept(Distinct(window()), "k"),
    "rows counted in order of content": kept(window(MIXED, Rows(3)), "k"),
    "panes whose first row goes by content": Aggregate(window(MIXED, Sliding(4, 2)), ("k",), (LAST,)),
    "what would be computed twice": Project(
        Project(S, columns(x=K * 2)), columns(y=col("x") + 1, z=col("x") - 1)
    ),
    "a condition on a side that may be null": Select(outer(JoinKind.LEFT), W > 1.0),
    "a condition above a full join": Select(outer(JoinKind.FULL), V > 1.0),
    "a condition of ON on rows that are kept": outer(JoinKind.LEFT, residual=V > 1.0),
    "a condition of a full join": outer(JoinKind.FULL, residual=W > 1.0),
    "joins in a good order": Join(Join(C, B, ("c",), ("b",)), A, ("b",), ("a",)),
    "a bushy tree that keys connect": Join(
        A, Project(Join(B, C, ("b",), ("c",)), columns("b", "c")), ("a",), ("b",)
    ),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_a_plan_is_left_alone(name: str) -> None:
    plan = UNTOUCHED[name]
    rules = [
        r for r in RULES if r.name not in ("prune columns", "projection below union", "remove projection")
    ]
    assert optimize(plan, rules) == plan


def test_a_function_of_the_user_stays_where_it_was_written() -> None:
    register("loud", lambda v: v, "boolean")
    try:
        loud = fn("loud", V > 1.0)
        for plan in (Select(window(), loud), Select(Select(S, K > 1), loud), Select(ON, loud)):
            assert trace(plan) == ()
        mixed = optimize(Select(ON, loud & (V > 1.0)))
        assert isinstance(mixed, Select)
        assert mixed.predicate == loud
    finally:
        del FUNCTIONS["loud"]


def test_selections_and_projections_end_below_the_input_manager() -> None:
    plan = optimize(IStream(Project(Select(window(), V > 1.0), columns("k"))))
    ordered = place_orders(plan, Disorder(frozenset({"s"})))
    (order,) = [each for each in nodes_of(ordered) if isinstance(each, Order)]
    assert order == Order(kept(Select(kept(S, "k", "v"), V > 1.0), "k"))


def test_a_query_keeps_what_was_written_and_runs_what_was_made_of_it() -> None:
    text = "SELECT s.k FROM s [RANGE 5], r [RANGE 5] WHERE s.k = r.j AND s.k > 3 AND s.v < r.w"
    found = query(text, {"s": S.columns, "r": R.columns}, ticks_per_second=None)
    (top,) = [each for each in nodes_of(found.logical) if isinstance(each, Select)]
    assert isinstance(top.input, Join)
    assert [str(each.predicate) for each in nodes_of(found.plan) if isinstance(each, Select)] == [
        "k > 3",
        "j > 3",
    ]
    assert found.plan == optimize(found.logical)
    assert "selection into join" in {each.rule for each in found.rewrites}
    assert all(": " in str(each) for each in found.rewrites)
    assert found.schema.equals(found.plan.schema)


def test_queries_that_need_the_same_of_a_stream_share_it() -> None:
    streams = {"s": S.columns}
    one = "SELECT k, sum(v) AS x FROM s [RANGE 5 SECONDS] WHERE v > 1 GROUP BY k"
    other = "SELECT k, max(v) AS x FROM s [RANGE 5 SECONDS] WHERE v > 1 GROUP BY k"
    engine = Engine()
    engine.add("one", query(one, streams).plan)
    before = len(engine.metrics().nodes)
    engine.add("other", query(other, streams).plan)
    assert len(engine.metrics().nodes) - before == len(["aggregate", "project", "istream"])
