"""Take the turns: every peer answers every task, the answers are checked, and the ratios are written.

    python -m benchmarks.peers.run [--only TASK …] [--peers NAME …] [--scale 0.1] [--turns 2]

A slow peer gets a prefix of the data, and rates are compared row by row. Each rate is the best of the
turns, and of the numbers of workers tried. A peer whose virtual environment is not there is left out, and
said to be.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers import expected
from benchmarks.peers.tasks import TASKS, Task, written
from benchmarks.report import OUT, Result, write

ROOT = Path(__file__).parents[2]
VENVS = ROOT / ".venvs"
TIMEOUT = 600


@dataclass(frozen=True)
class Peer:
    """A system, the packages whose versions matter, rows of each task, and the numbers of workers tried."""

    name: str
    rows: dict[str, int]
    workers: tuple[int, ...] = (1,)
    package: str = ""
    closes: frozenset[str] = frozenset()
    """Tasks whose answers it gives only when a window ends."""
    paced: frozenset[str] = field(default_factory=lambda: frozenset(TASKS))
    venv: str = ""
    turns: int = 9
    """At most so many turns: of those that take long, one."""

    @property
    def python(self) -> Path:
        """The interpreter it runs in: its own, or this one."""
        return VENVS / (self.venv or self.name) / "bin" / "python" if self.package else Path(sys.executable)


PEERS = {
    peer.name: peer
    for peer in (
        Peer(
            "headrace", {"union": 10_000_000, "tumbling": 5_000_000, "sliding": 5_000_000, "join": 2_000_000}
        ),
        Peer("headrace_csv", {"union": 4_000_000, "join": 1_000_000}, paced=frozenset(), turns=1),
        Peer(
            "bytewax",
            {"union": 2_000_000, "tumbling": 500_000, "sliding": 60_000, "join": 60_000},
            (1, 2),
            "bytewax",
            frozenset({"join"}),
        ),
        Peer(
            "bytewax_arrow",
            {"union": 10_000_000},
            package="bytewax",
            paced=frozenset(),
            venv="bytewax",
        ),
        Peer(
            "pathway",
            {"union": 1_000_000, "tumbling": 500_000, "sliding": 20_000, "join": 200_000},
            (1, 2),
            "pathway",
            turns=1,
        ),
        Peer(
            "spark",
            {"union": 5_000_000, "tumbling": 5_000_000, "sliding": 1_000_000, "join": 500_000},
            paced=frozenset(),
            turns=1,
        ),
        Peer(
            "flink",
            {"union": 5_000_000, "tumbling": 5_000_000, "sliding": 2_000_000, "join": 1_000_000},
            package="apache-flink",
            paced=frozenset(),
            venv="flink",
            turns=1,
        ),
    )
}

FLOORS = {
    ("union", "bytewax"): 10.0,
    ("union", "pathway"): 20.0,
    ("sliding", "bytewax"): 100.0,
    ("sliding", "pathway"): 30.0,
    ("join", "bytewax"): 100.0,
    ("join", "pathway"): 30.0,
}


@dataclass
class Measured:
    """The best run of a peer on a task."""

    rate: float
    megabytes: float
    workers: int
    by_cpu: float
    """Rows a second of CPU, of all cores; 0 where it is not known."""


class Failed(Exception):
    """A run that broke off, or whose answer is wrong."""


failures: list[str] = []


@contextmanager
def excused() -> Iterator[None]:
    """A run that fails is said and counted, and the others go on: all of them take long."""
    try:
        yield
    except (Failed, subprocess.TimeoutExpired) as error:
        failures.append(str(error))
        print(f"FAILED: {error}", flush=True)


def run_peer(
    peer: Peer, task: Task, folder: Path, paths: dict[str, Path], *, paced: bool = False, workers: int = 1
) -> tuple[dict[str, Any], Path]:
    """One run in a process of its own; what it measured, and where its answers are."""
    out = folder / f"{peer.name}.{task.name}.{'paced' if paced else 'free'}.{workers}.parquet"
    out.unlink(missing_ok=True)
    streams = [f"{name}={path}" for name, path in paths.items()]
    argv = [str(peer.python), "-m", f"benchmarks.peers.{peer.name}_peer", task.name, str(out), *streams]
    argv += ["--workers", str(workers), *(["--paced"] if paced else [])]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        argv, check=False, env=env, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
    )
    if done.returncode or not out.exists():
        raise Failed(f"{peer.name} failed on {task.name}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    told: dict[str, Any] = json.loads(out.with_suffix(".json").read_text())
    return told, out


@lru_cache(maxsize=8)
def right_answers(task: Task, paths: tuple[tuple[str, Path], ...]) -> pa.Table:
    """What the turns of a task are held to."""
    return expected.answers(task, dict(paths))


def measured(peer: Peer, task: Task, folder: Path, scale: float, workers: int) -> Measured:
    """One run as fast as it goes; the answer is checked first."""
    rows = max(1000, int(peer.rows[task.name] * scale))
    paths = written(folder, task, rows, task.rate)
    told, out = run_peer(peer, task, folder, paths, workers=workers)
    if wrong := expected.differ(task, pq.read_table(out), right_answers(task, tuple(paths.items()))):
        raise Failed(f"{peer.name}, {task.name}: {wrong}")
    rate = rows / told["seconds"]
    by_cpu = rows / told["cpu"] if told["cpu"] else 0.0
    told_cpu = f", {by_cpu:14,.0f} a CPU second" if by_cpu else ""
    print(f"  {task.name:9} {peer.name:13} x{workers} {rate:14,.0f} rows/s{told_cpu}", flush=True)
    return Measured(rate, told["peak_mb"], workers, by_cpu)


def fastest(peers: list[Peer], task: Task, folder: Path, scale: float, turns: int) -> dict[str, Measured]:
    """The best run of each: all take a turn before any takes its next, so that none has the quiet hour."""
    best: dict[str, Measured] = {}
    for turn in range(turns):
        for peer in peers:
            for workers in peer.workers if turn < peer.turns else ():
                with excused():
                    run = measured(peer, task, folder, scale, workers)
                    if peer.name not in best or run.rate > best[peer.name].rate:
                        best[peer.name] = run
    return best


def latency(peer: Peer, task: Task, folder: Path, seconds: int) -> list[Result]:
    """p50 and p99 in a paced run, and how many of the answers were wrong, by rows missing or too many."""
    paths = written(folder, task, task.pace * seconds * len(task.streams), task.pace)
    told, out = run_peer(peer, task, folder, paths, paced=True)
    given = pq.read_table(out)
    wrong = expected.differ(task, given, expected.answers(task, paths, told["begin"]))
    late = expected.delays(task, given, paths, told["begin"], task.name in peer.closes)
    p50, p99 = np.percentile(late, [50, 99])
    note = f"  ({wrong})" if wrong else ""
    print(f"  {task.name:9} {peer.name:9} p50 {p50:9.1f} ms, p99 {p99:9.1f} ms{note}", flush=True)
    results: list[Result] = [
        {"name": f"{task.name}.{peer.name}.p50_ms", "value": float(p50), "unit": "ms"},
        {"name": f"{task.name}.{peer.name}.p99_ms", "value": float(p99), "unit": "ms"},
    ]
    if wrong:
        results.append({"name": f"{task.name}.{peer.name}.wrong", "value": 1.0, "unit": ""})
    return results


def compare(task: Task, peers: list[Peer], folder: Path, asked: argparse.Namespace) -> list[Result]:
    """Rates, memory and ratios on one task."""
    able = [peer for peer in peers if task.name in peer.rows]
    found = fastest(able, task, folder, asked.scale, asked.turns)
    results: list[Result] = []
    for name, each in found.items():
        results.append({"name": f"{task.name}.{name}.rows_per_s", "value": each.rate, "unit": "rows/s"})
        if each.by_cpu:
            results.append(
                {"name": f"{task.name}.{name}.rows_per_cpu_s", "value": each.by_cpu, "unit": "rows/s"}
            )
        results.append({"name": f"{task.name}.{name}.peak_mb", "value": each.megabytes, "unit": "MB"})
    for name, each in found.items():
        if name.startswith("headrace") or "headrace" not in found:
            continue
        ratio: Result = {
            "name": f"{task.name}.vs_{name}",
            "value": found["headrace"].rate / each.rate,
            "unit": "x",
        }
        if (task.name, name) in FLOORS:
            ratio["floor"] = FLOORS[task.name, name]
        results.append(ratio)
    return results


def p99_ratios(results: list[Result], task: Task, peers: list[Peer]) -> list[Result]:
    """Headrace's p99 over each peer's: no more than one."""
    values = {each["name"]: each["value"] for each in results}
    mine = values.get(f"{task.name}.headrace.p99_ms")
    found: list[Result] = []
    for peer in peers:
        its = values.get(f"{task.name}.{peer.name}.p99_ms")
        if peer.name != "headrace" and mine is not None and its is not None:
            ratio: Result = {"name": f"{task.name}.p99_vs_{peer.name}", "value": mine / its, "unit": "x"}
            if peer.name in ("bytewax", "pathway"):
                ratio["ceiling"] = 1.0
            found.append(ratio)
    return found


def on_spark(folder: Path, rows: int) -> list[Result]:
    """Headrace on Spark against Spark's own operators: the rates, and a stream that is silent."""
    from benchmarks import spark_bench, spark_runs
    from benchmarks.peers.spark_silent import silent

    spark = spark_runs.session()
    try:
        found = silent(spark, folder / "silent")
        bench = spark_bench.Bench(spark, folder / "spark", rows, 0)
        return found + spark_bench.sliding(bench) + spark_bench.join(bench)
    finally:
        spark.stop()


