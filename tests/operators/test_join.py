"""Regressions of the join."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.engine import Engine
from headrace.expressions import col
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch
from headrace.operators.join import JoinOperator
from headrace.plan.nodes.core import IStream, Join, Project, Source, Window
from headrace.plan.nodes.windows import Range, Rows
from headrace.testing import oracle
from headrace.time.punctuation import heartbeat

LEFT, RIGHT = pa.schema([("k", pa.int64())]), pa.schema([("k2", pa.int64())])
PLAN = Join(Window(Source("a", LEFT), Range(1000)), Window(Source("b", RIGHT), Range(1000)), ("k",), ("k2",))


def connected() -> tuple[JoinOperator, list[Arc]]:
    operator, arcs = JoinOperator(PLAN), [Arc(), Arc()]
    operator.connect(arcs)
    return operator, arcs


def rows(schema: pa.Schema, keys: range, time: int) -> Batch:
    start = np.full(len(keys), time, np.int64)
    return Batch(pa.record_batch([pa.array(keys, pa.int64())], schema=schema), start, start + 1000)


def feed(operator: JoinOperator, arcs: list[Arc], batches: tuple[Batch, Batch], time: int) -> int:
    before = operator.rows_out
    for arc, batch in zip(arcs, batches, strict=True):
        arc.append(batch)
        arc.punctuate(heartbeat(time))
    while operator.more:
        operator.execute(10_000)
    return operator.rows_out - before


def test_rows_restored_into_more_buckets_are_linked_once() -> None:
    """An increment that makes the table grow linked its rows twice: a chain that led back to itself."""
    operator, arcs = connected()
    feed(operator, arcs, (rows(LEFT, range(4), 1), rows(RIGHT, range(0), 1)), 1)
    chain = [{name: part.changes(True) for name, part in operator.state().items()}]
    feed(operator, arcs, (rows(LEFT, range(4, 500), 2), rows(RIGHT, range(0), 2)), 2)
    chain.append({name: part.changes(False) for name, part in operator.state().items()})
    restored, fresh = connected()
    for chunks in chain:
        for name, part in restored.state().items():
            part.apply(chunks[name])
    assert feed(restored, fresh, (rows(LEFT, range(0), 3), rows(RIGHT, range(500), 3)), 3) == 500


def test_a_restored_side_keeps_the_ids_of_the_chain_when_most_of_it_is_dead() -> None:
    """Restoring withdrawn rows compacted the side, so that later increments spoke of other rows."""
    operator, arcs = connected()
    feed(operator, arcs, (rows(LEFT, range(10), 1), rows(RIGHT, range(0), 1)), 1)
    side = operator.state()["left"]
    chain = [side.changes(True)]
    operator._sides[0].kill(np.arange(5))
    chain.append(side.changes(False))
    feed(operator, arcs, (rows(LEFT, range(100, 103), 2), rows(RIGHT, range(0), 2)), 2)
    chain.append(side.changes(False))
    restored, fresh = connected()
    for chunk in chain:
        restored.state()["left"].apply(chunk)
    assert feed(restored, fresh, (rows(LEFT, range(0), 3), rows(RIGHT, range(200), 3)), 3) == 8


@pytest.mark.parametrize("limit", range(1, 12))
def test_no_withdrawal_reaches_a_join_before_its_row_wherever_an_instant_is_cut(limit: int) -> None:
    """A join over row windows gave withdrawals first. The join above, cut there, forgot them."""
    source = Source("s", LEFT)
    newest = Window(source, Rows(1))
    pairs = Join(newest, Project(newest, (("k2", col("k")),)), ("k",), ("k2",))
    right = Project(pairs, (("k3", col("k")), ("k4", col("k2"))))
    plan = IStream(Join(Window(source, Range(1)), right, ("k",), ("k3",)))
    engine = Engine(strategy=f"dfs({limit})", propagation="punctuation")
    engine.add("q", plan)
    engine.push("s", pa.record_batch([pa.array([1] * 8, pa.int64())], schema=LEFT), [0] * 8)
    engine.streams.end("s")
    answer = oracle.stream(plan, {"s": [(0, {"k": 1})] * 8})
    assert sum(map(len, engine.drain())) == len(answer) == 8


def test_at_one_instant_what_comes_leaves_before_what_is_withdrawn() -> None:
    """Hash chains give the newest row first: a withdrawal before the row that it withdraws."""
    operator, arcs = connected()
    reader = operator.output.reader()
    held = rows(LEFT, range(1), 1)
    passing = Batch(*(getattr(held, name) for name in ("data", "start", "end")), np.array([-1], np.int8))
    feed(operator, arcs, (held, rows(RIGHT, range(0), 1)), 0)
    arcs[0].append(passing)
    feed(operator, arcs, (rows(LEFT, range(0), 1), rows(RIGHT, range(1), 1)), 1)
    signs = [sign for item in reader.take_until(1, 100) if isinstance(item, Batch) for sign in item.signs()]
    assert signs == [1, -1]
