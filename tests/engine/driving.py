"""Running a random case on the engine in a random way, and what its answers must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from hypothesis import note

from headrace.engine import Engine, Snapshot
from headrace.flow.batch import Batch
from headrace.plan.nodes.core import Plan
from headrace.plan.nodes.quality import adaptable, bounds_of
from headrace.spill.store import MemorySpillStore
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import NONE, ON_DEMAND, Policy, TimerPromise, periodic
from tests.strategies.plans import Case, sources_of, tables_of
from tests.strategies.runs import Run

POLICIES: dict[str, Policy] = {"none": NONE, "periodic": periodic(3), "on_demand": ON_DEMAND}


def engine_for(case: Case, run: Run, lag: int = 0, queries: Mapping[str, Plan] | None = None) -> Engine:
    """A fresh engine with the case's query, or several, whose sources vouch for the clock as the run does."""
    strategy, start = f"{run.strategy}({run.k})", -(10**9)
    engine = Engine(strategy=strategy, propagation=run.propagation, now=start, spill_to=MemorySpillStore())
    for source in sorted(sources_of(case.plan), key=lambda s: s.name):
        engine.streams.declare(source, policy=POLICIES[run.ets], promise=TimerPromise(lag))
    if run.load == -2:
        load_tables(engine, case)
    for name, plan in (queries or {"q": case.plan}).items():
        engine.add(name, plan)
    if run.load == -1:
        load_tables(engine, case)
    return engine


def load_tables(engine: Engine, case: Case) -> None:
    """Give every table of the case its rows."""
    for table in tables_of(case.plan):
        rows = [row for _, row in case.sources[table.name]]
        engine.load(table.name, pa.Table.from_pylist(rows, schema=table.columns))


Hook = Callable[[Engine], None]


def no_hook(engine: Engine) -> None:
    """Do nothing between the steps of a run."""


def execute(case: Case, run: Run, lag: int = 0, hook: Hook = no_hook) -> tuple[list[Batch], Engine]:
    """The answers of a case, in the order in which they came out, and the engine that gave the last."""
    answers, engine = execute_all(case, run, {"q": case.plan}, lag, hook)
    return answers["q"], engine


def execute_all(
    case: Case, run: Run, queries: Mapping[str, Plan], lag: int = 0, hook: Hook = no_hook
) -> tuple[dict[str, list[Batch]], Engine]:
    """The answers of several queries in one engine, over the streams of a case."""
    engine, chain = engine_for(case, run, lag, queries), list[Snapshot]()
    answers: dict[str, list[Batch]] = {name: [] for name in queries}
    for i, step in enumerate(run.steps):
        for at, strategy in run.swaps:
            if at == i:
                engine.scheduling.use(f"{strategy}({run.k})")
        if i in run.snapshots:
            chain.append(Snapshot.decode(engine.snapshot(chain[-1].version if chain else None).encode()))
            engine = engine_for(case, run if run.reload else replace(run, load=i), lag, queries)
            engine.restore(chain)
        if run.load == i:
            load_tables(engine, case)
        for at, size in run.spills:
            if at == i:
                engine.memory.spill(size)
        hook(engine)
        if step[0] == "push":
            engine.push(step[1], step[2].data, step[2].start)
        elif step[0] == "advance":
            engine.advance(step[1])
        else:
            engine.streams.end(step[1])
        for name in queries:
            answers[name] += engine.drain(name)
    return answers, engine


def assert_oracles_answer(case: Case, run: Run, hook: Hook = no_hook) -> None:
    """Run in this way, the case gives what recomputing everything at every instant gives."""
    answers, _ = execute(case, run, hook=hook)
    expected = oracle.stream(case.plan, case.sources)
    note(f"expected {expected}")
    assert_same_stream(answers, expected, schema=case.plan.schema)


def assert_exact(engine: Engine, answers: list[Batch], plan: Plan, rows: oracle.Sources) -> None:
    """Answers are the oracle's under the histories that the engine kept, which are within their bounds."""
    histories = engine.quality.histories("q")
    assert histories.keys() == set(adaptable(plan))
    for node, history in histories.items():
        bounds = bounds_of(node)
        assert bounds is not None
        assert all(value in bounds for _, value in history)
        assert [t for t, _ in history] == sorted({t for t, _ in history})
    expected = oracle.stream(plan, rows, histories)
    note(f"histories {histories}, expected {expected}")
    assert_same_stream(answers, expected, schema=plan.schema)
