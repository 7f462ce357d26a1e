"""Queries change between two runs: what computes the same keeps its state, the rest begins or is refused."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import assume, event, given, note
from hypothesis import strategies as st

from headrace.engine import Engine, Rules, Snapshot
from headrace.engine.adopting import structure_in
from headrace.engine.snapshot import STRUCTURE
from headrace.errors import ExpressionError, GraphError, HeadraceError, PlanError
from headrace.expressions import col, lit
from headrace.flow.batch import Batch
from headrace.plan.analysis.check import check
from headrace.plan.nodes.core import Distinct, IStream, Plan, Project, Select, Window
from headrace.plan.nodes.windows import Range
from headrace.sql import StreamDef, TableDef, query
from headrace.state.part import encode
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.bounds import NEVER, Bounds
from headrace.time.ets import DisorderPromise, SkewPromise, TimerPromise
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.learned import CombinedHeartbeats
from headrace.time.skew import Pair, SkewMatrix
from headrace.time.timestamp import MIN_TIME
from tests.engine.driving import POLICIES, load_tables
from tests.engine.test_widening import as_in, make, narrowed
from tests.strategies.plans import Case, cases, sources_of
from tests.strategies.runs import STRATEGIES, Run, runs

# ------------------------------------------------------------------------------------------- random queries

Queries = dict[str, tuple[Plan, int]]


def build(case: Case, run: Run, queries: Queries, strategy: str | None = None) -> Engine:
    """An engine with some queries (plan and generation), whose sources vouch for the clock."""
    engine = Engine(
        strategy=strategy or f"{run.strategy}({run.k})", propagation=run.propagation, now=-(10**9)
    )
    for plan, _ in queries.values():
        for source in sorted(sources_of(plan), key=lambda s: s.name):
            engine.streams.declare(source, policy=POLICIES[run.ets], promise=TimerPromise(0))
    for name, (plan, since) in queries.items():
        engine.add(name, plan, since=since)
    load_tables(engine, case)
    return engine


def others(case: Case) -> dict[str, Plan]:
    """Queries that may come, go, or share operators with the query of the case."""
    source = min(sources_of(case.plan), key=lambda s: s.name, default=None)
    if source is None:
        return {"twin": case.plan}
    return {
        "twin": case.plan,
        "distinct": IStream(Distinct(Window(source, Range(5)))),
        "window": IStream(Window(source, Range(3))),
        "plain": source,
    }


def stopped(data: st.DataObject, engine: Engine, steps: list[tuple], names: list[str]) -> list[Snapshot]:  # type: ignore[type-arg]
    """Run some steps, with the answers of all queries taken; returns a chain of snapshots of the end."""
    chain: list[Snapshot] = []
    for step in steps:
        if data.draw(st.integers(0, 4)) == 0:
            chain.append(engine.snapshot(chain[-1].version if chain else None))
        make(engine, step)
        for name in names:
            engine.drain(name)
    for name in names:
        engine.drain(name)
    chain.append(engine.snapshot(chain[-1].version if chain else None))
    return [Snapshot.decode(each.encode()) for each in chain]


def finish(engine: Engine, steps: list[tuple], name: str) -> list[Batch]:  # type: ignore[type-arg]
    """Run the rest; returns the answers of a query."""
    answers: list[Batch] = []
    for step in steps:
        make(engine, step)
        answers += engine.drain(name)
    return answers + engine.drain(name)


def assert_same_rows(answers: list[Batch], expected: list[Batch], plan: Plan) -> None:
    """The same rows at the same times, in any order within an instant."""
    rows = [(b.start.tolist(), [tuple(row.values()) for row in b.data.to_pylist()]) for b in expected]
    stream = [(t, row) for times, tuples in rows for t, row in zip(times, tuples, strict=True)]
    assert_same_stream(answers, stream, schema=plan.schema)


@given(st.data())
def test_a_query_goes_on_whatever_happens_to_others(data: st.DataObject) -> None:
    """Law: other queries are added, removed, or come in another order; another strategy, or generation."""
    case = data.draw(cases())
    run = data.draw(runs(case))
    more = others(case)
    cut = data.draw(st.integers(0, len(run.steps)))
    extra = st.lists(st.sampled_from(sorted(more)), unique=True, max_size=2)
    before, after = (
        {name: (more[name], data.draw(st.integers(0, 1))) for name in data.draw(extra)} for _ in "ab"
    )
    before |= {"q": (case.plan, 0)}
    after |= {"q": (case.plan, data.draw(st.integers(0, 1)))}
    after = {name: after[name] for name in data.draw(st.permutations(sorted(after)))}
    note(f"before {list(before)}, after {list(after)}, cut {cut}")
    old = build(case, run, before)
    answers: list[Batch] = []
    chain: list[Snapshot] = []
    for step in run.steps[:cut]:
        if data.draw(st.integers(0, 4)) == 0:
            chain.append(old.snapshot(chain[-1].version if chain else None))
        make(old, step)
        answers += old.drain("q")
    chain.append(old.snapshot(chain[-1].version if chain else None))
    promised = {name: source.promised for name, source in old.graph.sources.items()}
    counts = {name: source.admission.rows_in for name, source in old.graph.sources.items()}
    new = build(case, run, after, data.draw(st.sampled_from(STRATEGIES)))
    adopted = new.adopt([Snapshot.decode(each.encode()) for each in chain])
    assert set(adopted.kept) == before.keys() & after.keys()
    assert set(adopted.begun) == after.keys() - before.keys()
    assert set(adopted.freed) == before.keys() - after.keys()
    for name, source in new.graph.sources.items():
        assert source.promised >= promised.get(name, MIN_TIME)
        assert source.admission.rows_in == counts.get(name, 0)
    for step in run.steps[cut:]:
        make(new, step)
        answers += new.drain("q")
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)


@given(st.data())
def test_a_new_query_covers_the_rows_that_come_after_it(data: st.DataObject) -> None:
    """Law: a query that begins, or is reset, is answered as by an engine that saw only the rest."""
    case = data.draw(cases())
    run = data.draw(runs(case))
    cut = data.draw(st.integers(0, len(run.steps)))
    old = build(case, run, {"q": (case.plan, 0)})
    chain = stopped(data, old, list(run.steps[:cut]), ["q"])
    reset = data.draw(st.booleans())
    name = "q" if reset else "new"
    event(f"reset: {reset}")
    queries: Queries = {name: (case.plan, 0)} | ({} if reset else {"q": (case.plan, 0)})
    new = build(case, run, queries)
    adopted = new.adopt(chain, reset=["q"] if reset else [])
    assert adopted.kept == (() if reset else ("q",))
    assert (adopted.reset if reset else adopted.begun) == (name,)
    answers = finish(new, list(run.steps[cut:]), name)
    rows = {stream: list[oracle.Element]() for stream in case.sources}
    for table in (t for t in case.sources if t not in new.graph.sources):
        rows[table] = list(case.sources[table])
    for step in run.steps[cut:]:
        if step[0] == "push":
            pairs = zip(step[2].start.tolist(), step[2].data.to_pylist(), strict=True)
            rows[step[1]] += [(int(t), row) for t, row in pairs]
    assert_same_stream(answers, oracle.stream(case.plan, rows), schema=case.plan.schema)


@given(st.data())
def test_filters_and_columns_above_the_state_may_change(data: st.DataObject) -> None:
    """Law: from the restart on, a query with another filter or other columns is answered as if it had run all
    the time."""
    case = data.draw(cases())
    run = data.draw(runs(case))
    cut = data.draw(st.integers(0, len(run.steps)))
    names = case.plan.schema.names
    kept = tuple(data.draw(st.permutations(names)))
    columns = (*((f"n_{name}", col(name)) for name in kept), ("more", lit(7, pa.int64())))
    changes: dict[str, Plan] = {
        "columns": Project(case.plan, columns),
        "filter": Select(case.plan, col(names[0]).is_not_null()),
        "both": Project(Select(case.plan, col(names[0]).is_not_null()), columns),
    }
    before, after = (data.draw(st.sampled_from(["plan", *changes])) for _ in "ab")
    plans = {"plan": case.plan} | changes
    whole = build(case, run, {"q": (plans[after], 0)})
    finish(whole, list(run.steps[:cut]), "q")
    expected = finish(whole, list(run.steps[cut:]), "q")
    old = build(case, run, {"q": (plans[before], 0)})
    chain = stopped(data, old, list(run.steps[:cut]), ["q"])
    new = build(case, run, {"q": (plans[after], 0)})
    assert new.adopt(chain).kept == ("q",)
    assert_same_rows(finish(new, list(run.steps[cut:]), "q"), expected, plans[after])


@given(st.data())
def test_adopted_state_goes_on_under_wider_columns(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = data.draw(runs(case))
    plan = narrowed(case.plan)
    try:
        check(plan)
    except (ExpressionError, PlanError):
        assume(False)
    assume(plan != case.plan)
    narrow = Case(plan, case.sources)
    cut = data.draw(st.integers(0, len(run.steps)))
    before, after = build(narrow, run, {"q": (plan, 0)}), build(case, run, {"q": (case.plan, 0)})
    answers = finish(before, list(run.steps[:cut]), "q")
    after.adopt(Snapshot.decode(before.snapshot().encode()))
    answers += finish(after, list(run.steps[cut:]), "q")
    schema = case.plan.schema
    wide = [replace(each, data=as_in(each.data, schema)) for each in answers]
    assert_same_stream(wide, oracle.stream(case.plan, case.sources), schema=schema)


@given(st.data())
def test_another_query_under_the_name_is_refused_and_nothing_changes(data: st.DataObject) -> None:
    """Law: if two plans differ in what they keep, the engine and the snapshot stay as they are."""
    case = data.draw(cases())
    run = data.draw(runs(case))
    other = data.draw(st.sampled_from(sorted(others(case))))
    plan = others(case)[other]
    old = build(case, run, {"q": (case.plan, 0)})
    chain = stopped(data, old, list(run.steps[: data.draw(st.integers(0, len(run.steps)))]), ["q"])
    written = [each.encode() for each in chain]
    new = build(case, run, {"q": (plan, 0)})
    before = new.snapshot().encode()
    new = build(case, run, {"q": (plan, 0)})
    refusal = refused(new, chain)
    event(refusal)
    if refusal:
        assert refusal in ("HR-G022", "HR-G024")
        assert new.snapshot().encode() == before
        assert new.version == 1
    assert [each.encode() for each in chain] == written


def refused(engine: Engine, chain: list[Snapshot]) -> str:
    """The code of the refusal to adopt a chain, or an empty string."""
    try:
        engine.adopt(chain)
    except GraphError as error:
        return error.code
    return ""


# ------------------------------------------------------------------------------------------- named changes

SCHEMA = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])


def streams(columns: pa.Schema = SCHEMA) -> list[StreamDef]:
    return [StreamDef(name, columns, ticks_per_second=1, time_column="at") for name in ("s", "r")]


def asked(text: str, columns: pa.Schema = SCHEMA, **promises: object) -> Engine:
    engine = Engine(now=-100)
    for each in streams(columns):
        engine.streams.declare(each.source, promise=promises.get(each.name, TimerPromise(0)))  # type: ignore[arg-type]
    engine.add("q", query(text, streams(columns)))
    return engine


def push(engine: Engine, begin: int, end: int) -> list[dict[str, object]]:
    """A row of each second into every stream; returns the answers."""
    answers: list[dict[str, object]] = []
    for t in range(begin, end):
        for name, source in engine.graph.sources.items():
            row = {"at": t, "k": t % 3, "v": (7 * t) % 10 if name == "s" else (3 * t) % 10, "more": "x"}
            rows = pa.RecordBatch.from_pylist([row], schema=source.schema)
            engine.push(name, rows, [t])
        engine.advance(t)
        answers += [row for batch in engine.drain("q") for row in batch.data.to_pylist()]
    return answers


GROUPED = "SELECT k, max(v) AS m FROM s [RANGE 9 SECONDS] GROUP BY k"
ADAPTABLE = "SELECT k, max(v) AS m FROM s [RANGE MIN {} SECONDS, MAX {} SECONDS] GROUP BY k"
JOINED = "SELECT s.k, r.v AS x FROM s [RANGE 9 SECONDS], r [RANGE 5 SECONDS] WHERE s.k = r.k"
KEPT: dict[str, tuple[str, str]] = {
    "having": (GROUPED, GROUPED + " HAVING max(v) > 3"),
    "another having": (GROUPED + " HAVING max(v) > 3", GROUPED + " HAVING max(v) > 5 AND max(v) < 9"),
    "renamed": (GROUPED, GROUPED.replace("AS m", "AS most")),
    "computed": (GROUPED, GROUPED.replace("max(v) AS m", "max(v) AS m, max(v) * 2 AS twice, k + 1 AS l")),
    "fewer": (GROUPED, GROUPED.replace("SELECT k, ", "SELECT ")),
    "renamed join": (JOINED, JOINED.replace("AS x", "AS y")),
    "sliding": (
        "SELECT k, sum(v) AS n FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k",
        "SELECT sum(v) + 1 AS n, k FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k HAVING sum(v) > 9",
    ),
    "sessions": (
        "SELECT k, count(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k",
        "SELECT count(*) AS n, window_end FROM s [SESSION 2 SECONDS] GROUP BY k",
    ),
    "distinct above": (
        "SELECT DISTINCT k FROM s [RANGE 2 SECONDS]",
        "SELECT DISTINCT k AS l FROM s [RANGE 2 SECONDS]",
    ),
    "quality bounds": (
        "SELECT k, max(v) AS m FROM s [RANGE MIN 2 SECONDS, MAX 9 SECONDS] GROUP BY k",
        "SELECT k, max(v) AS m FROM s [RANGE MIN 4 SECONDS, MAX 9 SECONDS] GROUP BY k",
    ),
}


@pytest.mark.parametrize("change", KEPT)
def test_a_changed_query_keeps_its_state(change: str) -> None:
    before, after = KEPT[change]
    whole = asked(after)
    push(whole, 0, 20)
    expected = push(whole, 20, 40)
    old, new = asked(before), asked(after)
    push(old, 0, 20)
    assert new.adopt(old.snapshot()).kept == ("q",)
    assert push(new, 20, 40) == expected
    assert expected


REFUSED: dict[str, tuple[str, str, str]] = {
    "window": (GROUPED, GROUPED.replace("9 SECONDS", "8 SECONDS"), "RANGE 8 SECONDS"),
    "key": (GROUPED, "SELECT v, max(k) AS m FROM s [RANGE 9 SECONDS] GROUP BY v", "by v"),
    "filter below": (GROUPED, GROUPED.replace(" GROUP", " WHERE v > 3 GROUP"), "now: select v > 3"),
    "another aggregate": (GROUPED, GROUPED.replace("max(v) AS m", "max(v) AS m, min(v) AS n"), "min(v)"),
    "state above": (GROUPED, f"SELECT DISTINCT m FROM ({GROUPED})", "distinct on s"),
    "another stream": (GROUPED, GROUPED.replace("FROM s", "FROM r"), "on r"),
}


@pytest.mark.parametrize("change", REFUSED)
def test_state_that_cannot_serve_is_refused_with_the_choices(change: str) -> None:
    before, after, said = REFUSED[change]
    old, new = asked(before), asked(after)
    push(old, 0, 10)
    snapshot = old.snapshot()
    with pytest.raises(GraphError) as caught:
        new.adopt(snapshot)
    error = caught.value
    assert error.code == "HR-G022"
    assert error.place == "q"
    assert said in error.message
    assert "--reset q" in error.hint
    assert new.adopt(snapshot, reset=["q"]).reset == ("q",)
    fresh = asked(after)
    fresh.advance(9)
    assert push(new, 10, 20) == push(fresh, 10, 20)


def test_a_narrower_column_is_refused_by_name() -> None:
    narrow = pa.schema([("at", pa.int64()), ("k", pa.int64()), ("v", pa.int32())])
    old = asked(GROUPED)
    push(old, 0, 5)
    with pytest.raises(GraphError, match="column v was int64 and is int32 now") as caught:
        asked(GROUPED, narrow).adopt(old.snapshot())
    assert caught.value.code == "HR-G022"


def test_a_stream_may_get_more_columns() -> None:
    more = pa.schema([("more", pa.string()), *SCHEMA])
    for text in (GROUPED, "SELECT k, count(*) AS n FROM s [SESSION 2 SECONDS] GROUP BY k"):
        whole, old, new = asked(text, more), asked(text), asked(text, more)
        push(whole, 0, 10)
        push(old, 0, 10)
        assert new.adopt(old.snapshot()).kept == ("q",)
        assert push(new, 10, 30) == push(whole, 10, 30) != []


@pytest.mark.parametrize("promise", [TimerPromise(3), DisorderPromise(2), SkewPromise(1)], ids=repr)
def test_another_promise_keeps_what_was_promised(promise: object) -> None:
    old = asked(GROUPED, s=TimerPromise(0))
    push(old, 0, 10)
    new = asked(GROUPED, s=promise)
    new.adopt(old.snapshot())
    source = new.graph.sources["s"]
    assert source.promised == old.graph.sources["s"].promised
    before = source.promised
    push(new, 10, 30)
    assert source.promised > before
    assert source.admission.rows_in == 30


def bounded(text: str, s: int, r: int, enforce: str) -> Engine:
    """An engine whose streams may be this far out of order."""
    engine = Engine(now=-100)
    entries = {("s", "s"): [Pair(0, s + 1)], ("r", "r"): [Pair(0, r + 1)]}
    generator = HeartbeatGenerator(Bounds.of(SkewMatrix.of(["s", "r"], entries), 0, NEVER))
    rules = {each.source: Rules(disordered=True, enforce=enforce) for each in streams()}
    engine.streams.manage(CombinedHeartbeats(["s", "r"], [generator]), rules)
    for name in ("s", "r"):
        engine.add(name, query(text.replace("FROM s", f"FROM {name}"), streams()))
    return engine


Arrivals = list[tuple[int, str, int]]


def arrive(engine: Engine, arrivals: Arrivals) -> dict[str, list[str]]:
    """Push rows at their instants; returns the answers and the late rows, by stream."""
    found: dict[str, list[str]] = {"s": [], "r": []}
    for now, name, t in arrivals:
        rows = pa.RecordBatch.from_pylist([{"at": t, "k": t % 3, "v": (7 * t) % 10}], schema=SCHEMA)
        before = {each: source.promised for each, source in engine.graph.sources.items()}
        engine.push(name, rows, [t], now=now)
        engine.advance(now)
        for each in found:
            found[each] += [repr(row) for batch in engine.drain(each) for row in batch.data.to_pylist()]
        for late in engine.drain_late():
            found[late.stream] += [f"late {row}" for row in late.rows.to_pylist()]
        for each, source in engine.graph.sources.items():
            assert source.promised >= before[each]
            admission = source.admission
            assert admission.rows_in == source.arc.rows_in + admission.rows_late + admission.rows_rejected
    return found


TEXTS = (
    "SELECT k, sum(v) AS n FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    GROUPED,
    "SELECT k, v FROM s",
)


@given(
    st.sampled_from(TEXTS),
    st.sampled_from(["strict", "admit"]),
    st.tuples(*[st.integers(0, 6)] * 3),
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("sr"), st.integers(-5, 3)), max_size=40),
    st.integers(0, 40),
)
def test_late_rows_are_judged_as_before_and_each_row_is_accounted_for(
    text: str, enforce: str, bounds: tuple[int, int, int], steps: Arrivals, cut: int
) -> None:
    """Law: if the bounds of one stream change, the other goes on exactly, and no heartbeat goes back."""
    arrivals: Arrivals = []
    for step, name, lag in steps:
        now = (arrivals[-1][0] if arrivals else 0) + step
        arrivals.append((now, name, now + lag))
    before, after, other = bounds
    whole = bounded(text, before, other, enforce)
    arrive(whole, arrivals[:cut])
    expected = arrive(whole, arrivals[cut:])
    old, new = bounded(text, before, other, enforce), bounded(text, after, other, enforce)
    arrive(old, arrivals[:cut])
    promised = {name: source.promised for name, source in old.graph.sources.items()}
    new.adopt(Snapshot.decode(old.snapshot().encode()))
    assert promised == {name: source.promised for name, source in new.graph.sources.items()}
    found = arrive(new, arrivals[cut:])
    assert found["r"] == expected["r"]
    if before == after:
        assert found["s"] == expected["s"]
    event("rows of the rest" if expected["r"] else "none")


def test_queries_of_one_generation_share_again_after_a_restart() -> None:
    def engine() -> Engine:
        made = asked(GROUPED)
        made.add("half", query(GROUPED + " HAVING max(v) > 4", streams()))
        return made

    old = engine()
    push(old, 0, 10)
    old.add("late", query(GROUPED, streams()), since=1)
    push(old, 10, 20)
    old.drain_all()
    new = engine()
    new.add("late", query(GROUPED, streams()), since=1)
    adopted = new.adopt(old.snapshot())
    assert adopted.kept == ("q", "half", "late")
    assert adopted.since == {"q": 0, "half": 0, "late": 1}
    assert new.structure == old.structure
    assert len(new.graph.nodes) == len(old.graph.nodes)
    assert push(new, 20, 30) == push(old, 20, 30)
    assert [b.data.to_pylist() for b in new.drain("late")] == [b.data.to_pylist() for b in old.drain("late")]


def test_queries_that_share_a_window_within_different_bounds_share_it_after_a_restart() -> None:
    """They came apart although nothing had changed, and each could be resized beyond the other's bounds."""

    def engine() -> Engine:
        made = asked(ADAPTABLE.format(1, 5))
        made.add("other", query(ADAPTABLE.format(2, 6), streams()))
        return made

    old = engine()
    push(old, 0, 10)
    old.drain_all()
    new = engine()
    adopted = new.adopt(old.snapshot())
    assert adopted.kept == ("q", "other")
    assert adopted.since == {"q": 0, "other": 0}
    assert new.structure == old.structure
    for each in (old, new):
        (window,) = (node.plan for node in each.graph.nodes if isinstance(node.plan, Window))
        for beyond in (1, 6):
            with pytest.raises(HeadraceError) as error:
                each.quality.resize(window, beyond, query="q")
            assert error.value.code == "HR-G016"
        each.quality.resize(window, 3, query="q")
    assert push(new, 10, 20) == push(old, 10, 20)
    assert [b.data.to_pylist() for b in new.drain("other")] == [
        b.data.to_pylist() for b in old.drain("other")
    ]


