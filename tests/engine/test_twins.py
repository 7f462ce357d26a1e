"""Two engines take turns at one query, each catching up with what the other did in between."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine import Engine, Snapshot
from headrace.flow.batch import Batch
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from tests.engine.driving import engine_for, load_tables
from tests.laws import effort
from tests.strategies.plans import Case, cases
from tests.strategies.runs import Run, runs


def take_turns(case: Case, run: Run, turns: list[int]) -> list[Batch]:
    """The answers when twin `turns[i]` makes step i: a snapshot follows each step, as on Spark."""
    twins = [engine_for(case, replace(run, load=len(run.steps))) for _ in range(3)]
    chain: list[Snapshot] = []
    known: dict[int, int] = {}
    answers: list[Batch] = []
    for i, (step, turn) in enumerate(zip(run.steps, turns, strict=True)):
        engine = twins[turn]
        _bring_up(engine, chain, known.get(turn))
        if i == 0:
            load_tables(engine, case)
        _make(engine, step)
        answers += engine.drain("q")
        written = engine.snapshot(chain[-1].version if chain else None)
        chain.append(Snapshot.decode(written.encode()))
        known[turn] = len(chain)
    return answers


def _bring_up(engine: Engine, chain: list[Snapshot], known: int | None) -> None:
    if known is None and chain:
        engine.restore(chain)
    elif known is not None and chain[known:]:
        engine.catch_up(chain[known:])


def _make(engine: Engine, step: tuple) -> None:  # type: ignore[type-arg]
    if step[0] == "push":
        engine.push(step[1], step[2].data, step[2].start)
    elif step[0] == "advance":
        engine.advance(step[1])
    else:
        engine.streams.end(step[1])


@effort(2, "state that moves between engines is on every path of Spark")
@given(st.data())
def test_engines_that_take_turns_answer_as_one(data: st.DataObject) -> None:
    case = data.draw(cases())
    run = data.draw(runs(case))
    turns = data.draw(st.lists(st.integers(0, 2), min_size=len(run.steps), max_size=len(run.steps)))
    expected = oracle.stream(case.plan, case.sources)
    assert_same_stream(take_turns(case, run, turns), expected, schema=case.plan.schema)