def others(out: Path, results: list[Result]) -> list[Result]:
    """What an earlier run says of tasks that this one left out: ratios are of one task, and of one run."""
    done = {each["name"].split(".")[0] for each in results}
    before: list[Result] = json.loads(out.read_text())["results"] if out.exists() else []
    return [each for each in before if each["name"].split(".")[0] not in done]


def versions(peers: list[Peer]) -> dict[str, str]:
    """Of the packages in the peers' own environments."""
    found = {}
    for peer in peers:
        if peer.package:
            code = f"from importlib.metadata import version; print(version({peer.package!r}))"
            told = subprocess.run([peer.python, "-c", code], capture_output=True, text=True, check=True)
            found[peer.package] = told.stdout.strip()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--peers", nargs="+", choices=sorted(PEERS), default=list(PEERS))
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=20, help="of a paced run; 0: none")
    parser.add_argument("--spark-rows", type=int, default=6_000_000, help="Headrace on Spark; 0: none")
    parser.add_argument("--out", type=Path, default=OUT / "peers.json")
    asked = parser.parse_args()
    absent = [name for name in asked.peers if not PEERS[name].python.exists()]
    for name in absent:
        print(f"{name}: no {PEERS[name].python}; make bench-peers installs it")
    peers = [PEERS[name] for name in asked.peers if name not in absent]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="peers") as name:
        for task in (TASKS[each] for each in asked.only):
            if task.name != "silent":
                results += compare(task, peers, Path(name), asked)
            if asked.seconds:
                for peer in peers:
                    if task.name in peer.paced:
                        with excused():
                            results += latency(peer, task, Path(name), asked.seconds)
                results += p99_ratios(results, task, peers)
        if asked.spark_rows:
            results += on_spark(Path(name), asked.spark_rows)
    kept = write(asked.out, [*others(asked.out, results), *results], versions(peers))
    return 0 if kept and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