def test_windows_of_one_query_that_differ_in_bounds_alone_keep_their_own_rows() -> None:
    text = (
        "SELECT x.v AS a, y.v AS b FROM s [RANGE MIN 2 SECONDS, MAX 6 SECONDS] AS x, "
        "s [RANGE MIN 1 SECOND, MAX 5 SECONDS] AS y WHERE x.k = y.k"
    )

    def engine() -> Engine:
        made = asked(ADAPTABLE.format(1, 5))
        made.add("pairs", query(text, streams()))
        return made

    old = engine()
    push(old, 0, 10)
    old.drain_all()
    new = engine()
    new.adopt(old.snapshot())
    assert new.structure == old.structure
    assert push(new, 10, 20) == push(old, 10, 20)
    pairs = [[row for batch in each.drain("pairs") for row in batch.data.to_pylist()] for each in (new, old)]
    assert pairs[0] == pairs[1]


def test_a_query_that_was_added_later_without_a_generation_keeps_its_own_rows() -> None:
    old = asked(GROUPED)
    push(old, 0, 10)
    old.add("late", query(GROUPED, streams()))
    push(old, 10, 15)
    old.drain_all()
    new = asked(GROUPED)
    new.add("late", query(GROUPED, streams()))
    adopted = new.adopt(old.snapshot())
    assert adopted.since["late"] != adopted.since["q"]
    assert push(new, 15, 30) == push(old, 15, 30)
    assert [b.data.to_pylist() for b in new.drain("late")] == [b.data.to_pylist() for b in old.drain("late")]


