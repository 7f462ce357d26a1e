"""A table that changes: from an instant on it has other rows, and every answer is that of the oracle."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from headrace.engine import Engine
from headrace.errors import PlanError
from headrace.flow.batch import Batch
from headrace.sql import TableDef, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import TimerPromise
from headrace.time.timestamp import BEGINNING
from tests.engine.test_evolution import NAMES, SCHEMA, named, push, streams

TEXTS = [
    "SELECT s.at, n.name FROM s [NOW], names AS n WHERE s.k = n.id",
    "SELECT s.at, n.name FROM s [RANGE 4 SECONDS], names AS n WHERE s.k = n.id AND n.name <> 'b'",
    "SELECT n.name, count(*) AS c, min(s.v) AS low FROM s [RANGE 5 SECONDS], names AS n WHERE s.k = n.id "
    "GROUP BY n.name",
    "SELECT n.name, sum(s.v) AS v FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS], names AS n WHERE s.k = n.id "
    "GROUP BY n.name",
    "SELECT DISTINCT n.name FROM s [ROWS 3], names AS n WHERE s.k = n.id",
    "SELECT s.at, n.name FROM s [RANGE 3 SECONDS] LEFT JOIN names AS n ON s.k = n.id",
    "SELECT s.at, r.at AS other, n.name FROM s [RANGE 3 SECONDS], r [RANGE 2 SECONDS], names AS n "
    "WHERE s.k = n.id AND r.k = s.k",
    "SELECT s.at, n.name FROM s JOIN names FOR SYSTEM_TIME AS OF s.at AS n ON s.k = n.id",
    "DSTREAM (SELECT s.at, n.name FROM s [RANGE 4 SECONDS], names AS n WHERE s.k = n.id)",
]
rows_of_names = st.lists(
    st.fixed_dictionaries({"id": st.integers(0, 2) | st.none(), "name": st.sampled_from("abc")}), max_size=4
)


def table_of(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=NAMES)


@given(
    st.sampled_from(TEXTS),
    rows_of_names,
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 9), st.sampled_from("sr")), max_size=12
    ),
    st.lists(st.tuples(st.integers(0, 12), st.none() | st.integers(0, 25), rows_of_names), max_size=3),
    st.none() | st.integers(0, 12),
)
def test_answers_are_the_oracles_where_tables_change(
    text: str,
    first: list[dict[str, object]],
    steps: list[tuple[int, int, int, str]],
    reloads: list[tuple[int, int | None, list[dict[str, object]]]],
    restart: int | None,
) -> None:
    engine, now = with_names(text, table_of(first)), 0
    plan = engine.graph.plan_of("q")
    versions: list[tuple[int, list[dict[str, object]]]] = [(BEGINNING, first)]
    pushed: dict[str, list[tuple[int, dict[str, object]]]] = {"s": [], "r": []}
    answers: list[Batch] = []
    for i, (pause, k, v, stream) in enumerate([*steps, (30, 0, 0, "s")]):
        if i == restart:
            before, engine = engine.snapshot(), with_names(text, table_of([]))
            engine.adopt(before)
        for step, at, rows in reloads:
            if step == i:
                since = engine.reload("names", table_of(rows), at=at)
                if since is not None:
                    versions.append((since, rows))
        now += pause
        if stream in engine.graph.sources:
            row = {"at": now, "k": k, "v": v, "more": "x"}
            engine.push(stream, pa.RecordBatch.from_pylist([row], schema=SCHEMA), [now])
            pushed[stream].append((now, row))
        engine.advance(now)
        answers += engine.drain("q")
    for stream in engine.graph.sources:
        engine.streams.end(stream)
    answers += engine.drain("q")
    written = query(text, [*streams(), TableDef("names", NAMES, changes=True)])
    expected = oracle.stream(written.plan, {**pushed, "names": oracle.Reloaded.of(versions)})
    note(f"versions {versions}\nexpected {expected}")
    assert_same_stream(answers, expected, schema=plan.schema)


def with_names(text: str, rows: pa.Table) -> Engine:
    """An engine with a query over the table `names`, which may change."""
    engine = Engine(now=-100)
    for each in streams():
        engine.streams.declare(each.source, promise=TimerPromise(0))
    engine.add("q", query(text, [*streams(), TableDef("names", NAMES, rows, changes=True)]))
    return engine


LOOKUP = "SELECT s.at, n.name FROM s [NOW], names AS n WHERE s.k = n.id"


def test_a_table_changes_at_a_given_instant() -> None:
    engine = with_names(LOOKUP, named("a", "b", "c"))
    assert push(engine, 0, 3) == [{"at": 0, "name": "a"}, {"at": 1, "name": "b"}, {"at": 2, "name": "c"}]
    assert engine.reload("names", named("x", "y", "c"), at=7) == 7
    found = push(engine, 3, 9)
    assert [each["name"] for each in found] == ["a", "b", "c", "a", "y", "c"]


def test_a_row_in_a_window_follows_its_table() -> None:
    engine = with_names(LOOKUP.replace("[NOW]", "[RANGE 4 SECONDS]"), named("a"))
    assert push(engine, 0, 2) == [{"at": 0, "name": "a"}]
    engine.reload("names", named("x"), at=3)
    assert push(engine, 2, 5) == [{"at": 0, "name": "x"}, {"at": 3, "name": "x"}]


def test_an_instant_that_was_answered_for_is_moved() -> None:
    engine = with_names(LOOKUP, named("a", "b", "c"))
    push(engine, 0, 6)
    since = engine.reload("names", named("x", "y", "z"), at=2)
    assert since is not None
    assert since > 5
    assert [each["name"] for each in push(engine, since, since + 3)] == [
        ["x", "y", "z"][t % 3] for t in range(since, since + 3)
    ]


def test_the_same_rows_change_nothing() -> None:
    engine = with_names(LOOKUP, named("a", "b", "c"))
    engine.snapshot()
    assert engine.reload("names", named("a", "b", "c")) is None
    assert not engine.needs_full_snapshot


def test_many_reloads_do_not_add_up() -> None:
    """The table keeps about as many rows as it has, not one copy for each reload."""
    engine = with_names(LOOKUP, named("a", "b", "c"))
    for i in range(20):
        push(engine, 10 * i, 10 * i + 5)
        engine.reload("names", named("a", f"b{i}", "c"))
    push(engine, 300, 306)
    assert len(engine.graph.tables["names"].arc.batches()) <= 3


def test_a_changing_table_is_not_grouped_before_it_meets_a_stream() -> None:
    text = "SELECT s.v, n.c FROM s [RANGE 4 SECONDS], (SELECT count(*) AS c FROM names GROUP BY name) AS n"
    with pytest.raises(PlanError) as caught:
        with_names(text, named("a"))
    assert caught.value.code == "HR-P024"


def test_a_restored_engine_has_a_change_that_is_still_to_come() -> None:
    engine, again = (with_names(LOOKUP, named("a", "b", "c")) for _ in range(2))
    push(engine, 0, 3)
    engine.reload("names", named("x", "y", "z"), at=6)
    again.adopt(engine.snapshot())
    assert push(again, 3, 9) == push(engine, 3, 9)


def test_a_query_that_is_added_sees_the_rows_of_the_last_reload() -> None:
    engine = with_names(LOOKUP, named("a", "b", "c"))
    push(engine, 0, 3)
    engine.reload("names", named("x", "y", "z"))
    push(engine, 9, 10)
    more = query(LOOKUP, [*streams(), TableDef("names", NAMES, named("a", "b", "c"), changes=True)])
    engine.add("more", more, since=1)
    push(engine, 10, 13)
    found = [row["name"] for batch in engine.drain("more") for row in batch.data.to_pylist()]
    assert found == ["y", "z", "x"]


def test_a_change_that_is_still_to_come_is_not_forgotten() -> None:
    """The second reload came to an instant before the first: changes on their way were not counted."""
    engine = with_names(LOOKUP, named("a"))
    assert engine.reload("names", named("x", "y", "z", "x"), at=21) == 21
    assert engine.reload("names", named("b"), at=5) == 21
