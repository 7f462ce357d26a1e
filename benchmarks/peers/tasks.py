"""What all are asked, and the streams it is asked of. Needs PyArrow and NumPy only: every peer imports it.

Each stream is in order of time, so that no system has to wait for stragglers or drop any.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECOND = 1_000_000
BASE = 1_700_000_000 * SECOND
KEPT = 95
TUMBLING, SLIDING, SLIDE = 10, 60, 1
SEED = 9


@dataclass(frozen=True)
class Task:
    """A question: its streams, their keys, and rows a second of each stream's own time."""

    name: str
    streams: tuple[str, ...]
    keys: int
    rate: int
    pace: int
    """Rows a second of each stream when latency is measured: what the slowest of all still keeps up with."""
    window: int = 0
    slide: int = 0


TASKS = {
    task.name: task
    for task in (
        Task("union", ("a", "b"), 1_000, 10_000, 500),
        Task("tumbling", ("a",), 1_000, 10_000, 1_000, TUMBLING, TUMBLING),
        Task("sliding", ("a",), 1_000, 10_000, 100, SLIDING, SLIDE),
        Task("join", ("a", "b"), 10_000, 1_000, 500, TUMBLING, TUMBLING),
        Task("silent", ("a", "b"), 10, 500, 500, 1, 1),
    )
}
"""union: rows with v < 95 of both. tumbling, sliding: count and sum(v) by key. join: pairs of equal keys in
the same ten seconds. silent: the count of both streams by key each second, while b says nothing for a
time."""

QUIET = (3, 9)
"""Seconds of the run in which stream b of the silent task says nothing."""


def table(task: Task, stream: str, rows: int, rate: int) -> pa.Table:
    """The first `rows` of a stream: t (microseconds), k, v in 0 … 99. A prefix, whatever `rows` is."""
    rng = np.random.default_rng([SEED, sorted(TASKS).index(task.name), ord(stream)])
    times, keys, values = np.empty(rows, np.int64), np.empty(rows, np.int64), np.empty(rows, np.int64)
    for second, begin in enumerate(range(0, rows, rate)):
        some = min(rate, rows - begin)
        part = slice(begin, begin + some)
        times[part] = BASE + second * SECOND + np.sort(rng.integers(0, SECOND, rate))[:some]
        keys[part] = rng.integers(0, task.keys, rate)[:some]
        values[part] = rng.integers(0, 100, rate)[:some]
    found = pa.table({"t": times, "k": keys, "v": values})
    if task.name == "silent" and stream == "b":
        at = (times - BASE) // SECOND
        found = found.filter(pa.array((at < QUIET[0]) | (at >= QUIET[1])))
    return found


def written(folder: Path, task: Task, rows: int, rate: int) -> dict[str, Path]:
    """A Parquet file for each stream of a task, `rows` in all; made once."""
    paths = {}
    for stream in task.streams:
        each = rows // len(task.streams)
        path = folder / f"{task.name}.{stream}.{each}.{rate}.parquet"
        if not path.exists():
            pq.write_table(table(task, stream, each, rate), path)
        paths[stream] = path
    return paths
