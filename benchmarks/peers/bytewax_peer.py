"""Bytewax: batched sources, `merge`, `fold_window` and `join_window` over an event clock.

As fast as it goes, the clock stands still and windows close by the data, as its documentation says for
replays (`now_getter`, `to_system_utc`). Paced, it is the system's, with `WAIT` for rows that come after
their time. More workers are processes of a cluster on this machine; streams have a part for each.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import cluster_main, run_main

from benchmarks.peers.peer import COLUMNS, Asked, Pace, asked, begin_of_run, now, table_of, timed, write
from benchmarks.peers.tasks import BASE, KEPT

BATCH = 10_000
WAIT = timedelta(milliseconds=100)
SKEW = timedelta(seconds=60)
"""By how much one stream of a join may be read ahead of the other."""

ORIGIN = datetime(1970, 1, 1, tzinfo=UTC)
STILL = datetime(2100, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
given: list[Any] = []
stamps: list[int] = []


def rows_of(table: pa.Table, times: Iterable[int]) -> list[tuple[datetime, str, int]]:
    """What Bytewax carries: tuples, and keys that are texts."""
    when = [ORIGIN + timedelta(microseconds=t) for t in times]
    return list(zip(when, map(str, table["k"].to_pylist()), table["v"].to_pylist(), strict=True))


class Rows(StatefulSourcePartition[Any, int]):
    """Rows in batches, or when they are due."""

    def __init__(self, rows: list[Any], pace: Pace | None) -> None:
        self._rows, self._pace, self._next = rows, pace, 0

    def next_batch(self) -> list[Any]:
        if self._pace is not None:
            if self._pace.ended:
                raise StopIteration
            return self._rows[self._pace.take()]
        if self._next >= len(self._rows):
            raise StopIteration
        self._next += BATCH
        return self._rows[self._next - BATCH : self._next]

    def next_awake(self) -> datetime | None:
        if self._pace is None or self._pace.ended:
            return None
        return ORIGIN + timedelta(microseconds=self._pace.due)

    def snapshot(self) -> int:
        return self._next


class Stream(FixedPartitionedSource[Any, int]):
    """A stream in as many parts as there are workers."""

    def __init__(self, asked: Asked, name: str, begin: int) -> None:
        table = asked.read(name)
        times = (table["t"].to_numpy() - BASE + begin).tolist()
        pace = Pace(table["t"].to_numpy(), begin) if asked.paced else None
        rows, parts = rows_of(table, times), asked.workers
        self._parts = {str(i): Rows(rows[i::parts] if parts > 1 else rows, pace) for i in range(parts)}

    def list_parts(self) -> list[str]:
        return list(self._parts)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Rows:
        return self._parts[for_part]


class Kept(StatelessSinkPartition[Any]):
    """Answers in memory; in a paced run with the instant at which they came."""

    def __init__(self, stamped: bool) -> None:
        self._stamped = stamped

    def write_batch(self, items: list[Any]) -> None:
        given.extend(items)
        if self._stamped:
            stamps.extend([now()] * len(items))


class Keep(DynamicSink[Any]):
    """A sink of this process."""

    def __init__(self, stamped: bool = False) -> None:
        self._stamped = stamped

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Kept:
        return Kept(self._stamped)


def flow_of(asked: Asked, begin: int) -> Dataflow:
    flow = Dataflow("peer")
    task = asked.task
    streams = [op.input(name, flow, Stream(asked, name, begin)) for name in task.streams]
    if task.name == "union":
        kept = [op.filter(f"filter {i}", each, lambda row: row[2] < KEPT) for i, each in enumerate(streams)]
        op.output("out", op.merge("merge", *kept), Keep(asked.paced))
        return flow
    length, slide = timedelta(seconds=task.window), timedelta(seconds=task.slide)
    windower = (
        win.TumblingWindower(length=length, align_to=ORIGIN)
        if length == slide
        else win.SlidingWindower(length=length, offset=slide, align_to=ORIGIN)
    )
    if task.name == "join":
        keyed = [op.key_on(f"key {i}", each, lambda row: row[1]) for i, each in enumerate(streams)]
        out = win.join_window(
            "join", _clock(asked), windower, *keyed, insert_mode="product", emit_mode="final", ordered=False
        )
    else:
        rows = op.merge("merge", *streams) if len(streams) > 1 else streams[0]
        keyed_rows = op.key_on("key", rows, lambda row: row[1])
        out = win.fold_window(
            "fold", keyed_rows, _clock(asked), windower, lambda: (0, 0), _fold, _merge, ordered=False
        )
    op.output("out", out.down, Keep(asked.paced))
    return flow


def _clock(asked: Asked) -> win.EventClock[Any]:
    if asked.paced:
        return win.EventClock(ts_getter=_when, wait_for_system_duration=WAIT)
    wait = SKEW if len(asked.task.streams) > 1 or asked.workers > 1 else timedelta(0)
    return win.EventClock(
        ts_getter=_when, wait_for_system_duration=wait, now_getter=lambda: STILL, to_system_utc=lambda _: None
    )


def _when(row: tuple[datetime, str, int]) -> datetime:
    return row[0]


def _fold(so_far: tuple[int, int], row: tuple[datetime, str, int]) -> tuple[int, int]:
    return so_far[0] + 1, so_far[1] + row[2]


def _merge(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


def _ticks(when: datetime) -> int:
    return (when - ORIGIN) // MICROSECOND


def answers_of(asked: Asked) -> pa.Table:
    """What was kept, in the columns that all give."""
    task = asked.task
    if task.name == "union":
        rows = [(_ticks(when), int(key), value) for when, key, value in given]
    elif task.name == "join":
        pairs = [(i, int(key), pair) for i, (key, (_, pair)) in enumerate(given)]
        whole = [each for each in pairs if each[2][0] is not None and each[2][1] is not None]
        stamps[:] = [stamps[i] for i, _, _ in whole] if asked.paced else []
        rows = [(key, _ticks(left[0]), _ticks(right[0])) for _, key, (left, right) in whole]
    else:
        end = (task.window, task.slide)
        rows = [(int(k), (w * end[1] + end[0]) * 1_000_000, n, s) for k, (w, (n, s)) in given]
        rows = [row[: len(COLUMNS[task.name])] for row in rows]
    return table_of(rows, COLUMNS[task.name])


def run_here(asked: Asked, member: int | None = None, addresses: list[str] | None = None) -> float:
    """Run the flow in this process, alone or as a member of a cluster; wall seconds."""
    begin = BASE
    if asked.paced:
        begin = begin_of_run() + 500_000
    flow = flow_of(asked, begin)
    gc.collect()
    gc.freeze()
    if member is not None:
        _meet(asked.out, member, len(addresses or ()))
    took = timed(lambda: run_main(flow) if member is None else cluster_main(flow, addresses, member))
    answers = answers_of(asked)
    if asked.paced:
        answers = answers.append_column("at", pa.array(stamps, pa.int64()))
    write(asked, answers, took, begin=begin)
    return took


def _meet(out: Path, member: int, members: int) -> None:
    """Wait until all have read their rows; give up when one does not come."""
    (out.parent / f"ready.{member}").touch()
    patience = time.monotonic() + 120
    while not all((out.parent / f"ready.{i}").exists() for i in range(members)):
        if time.monotonic() > patience:
            raise SystemExit("the other members did not come")
        time.sleep(0.005)


def cluster(asked: Asked) -> None:
    """One process for each worker; the answers and times of all as one."""
    folder = asked.out.with_suffix(".members")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    outs = [folder / f"{i}.parquet" for i in range(asked.workers)]
    streams = [f"{name}={path}" for name, path in asked.paths.items()]
    argv = [sys.executable, "-m", "benchmarks.peers.bytewax_peer", asked.task.name]
    more = ["--workers", str(asked.workers)]
    members = [
        subprocess.Popen([*argv, str(out), *streams, *more], env={**os.environ, "BYTEWAX_MEMBER": str(i)})
        for i, out in enumerate(outs)
    ]
    if any(member.wait() for member in members):
        raise SystemExit("a member of the cluster failed")
    told = [json.loads(out.with_suffix(".json").read_text()) for out in outs]
    pq.write_table(pa.concat_tables([pq.read_table(out) for out in outs]), asked.out)
    whole = {
        "seconds": max(each["seconds"] for each in told),
        "cpu": sum(each["cpu"] for each in told),
        "peak_mb": sum(each["peak_mb"] for each in told),
        "begin": BASE,
    }
    asked.out.with_suffix(".json").write_text(json.dumps(whole))


def main() -> None:
    run = asked()
    if run.workers == 1:
        run_here(run)
    elif (member := os.environ.get("BYTEWAX_MEMBER")) is None:
        cluster(run)
    else:
        run_here(run, int(member), [f"127.0.0.1:{19_200 + i}" for i in range(run.workers)])


if __name__ == "__main__":
    main()