def test_joins_keep_the_order_they_were_put_into() -> None:
    text = (
        "SELECT a.k, b.v AS x, c.v AS y FROM s [RANGE 9 SECONDS] AS a, r [RANGE 7 SECONDS] AS b, "
        "s [RANGE 5 SECONDS] AS c WHERE a.k = b.k AND b.k = c.k"
    )
    whole, old, new = asked(text), asked(text), asked(text.replace("AS y", "AS z"))
    assert push(whole, 0, 12) == push(old, 0, 12)
    assert old.optimizer.reoptimize("q", [2, 1, 0]) is not None
    assert new.adopt(old.snapshot()).kept == ("q",)
    assert new.optimizer.joins().keys() == {"q"}
    rest = [{**row, "z": row["y"]} for row in push(whole, 12, 30)]
    for row in rest:
        del row["y"]
    found = push(new, 12, 30)
    assert sorted(map(repr, found)) == sorted(
        map(repr, [{"k": r["k"], "x": r["x"], "z": r["z"]} for r in rest])
    )


def test_a_chain_in_which_joins_changed_their_order_is_adopted() -> None:
    text = (
        "SELECT a.k, b.v AS x, c.v AS y FROM s [RANGE 9 SECONDS] AS a, r [RANGE 7 SECONDS] AS b, "
        "s [RANGE 5 SECONDS] AS c WHERE a.k = b.k AND b.k = c.k"
    )
    whole, old, new = asked(text), asked(text), asked(text)
    assert push(whole, 0, 10) == push(old, 0, 10)
    chain = [old.snapshot()]
    assert push(whole, 10, 14) == push(old, 10, 14)
    chain.append(old.snapshot(1))
    assert old.optimizer.reoptimize("q", [2, 1, 0]) is not None
    assert old.needs_full_snapshot
    push(whole, 14, 16)
    push(old, 14, 16)
    chain.append(old.snapshot(2))
    push(whole, 16, 18)
    push(old, 16, 18)
    chain.append(old.snapshot(3))
    assert [STRUCTURE in each.chunks for each in chain] == [True, False, True, False]
    assert new.adopt(Snapshot.decode(each.encode()) for each in chain).kept == ("q",)
    assert new.structure == old.structure
    assert sorted(map(repr, push(new, 18, 30))) == sorted(map(repr, push(whole, 18, 30))) != []


