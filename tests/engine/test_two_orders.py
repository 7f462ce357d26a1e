"""Rows that cannot wait, rows with two times: each order is a stream of its own (Tucker & Maier, §1, §5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import headrace
from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import Source
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream
from headrace.time.ets import DisorderPromise

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])
STREAMS = {"alarms": SCHEMA, "readings": SCHEMA, "made": SCHEMA, "sent": SCHEMA}


def engine_of(bounds: dict[str, int], texts: dict[str, str]) -> Engine:
    engine = Engine()
    for name, disorder in bounds.items():
        rules = Rules(disordered=True, enforce="strict")
        engine.streams.declare(Source(name, SCHEMA), promise=DisorderPromise(disorder), rules=rules)
    for query, text in texts.items():
        engine.add(query, headrace.query(text, STREAMS, ticks_per_second=None))
    return engine


def push(engine: Engine, stream: str, *rows: tuple[int, int, int]) -> None:
    times, keys, values = zip(*rows, strict=True)
    columns = [pa.array(keys, pa.int64()), pa.array(values, pa.int64())]
    engine.push(stream, pa.RecordBatch.from_arrays(columns, schema=SCHEMA), np.array(times, np.int64))


def values(engine: Engine, query: str) -> list[tuple[int, int]]:
    return [
        (int(t), v)
        for batch in engine.drain(query)
        for t, v in zip(batch.start, batch.data["v"].to_pylist(), strict=True)
    ]


def test_urgent_rows_in_a_stream_of_their_own_do_not_wait_for_the_others() -> None:
    """Readings may be 60 ticks out of order; alarms are answered at once, and together they are in order."""
    texts = {
        "now": "SELECT v FROM alarms",
        "all": "SELECT v FROM alarms UNION ALL SELECT v FROM readings",
    }
    engine = engine_of({"alarms": 0, "readings": 60}, texts)
    push(engine, "readings", (100, 1, 1), (130, 1, 2))
    push(engine, "alarms", (125, 7, 3))
    push(engine, "alarms", (131, 7, 4))
    assert values(engine, "now") == [(125, 3), (131, 4)], "alarms overtake the readings"
    assert values(engine, "all") == [], "which may still be followed by earlier ones"
    for name in ("alarms", "readings"):
        engine.streams.end(name)
    assert values(engine, "all") == [(100, 1), (125, 3), (130, 2), (131, 4)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 2)), max_size=12), st.data())
def test_one_query_may_use_two_orders_of_the_same_rows(rows: list[Any], data: st.DataObject) -> None:
    """Rows have the time at which they were made and, up to nine ticks later, that at which they were sent.

    They are declared twice, under each time; the query pairs what was made with what was sent within 5 ticks.
    """
    text = "SELECT a.k, a.v, b.v AS w FROM made [RANGE 5] AS a, sent [RANGE 8] AS b WHERE a.k = b.k"
    engine, seen, made, sent = engine_of({"made": 10, "sent": 1}, {"q": text}), dict[str, Any](), [], []
    now = 0
    for number, (later, delay, key) in enumerate(rows):
        now += later
        made.append((now - delay, key, number))
        sent.append((now, key, number))
    answers = []
    for one, other in zip(made, sent, strict=True):
        push(engine, "made", one)
        push(engine, "sent", other)
        if data.draw(st.booleans()):
            answers += engine.drain("q")
    for name, given_rows in (("made", made), ("sent", sent)):
        seen[name] = [(t, {"k": k, "v": v}) for t, k, v in given_rows]
        engine.streams.end(name)
    answers += engine.drain("q")
    found = headrace.query(text, STREAMS, ticks_per_second=None)
    assert_same_stream(answers, oracle.stream(found.plan, seen), schema=found.plan.schema)
