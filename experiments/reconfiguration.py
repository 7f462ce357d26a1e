"""§1 of Bai et al. (query graphs): queries and strategies change while others run, and it costs little."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.engine import Engine
from headrace.sql import Query, StreamDef, query

STREAM = StreamDef("s", pa.schema([("k", pa.int64()), ("v", pa.int64())]), ticks_per_second=1_000)
SECOND, PUSH, ROWS = 1_000, 100, 2_000
TEXT = """
    SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 10 SECONDS SLIDE 1 SECOND]
    WHERE v <> {} GROUP BY k
"""
STRATEGIES = ("bfs", "rr", "chain", "auto")
KINDS = {
    "add": "a query added, with its text",
    "remove": "a query removed",
    "strategy": "another strategy",
    "break": "a break node",
    "level": "another level of heartbeats",
}


def asked(number: int) -> Query:
    """One of many queries, no two alike."""
    return query(TEXT.format(number), [STREAM])


def standing(queries: int) -> Engine:
    """An engine that runs so many queries."""
    engine = Engine()
    for number in range(queries):
        engine.add(f"q{number}", asked(number))
    return engine


@dataclass
class Cost:
    """Milliseconds of CPU of each change, and of each second's work; results of the standing queries."""

    changes: dict[str, list[float]] = field(default_factory=dict)
    work: list[float] = field(default_factory=list)
    results: int = 0

    def of(self, kind: str) -> float:
        """What a change of a kind costs, usually."""
        return float(np.median(self.changes[kind]))

    @property
    def second(self) -> float:
        """The work on the rows of a second, usually."""
        return float(np.median(self.work))


def timed(do: Callable[[], object]) -> float:
    """Milliseconds of CPU."""
    began = time.thread_time_ns()
    do()
    return (time.thread_time_ns() - began) / 1e6


def changes(engine: Engine, second: int, queries: int) -> dict[str, Callable[[], object]]:
    """One change of each kind; what is added is removed again, and what is cut is joined."""
    node = engine.graph.nodes[second % len(engine.graph.nodes)]
    name = f"new{second}"
    return {
        "add": lambda: engine.add(name, asked(queries + second)),
        "strategy": lambda: engine.scheduling.use(STRATEGIES[second % len(STRATEGIES)]),
        "level": lambda: engine.scheduling.set_level(("query", "operator")[second % 2]),
        "break": lambda: engine.scheduling.set_break(node),
        "remove": lambda: engine.remove(name),
    }


def run_for(queries: int, seconds: int, changing: bool) -> tuple[Engine, Cost]:
    """The same rows, with a change of each kind in each second or with none."""
    rng = np.random.default_rng(101)
    engine, cost = standing(queries), Cost()
    for second in range(seconds):
        if changing:
            for kind, change in changes(engine, second, queries).items():
                cost.changes.setdefault(kind, []).append(timed(change))
        begin = second * SECOND
        times = np.sort(rng.integers(begin, begin + SECOND, ROWS))
        keys, values = pa.array(rng.integers(0, 10, ROWS)), pa.array(rng.integers(0, 10_000, ROWS))
        data = pa.RecordBatch.from_arrays([keys, values], schema=STREAM.source.schema)
        cost.work.append(timed(lambda data=data, times=times: _push(engine, data, times)))  # type: ignore[misc]
        cost.results += sum(len(b) for name, of in engine.drain_all().items() for b in of if name[0] == "q")
    return engine, cost


def _push(engine: Engine, data: pa.RecordBatch, times: np.ndarray) -> None:
    for first in range(0, len(times), PUSH):
        engine.push("s", data.slice(first, PUSH), times[first : first + PUSH])
        engine.run()


def restart(engine: Engine, queries: int) -> None:
    """What a change costs that stops everything: a snapshot, and a new engine that continues from it."""
    snapshot = engine.snapshot()
    standing(queries).restore(snapshot)


def run(conditions: Conditions) -> Result:
    """With changes and without; then more and more queries."""
    sizes = conditions.of((2, 20), (1, 10, 50), (1, 10, 50, 200))
    seconds = conditions.of(4, 6, 40)
    run_for(2, 2, True)
    quiet = {size: run_for(size, seconds, False) for size in sizes}
    changing = {size: run_for(size, seconds, True)[1] for size in sizes}
    restarts = {size: timed(lambda size=size: restart(quiet[size][0], size)) for size in sizes}  # type: ignore[misc]
    most = sizes[-1]
    found, still = changing[most], quiet[most][1]
    lost = sum(abs(quiet[size][1].results - changing[size].results) for size in sizes)
    lines = [
        *(Line(label, sizes, [changing[size].of(kind) for size in sizes]) for kind, label in KINDS.items()),
        Line("all stopped and started again", sizes, [restarts[size] for size in sizes]),
    ]
    y = "CPU time of a change (ms)"
    return Result(
        [
            *(Measure(f"reconfiguration.{kind}_ms", found.of(kind), "ms") for kind in KINDS),
            Measure("reconfiguration.restart_ms", restarts[most], "ms"),
            Measure("reconfiguration.second_of_work_ms", still.second, "ms"),
            Measure("reconfiguration.results_changed", lost, "results", ceiling=0),
            Measure("reconfiguration.restart_over_add", restarts[most] / found.of("add"), "×", floor=3),
            Measure(
                "reconfiguration.strategy_over_second_of_work",
                found.of("strategy") / still.second,
                "×",
                ceiling=0.1,
            ),
        ],
        [Panel("Changes while queries run", "Queries that run", y, lines, "log", "log")],
        f"with {most} queries running, adding one takes {found.of('add'):.1f} ms, removing one "
        f"{found.of('remove'):.1f} ms and another strategy {found.of('strategy'):.2f} ms, against "
        f"{restarts[most]:.0f} ms to stop all and start again; no result of the others changes",
    )


EXPERIMENT = Experiment(
    name="reconfiguration",
    figure="Bai et al., query graphs, §1: reconfiguration",
    claim="queries are added and removed, and strategies, break nodes and levels change, while others run, "
    "at a fraction of what starting again costs, and no result of the others changes",
    method="aggregates over windows of ten seconds, with 2,000 rows a second in pushes of 100; each second "
    "one change of each kind; CPU time of the change, with parsing and planning where a query is added; for "
    "comparison a snapshot, and a new engine with the same queries that continues from it",
    differs="The paper says that its model keeps the overhead of reconfiguration low, and has no numbers.",
    run=run,
)