def test_an_increment_is_refused_after_the_queries_changed_and_a_full_one_is_not() -> None:
    engine = asked(GROUPED)
    push(engine, 0, 5)
    engine.snapshot()
    digest = engine.structure
    engine.add("other", query(GROUPED, streams()), since=1)
    assert engine.structure != digest
    with pytest.raises(GraphError, match="the queries are not those of version 1") as caught:
        engine.snapshot(1)
    assert caught.value.code == "HR-G004"
    assert engine.snapshot().since is None
    assert engine.snapshot(2).since == 2


def test_a_newer_format_is_refused() -> None:
    old = asked(GROUPED)
    snapshot = old.snapshot()
    snapshot.chunks[STRUCTURE] = encode({"format": 99, "structure": "{}"})
    for restore in (asked(GROUPED).restore, asked(GROUPED).adopt):
        with pytest.raises(GraphError, match="format 99") as caught:
            restore(snapshot)
        assert caught.value.code == "HR-G023"


def test_rows_on_their_way_are_not_lost_silently() -> None:
    old = asked(GROUPED)
    for t in range(5):
        rows = pa.RecordBatch.from_pylist([{"at": t, "k": 1, "v": t}], schema=SCHEMA)
        old.push("s", rows, [t])
        old.advance(t)
    with pytest.raises(GraphError) as caught:
        asked(KEPT["computed"][1]).adopt(old.snapshot())
    assert caught.value.code == "HR-G024"


