"""Headrace, embedded: the query in CQL, batches pushed as they come, one thread."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from benchmarks.peers.peer import Aside, Asked, Pace, asked, begin_of_run, now, timed, write
from benchmarks.peers.tasks import BASE, KEPT, SECOND
from headrace import Engine, Query, StreamDef, TimerPromise, query
from headrace.flow.batch import Batch
from headrace.memory.budget import keep_freed_memory
from headrace.time.ets import DisorderPromise, Promise

SCHEMA = pa.schema([("t", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
BATCH = 262_144
GRACE = 100_000
"""The silent task: no row comes more than so many microseconds after its time."""
POLL = 500
"""Microseconds after which the clock is looked at again, if no row comes before."""

PROMISES: dict[str, Callable[[], Promise]] = {
    "union": lambda: TimerPromise(0),
    "join": lambda: TimerPromise(0),
    "silent": lambda: DisorderPromise(1, latency=GRACE),
}
"""Two streams wait for each other, unless it is known how late rows may be: here their time is when they
come."""

WINDOWS = "SELECT k, window_end AS e, count(*) AS n, sum(v) AS s FROM a [RANGE {w} SLIDE {s}] GROUP BY k"
QUERIES = {
    "union": f"SELECT t, k, v FROM a WHERE v < {KEPT} UNION ALL SELECT t, k, v FROM b WHERE v < {KEPT}",
    "tumbling": WINDOWS,
    "sliding": WINDOWS,
    "join": """
        SELECT a.k AS k, a.t AS ta, b.t AS tb
        FROM (SELECT k, t, CAST(t / {w} AS BIGINT) AS w FROM a) [RANGE {w}] AS a,
             (SELECT k, t, CAST(t / {w} AS BIGINT) AS w FROM b) [RANGE {w}] AS b
        WHERE a.k = b.k AND a.w = b.w""",
    "silent": """
        SELECT k, window_end AS e, count(*) AS n
        FROM (SELECT t, k FROM a UNION ALL SELECT t, k FROM b) [RANGE {w} SLIDE {s}] GROUP BY k""",
}
"""Two rows of the same ten seconds are less than ten seconds apart: the join needs no more than `[RANGE]`,
and gives each pair when its later row comes."""


def question(asked: Asked) -> Query:
    task = asked.task
    text = QUERIES[task.name].format(w=task.window * SECOND, s=task.slide * SECOND)
    streams = [StreamDef(name, SCHEMA, time_column="t", ticks_per_second=None) for name in task.streams]
    return query(text, streams, name="q", ticks_per_second=None)


def as_fast_as_it_goes(asked: Asked) -> tuple[pa.Table, float]:
    """All rows in batches, the streams in turn, and the end."""
    streams = {name: asked.read(name).combine_chunks().to_batches()[0] for name in asked.task.streams}
    asking = question(asked)
    most = sum(each.num_rows for each in streams.values())
    given = Aside(asking.schema.names, max(most, 2_000_000))

    def run(limit: int | None = None) -> None:
        engine = Engine()
        engine.add("q", asking)
        given.clear()
        rows = min(limit or 2**62, max(each.num_rows for each in streams.values()))
        for begin in range(0, rows, BATCH):
            for name, each in streams.items():
                piece = each.slice(begin, min(BATCH, rows - begin))
                engine.push(name, piece, piece.column(0).to_numpy())
            given.keep(batch.data for batch in engine.drain())
        for name in streams:
            engine.streams.end(name)
        given.keep(batch.data for batch in engine.drain())

    run(limit=4 * BATCH)  # compiles the kernels
    seconds = timed(run)
    return given.table(), seconds


def at_their_times(asked: Asked) -> tuple[list[tuple[Batch, int]], int]:
    """Rows when they are due; each answer with the instant at which it came."""
    asking = question(asked)
    engine = Engine()
    if promise := PROMISES.get(asked.task.name):
        for source in asking.sources:
            engine.streams.declare(source, promise=promise())
    engine.add("q", asking)
    tables = {name: asked.read(name).combine_chunks().to_batches()[0] for name in asked.task.streams}
    warm_up(asked)
    gc.collect()
    gc.freeze()
    begin = begin_of_run()
    paces = {name: Pace(each.column(0).to_numpy(), begin) for name, each in tables.items()}
    given: list[tuple[Batch, int]] = []
    while not all(pace.ended for pace in paces.values()):
        instant = now()
        for name, pace in paces.items():
            if (part := pace.take(instant)).stop > part.start:
                times = pace.times[part]
                rows = [pa.array(times), *tables[name].slice(part.start, part.stop - part.start).columns[1:]]
                engine.push(name, pa.RecordBatch.from_arrays(rows, schema=SCHEMA), times, now=instant)
        engine.advance(instant)
        given += [(batch, now()) for batch in engine.drain()]
        wait = min(pace.due for pace in paces.values()) - now()
        time.sleep(max(0.0, min(wait, POLL) / 1e6))
    for name in tables:
        engine.streams.end(name)
    return given + [(batch, now()) for batch in engine.drain()], begin


def warm_up(asked: Asked) -> None:
    """Compile the kernels before the clock matters."""
    engine = Engine()
    engine.add("q", question(asked))
    for name in asked.task.streams:
        rows = asked.read(name).slice(0, 1000).combine_chunks().to_batches()[0]
        engine.push(name, rows, rows.column(0).to_numpy())
    for name in asked.task.streams:
        engine.streams.end(name)
    engine.drain()


def main() -> None:
    run = asked()
    keep_freed_memory()
    if run.paced:
        stamped, begin = at_their_times(run)
        parts = [b.data.append_column("at", pa.array(np.full(len(b), at))) for b, at in stamped]
        write(run, pa.Table.from_batches(parts), 0.0, begin=begin)
    else:
        given, seconds = as_fast_as_it_goes(run)
        write(run, given, seconds, begin=BASE)


if __name__ == "__main__":
    main()
