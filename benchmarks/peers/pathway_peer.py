"""Pathway: `filter` and `concat`, `windowby`, `window_join`.

As fast as it goes, files are read by its own CSV connector in static mode and answers written by its own,
which is its fastest: windows need no temporal behaviour, the end of the data ends them. Paced, rows come
through a Python connector that commits each time, windows are answered exactly once, and answers are
subscribed to. More workers are threads.
"""

from __future__ import annotations

import os
import sys
import time

import pyarrow as pa
import pyarrow.csv as pc

from benchmarks.peers.peer import COLUMNS, Asked, Pace, asked, begin_of_run, now, table_of, timed, write
from benchmarks.peers.tasks import BASE, KEPT, SECOND

run = asked()
os.environ["PATHWAY_THREADS"] = str(run.workers)
sys.argv = sys.argv[:1]

import pathway as pw  # noqa: E402

BEGIN = begin_of_run() + 1_000_000 if run.paced else BASE
GRACE = 100_000
"""The silent task: all are told that no row comes more than so many microseconds after its time."""

rows: list[tuple[int, ...]] = []


class Row(pw.Schema):
    """A row of any stream."""

    t: int
    k: int
    v: int


def from_file(asked: Asked, stream: str) -> pw.Table:
    """The stream as CSV; writing that is not counted."""
    path = asked.paths[stream].with_suffix(".csv")
    if not path.exists():
        pc.write_csv(asked.read(stream), path)
    return pw.io.csv.read(path, schema=Row, mode="static")


def in_time(asked: Asked, stream: str) -> pw.Table:
    """The stream's rows when they are due, committed together."""
    table = asked.read(stream)
    pace = Pace(table["t"].to_numpy(), BEGIN)
    keys, values, times = table["k"].to_pylist(), table["v"].to_pylist(), pace.times.tolist()

    class Subject(pw.io.python.ConnectorSubject):
        """Waits, sends, commits."""

        deletions_enabled = False

        def run(self) -> None:
            while not pace.ended:
                due = pace.take()
                for i in range(due.start, due.stop):
                    self.next(t=times[i], k=keys[i], v=values[i])
                if due.stop > due.start:
                    self.commit()
                time.sleep(max(0.001, (min(pace.due, now() + SECOND) - now()) / SECOND))

    return pw.io.python.read(Subject(), schema=Row, autocommit_duration_ms=10)


def answer(asked: Asked) -> pw.Table:
    task = asked.task
    read = in_time if asked.paced else from_file
    streams = [read(asked, name) for name in task.streams]
    if task.name == "union":
        kept = [each.filter(pw.this.v < KEPT) for each in streams]
        return kept[0].concat_reindex(kept[1])
    if task.name == "join":
        left, right = streams
        window = pw.temporal.tumbling(duration=task.window * SECOND)
        joined = pw.temporal.window_join(left, right, left.t, right.t, window, left.k == right.k)
        return joined.select(k=left.k, ta=left.t, tb=right.t)
    merged = streams[0].concat_reindex(streams[1]) if len(streams) > 1 else streams[0]
    window = (
        pw.temporal.tumbling(duration=task.window * SECOND)
        if task.window == task.slide
        else pw.temporal.sliding(hop=task.slide * SECOND, duration=task.window * SECOND)
    )
    shift = GRACE if task.name == "silent" else None
    behavior = pw.temporal.exactly_once_behavior(shift) if asked.paced else None
    grouped = merged.windowby(pw.this.t, window=window, instance=pw.this.k, behavior=behavior)
    return grouped.reduce(
        k=pw.this._pw_instance,
        e=pw.this._pw_window_end,
        n=pw.reducers.count(),
        s=pw.reducers.sum(pw.this.v),
    )


def keep(key: object, row: dict[str, int], time: int, is_addition: bool) -> None:
    """An answer as it comes; none is taken back when windows are answered once."""
    assert is_addition, row
    rows.append((*(row[name] for name in COLUMNS[run.task.name]), now()))


def main() -> None:
    out = run.out.with_suffix(".csv")
    result = answer(run)
    if run.paced:
        pw.io.subscribe(result, on_change=keep)
    else:
        pw.io.csv.write(result, out)
    seconds = timed(lambda: pw.run(monitoring_level=pw.MonitoringLevel.NONE))
    names = COLUMNS[run.task.name]
    if run.paced:
        write(run, table_of(rows, (*names, "at")), seconds, begin=BEGIN)
        return
    table = pc.read_csv(out)
    net = table.group_by([*names]).aggregate([("diff", "sum")])
    counts = net["diff_sum"].to_numpy()
    assert (counts >= 0).all()
    repeated = net.take(pa.array([i for i, n in enumerate(counts.tolist()) for _ in range(n)]))
    write(run, repeated.select(names), seconds, begin=BASE)


main()