def test_the_structure_says_what_each_node_is() -> None:
    snapshot = asked(GROUPED).snapshot()
    structure = structure_in([snapshot])
    assert structure is not None
    labels = [entry.label for entry in structure.nodes.values()]
    assert "window [RANGE 9 SECONDS] on s" in labels
    assert "aggregate max(v) AS max by k on s" in labels
    assert structure.queries["q"].since == 0


def test_a_reset_of_an_unknown_query_is_refused() -> None:
    old = asked(GROUPED)
    with pytest.raises(HeadraceError, match="no such query"):
        asked(GROUPED).adopt(old.snapshot(), reset=["x"])


# ------------------------------------------------------------------------------------------------- tables

NAMES = pa.schema([("id", pa.int64()), ("name", pa.string())])


def named(*names: str) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "name": name} for i, name in enumerate(names)], schema=NAMES)


def with_table(text: str, rows: pa.Table) -> Engine:
    engine = Engine(now=-100)
    for each in streams():
        engine.streams.declare(each.source, promise=TimerPromise(0))
    engine.add("q", query(text, [*streams(), TableDef("names", NAMES, rows)]))
    return engine


LOOKUP = "SELECT s.v, n.name FROM s [RANGE 4 SECONDS], names AS n WHERE s.k = n.id AND n.name <> 'none'"


