"""What is known while answers wait: their values as of the rows so far, and who could change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, note
from hypothesis import strategies as st

from headrace import Catalog, TimerPromise, query
from headrace.engine import Engine, Rules
from headrace.engine.unfinished import Open, Unfinished, copy_of, if_ended
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import IStream, Source, Window
from headrace.plan.nodes.windows import Sliding
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import NONE, DisorderPromise
from tests.engine.driving import engine_for
from tests.strategies.plans import cases, tables_of
from tests.strategies.runs import runs

SCHEMA = pa.schema([("k", pa.int64())])
CATALOG = Catalog({"s": SCHEMA, "u": SCHEMA}, ticks_per_second=1)
COUNTS = "SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"


@given(st.data())
def test_answers_that_wait_are_those_of_the_rows_so_far(data: st.DataObject) -> None:
    """Looked at in the middle of a run: with the answers before, they are the oracle's of the rows so far.

    The run goes on as if nobody had looked.
    """
    case = data.draw(cases())
    run = replace(data.draw(runs(case)), load=-1)
    look = data.draw(st.integers(0, len(run.steps)))
    tables = {table.name: case.sources[table.name] for table in tables_of(case.plan)}
    seen: dict[str, list[Any]] = {name: [] for name in case.sources if name not in tables}
    engine, answers = engine_for(case, run), list[Batch]()
    for i, step in enumerate([*run.steps, None]):
        if i == look:
            answers += engine.drain("q")
            waiting = if_ended(copy_of(engine))["q"]
            note(f"seen {seen}")
            expected = oracle.stream(case.plan, {**seen, **tables})
            assert_same_stream([*answers, *waiting], expected, schema=case.plan.schema)
        if step is None:
            break
        if step[0] == "push":
            engine.push(step[1], step[2].data, step[2].start)
            seen[step[1]] += zip(step[2].start.tolist(), step[2].data.to_pylist(), strict=True)
        elif step[0] == "advance":
            engine.advance(step[1])
        else:
            engine.streams.end(step[1])
        answers += engine.drain("q")
    assert_same_stream(answers, oracle.stream(case.plan, case.sources), schema=case.plan.schema)


def test_an_answer_that_a_watermark_on_demand_would_release_waits_too() -> None:
    """A copy of an engine without such watermarks made them, and its answer was taken for given."""
    engine = Engine()
    engine.streams.declare(Source("s", SCHEMA), policy=NONE)
    engine.add("q", IStream(Window(Source("s", SCHEMA), Sliding(1, 2))))
    engine.push("s", pa.table({"k": [7, 7]}), [0, 1])
    assert not engine.drain("q")
    assert [(each.time, dict(each.row)) for each in engine.unfinished()] == [(0, {"k": 7})]


def push(engine: Engine, stream: str, now: int, *times: int) -> None:
    rows = pa.RecordBatch.from_pydict({"k": [7] * len(times)}, SCHEMA)
    engine.push(stream, rows, list(times), now=now)


def engine_with(text: str, **promises: Any) -> Engine:
    engine = Engine()
    for name, promise in promises.items():
        rules = Rules(disordered=True, enforce="strict")
        engine.streams.declare(CATALOG.streams[name].source, promise=promise, rules=rules)
    engine.add("q", query(text, CATALOG))
    return engine


def test_it_says_which_stream_could_change_an_answer_and_until_when() -> None:
    both = "SELECT k, count(*) AS n FROM (SELECT k FROM s UNION ALL SELECT k FROM u) "
    both += "[RANGE 10 SECONDS SLIDE 10 SECONDS] GROUP BY k"
    engine = engine_with(both, s=DisorderPromise(4, 20), u=TimerPromise(30))
    push(engine, "s", 105, 101, 103)
    push(engine, "u", 105, 104)
    engine.advance(105)
    assert engine.drain() == []
    slow = Open("s", 99, by_clock=129, after_row=112)
    assert engine.unfinished() == (
        Unfinished("q", 109, {"k": 7, "n": 3}, (slow, Open("u", 75, by_clock=139))),
    )
    push(engine, "s", 106, 125)
    engine.advance(106)
    first, second = engine.unfinished()
    assert (first.row, first.streams) == ({"k": 7, "n": 3}, (Open("u", 76, by_clock=139),))
    assert (second.time, second.row) == (129, {"k": 7, "n": 1})
    engine.advance(139)
    assert [batch.data.to_pylist() for batch in engine.drain()] == [[{"k": 7, "n": 3}]]


def test_without_bounds_it_names_the_stream_only() -> None:
    engine = Engine()
    engine.add("q", query(COUNTS, CATALOG))
    push(engine, "s", 1, 1, 2)
    assert engine.unfinished() == (Unfinished("q", 9, {"k": 7, "n": 2}, (Open("s", 1),)),)
    assert engine.needs_full_snapshot
    engine.snapshot()
    push(engine, "s", 2, 12)
    assert [batch.data.to_pylist() for batch in engine.drain()] == [[{"k": 7, "n": 2}]]


def test_nothing_waits_once_everything_is_answered() -> None:
    engine = Engine()
    engine.add("q", query(COUNTS, CATALOG))
    assert engine.unfinished() == ()
    push(engine, "s", 1, 1)
    engine.streams.end("s")
    assert engine.unfinished() == ()
    assert len(engine.drain()) == 1
