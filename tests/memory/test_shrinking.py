"""When a window shrinks, rows that it let in later and that have ended are not held because older ones are.

A row keeps the end that it was given (Cammert et al., §2.1), so ends are out of order after a change: the
first rows stay for long, those after them go soon. What is held must follow the rows that are valid, at once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import headrace
from headrace.engine import Engine

A = pa.schema([("k", pa.int64()), ("v", pa.float64())])
B = pa.schema([("k2", pa.int64()), ("x", pa.int64())])
LONG, SHORT, OLD, NEW, STEP = 1_000_000, 10, 4_000, 24_000, 1_000
RANGE = f"[RANGE MIN {SHORT}, MAX {LONG}]"

HOLDING = {
    "join": f"SELECT a.k, b.x FROM a {RANGE} AS a, b [RANGE 5] AS b WHERE a.k = b.k2",
    "count": f"SELECT k, count(*) AS n FROM a {RANGE} GROUP BY k",
    "sum": f"SELECT k, sum(v) AS t FROM a {RANGE} GROUP BY k",
    "extremes": f"SELECT k % 5 AS g, min(v) AS l, count(DISTINCT v) AS d FROM a {RANGE} GROUP BY k % 5",
    "istream": f"SELECT k, v FROM a {RANGE}",
    "dstream": f"DSTREAM(SELECT k, v FROM a {RANGE})",
    "distinct": f"SELECT DISTINCT k FROM a {RANGE}",
    "except": f"SELECT k FROM a {RANGE} EXCEPT SELECT k2 FROM b [RANGE 5]",
    "top-n": f"SELECT k, v FROM a {RANGE} ORDER BY v DESC LIMIT 3",
    "granularity": f"SELECT k, max(v) [GRANULARITY 4] AS m FROM a {RANGE} GROUP BY k",
}


def push(engine: Engine, begin: int, rows: int) -> None:
    """Rows with keys that come once each."""
    times = np.arange(begin, begin + rows)
    columns = [pa.array(times), pa.array(times * 0.37)]
    engine.push("a", pa.RecordBatch.from_arrays(columns, schema=A), times)
    if "b" in engine.streams:
        engine.streams.heartbeat("b", begin + rows - 1)
    engine.drain()


def after(text: str, new: int) -> Engine:
    """An engine that holds old rows for long, and has seen `new` rows since that were valid for 10 ticks."""
    engine = Engine()
    engine.add("q", headrace.query(text, {"a": A, "b": B}, ticks_per_second=None))
    for begin in range(0, OLD, STEP):
        push(engine, begin, STEP)
    (window,) = engine.quality.settings()
    assert engine.quality.resize(window.node, SHORT) == OLD
    for begin in range(OLD, OLD + new, STEP):
        push(engine, begin, STEP)
    for name in engine.streams:
        engine.streams.heartbeat(name, OLD + NEW + 10 * SHORT)
    engine.drain()
    return engine


def bytes_of(engine: Engine, release: bool) -> int:
    if release:
        for node in engine.graph.nodes:
            node.operator.memory.release()
    return engine.metrics().state_bytes


@pytest.mark.parametrize("name", HOLDING)
def test_rows_that_have_ended_are_not_held_because_older_ones_are(name: str) -> None:
    alone, both = after(HOLDING[name], 0), after(HOLDING[name], NEW)
    assert bytes_of(alone, release=False) > 20 * OLD or name == "top-n", "the old rows are held"
    told = {how: (bytes_of(alone, how), bytes_of(both, how)) for how in (False, True)}
    (_, left), (kept, released) = told[False], told[True]
    assert released <= 1.2 * kept + 20_000, told
    assert left <= 3 * kept + 100_000, told