def test_a_reloaded_table_is_joined_with_the_rows_that_come_later() -> None:
    before, after = named("a", "b", "c"), named("a", "x", "none", "y")
    engine, old, new = (with_table(LOOKUP, rows) for rows in (before, before, after))
    assert push(engine, 0, 10) == push(old, 0, 10) != []
    push(new, 0, 10)
    engine.reload("names", after)
    assert engine.needs_full_snapshot
    assert push(engine, 10, 20) == push(new, 10, 20) != push(old, 10, 20)
    restored = with_table(LOOKUP, after)
    assert restored.adopt(engine.snapshot()).kept == ("q",)
    assert push(restored, 20, 30) == push(engine, 20, 30) == push(new, 20, 30)


def test_a_table_with_the_same_rows_is_not_reloaded() -> None:
    engine = with_table(LOOKUP, named("a", "b", "c"))
    engine.snapshot()
    engine.reload("names", named("a", "b", "c"))
    assert not engine.needs_full_snapshot


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT g.m, n.name FROM ({GROUPED}) AS g, names AS n WHERE g.k = n.id",
        "SELECT s.v, n.c FROM s [RANGE 4 SECONDS], (SELECT count(*) AS c FROM names GROUP BY name) AS n",
    ],
)
def test_a_table_that_cannot_be_reloaded_exactly_is_refused(text: str) -> None:
    engine = with_table(text, named("a", "b", "c"))
    whole = with_table(text, named("a", "b", "c"))
    assert push(engine, 0, 5) == push(whole, 0, 5)
    with pytest.raises(GraphError) as caught:
        engine.reload("names", named("x"))
    assert caught.value.code == "HR-G025"
    assert push(engine, 5, 9) == push(whole, 5, 9)
