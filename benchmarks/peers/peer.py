"""What the peers' scripts share: the command line, the streams, pacing in real time, and the form of the
result."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.tasks import BASE, TASKS, Task

COLUMNS = {
    "union": ("t", "k", "v"),
    "tumbling": ("k", "e", "n", "s"),
    "sliding": ("k", "e", "n", "s"),
    "join": ("k", "ta", "tb"),
    "silent": ("k", "e", "n"),
}
"""The columns of the answers; `e` is the end of the window, all are int64. In paced runs `at` is when they
came."""


cpu_seconds: list[float] = []


@dataclass
class Asked:
    """One run: a task, its files, and whether rows come as fast as they are taken or at their times."""

    task: Task
    paths: dict[str, Path]
    paced: bool
    workers: int
    out: Path

    def read(self, stream: str) -> pa.Table:
        """A stream, whole."""
        return pq.read_table(self.paths[stream])


def now() -> int:
    """The clock of paced runs, in microseconds."""
    return time.time_ns() // 1000


class Pace:
    """Rows of a stream when they are due: the run's begin is the time BASE of the data."""

    def __init__(self, times: np.ndarray, begin: int) -> None:
        self._due = times - BASE + begin
        self._next = 0

    @property
    def times(self) -> np.ndarray:
        """The times of the rows on the clock of this run."""
        return self._due

    def take(self, instant: int | None = None) -> slice:
        """The rows that have become due since the last call, by `instant` or by now."""
        upto = int(np.searchsorted(self._due, now() if instant is None else instant, side="right"))
        taken, self._next = slice(self._next, upto), upto
        return taken

    @property
    def ended(self) -> bool:
        return self._next >= len(self._due)

    @property
    def due(self) -> int:
        """When the next row is due; a time past all if there is none."""
        return int(self._due[self._next]) if not self.ended else 2**62


def begin_of_run() -> int:
    """An instant soon."""
    return now() + 1_500_000


def asked() -> Asked:
    """The run that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("out", type=Path)
    parser.add_argument("streams", nargs="+", help="NAME=FILE")
    parser.add_argument("--paced", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    found = parser.parse_args()
    paths = {name: Path(path) for name, _, path in (each.partition("=") for each in found.streams)}
    return Asked(TASKS[found.task], paths, found.paced, found.workers, found.out)


def peak_megabytes() -> float:
    """The most memory that this process ever had, and the processes that it started and that still live."""
    statuses = {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":", 1) for line in path.read_text().splitlines())
        except OSError:  # it has ended meanwhile
            continue
        if "VmHWM" in fields:
            peak = int(fields["VmHWM"].split()[0]) / 1024
            statuses[int(path.parent.name)] = (int(fields["PPid"]), peak)
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in statuses.items() if parent in mine} - mine:
        mine |= more
    return sum(statuses[pid][1] for pid in mine if pid in statuses)


def write(asked: Asked, answers: pa.Table, seconds: float, **more: Any) -> None:
    """Keep the answers and say what was measured."""
    pq.write_table(answers.select([*COLUMNS[asked.task.name], *(["at"] if asked.paced else [])]), asked.out)
    told = {"seconds": seconds, "cpu": sum(cpu_seconds), "peak_mb": peak_megabytes(), **more}
    asked.out.with_suffix(".json").write_text(json.dumps(told))


class Aside:
    """Answers in columns, copied into memory that is set aside: new pages would cost more than the answers.

    What an answer came in is free again at once, as where a sink writes it.
    """

    def __init__(self, names: Sequence[str], rows: int) -> None:
        self._names = names
        self._columns = np.ones((len(names), rows), np.int64)
        self._filled = 0

    def clear(self) -> None:
        """Begin anew."""
        self._filled = 0

    def keep(self, answers: Iterable[pa.RecordBatch]) -> None:
        """Keep some more."""
        for batch in answers:
            stop = self._filled + batch.num_rows
            for into, column in zip(self._columns, batch.columns, strict=True):
                into[self._filled : stop] = column.to_numpy()
            self._filled = stop

    def table(self) -> pa.Table:
        """All that is kept."""
        return pa.table({n: c[: self._filled] for n, c in zip(self._names, self._columns, strict=True)})


def table_of(rows: Sequence[tuple[int, ...]], names: Sequence[str]) -> pa.Table:
    """Rows as a table of int64."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table({name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=True)})


def timed(run: Callable[[], Any]) -> float:
    """Wall seconds of a run; its CPU seconds are told with it, for machines that are busy."""
    began, spent = time.perf_counter(), time.process_time()
    run()
    cpu_seconds[:] = [time.process_time() - spent]
    return time.perf_counter() - began


def pieces(table: pa.Table, size: int) -> Iterator[pa.RecordBatch]:
    """A table in batches."""
    yield from table.combine_chunks().to_batches(max_chunksize=size)
