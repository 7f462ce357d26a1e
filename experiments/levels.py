"""§7.3 of Srivastava & Widom: latency and peak memory of heartbeats per query, per operator, memory-aware."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from experiments.arrivals import SECOND, Instants, poisson
from experiments.result import WARM_UP, Conditions, Experiment, Line, Measure, Panel, Result
from experiments.simulation import ARRIVED, Feed, Simulation, Trace, run_in_turns
from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.plan.nodes.core import IStream, Join, Plan, Source, Window
from headrace.plan.nodes.windows import Range
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

LEVELS = {"query": "query-level", "operator": "operator-level", "memory": "memory-aware"}
SOURCES = [
    Source(f"s{i}", pa.schema([(f"k{i}", pa.int64()), (f"{ARRIVED}{i}", pa.int64())])) for i in (1, 2, 3)
]
NAMES = [source.name for source in SOURCES]
RATES = {"s1": 60.0, "s2": 60.0, "s3": 5.0}
RANGE = SECOND // 4
LAG = 2 * SECOND
Curves = dict[str, list[float]]
WORST = (
    "where O1 makes about one row of each, its measured selectivity goes back and forth over 1 and its label "
    "with it, and both its rows and their results are held for a while"
)
KEYS = (150, 30, 15, 6, 2)


def figure_5() -> Plan:
    """O1 joins S1 and S2 on a key, O2 pairs what it makes with all of S3."""
    s1, s2, s3 = (Window(source, Range(RANGE)) for source in SOURCES)
    return IStream(Join(Join(s1, s2, ("k1",), ("k2",)), s3))


def engine_at(level: str, strategy: str = "auto") -> Engine:
    """Each stream vouches for itself, and S3 comes two seconds later than the others."""
    skew = SkewMatrix.of(NAMES, {(name, name): [(0, 1)] for name in NAMES})
    engine = Engine(strategy=strategy)
    rules = Rules(disordered=True, enforce="strict")
    engine.streams.manage(HeartbeatGenerator(Bounds.of(skew, timeout=10**15)), dict.fromkeys(SOURCES, rules))
    engine.add("q", figure_5())
    engine.scheduling.set_level(level)
    return engine


def held_bytes(engine: Engine) -> int:
    """The engine's own account of its memory: operators' state and buffers."""
    return engine.metrics().bytes


def rows_of(sent: dict[str, Instants], arrived: dict[str, Instants], keys: int) -> Feed:
    """Rows with random keys out of so many."""
    rng = np.random.default_rng(51)
    made = {
        source.name: pa.RecordBatch.from_arrays(
            [pa.array(rng.integers(0, keys, len(sent[source.name]))), pa.array(arrived[source.name])],
            schema=source.columns,
        )
        for source in SOURCES
    }

    def feed(engine: Engine, stream: str, row: int) -> None:
        engine.push(stream, made[stream].slice(row, 1), sent[stream][row : row + 1])

    return feed


Found = list[tuple[float, list[Trace]]]


def compared(keys: Sequence[int], seconds: float, conditions: Conditions) -> Found:
    """For each number of keys, rows that O1 makes of each it takes and what each level shows."""
    sent = {name: poisson(rate, seconds, seed=50 + i) for i, (name, rate) in enumerate(RATES.items())}
    arrivals = {name: sent[name] + (LAG if name == "s3" else 0) for name in NAMES}
    groups = [
        [Simulation(engine_at(level), arrivals, conditions, gauge=held_bytes, feed=feed) for level in LEVELS]
        for feed in (rows_of(sent, arrivals, each) for each in keys)
    ]
    traces = run_in_turns(groups)
    first = [next(n for n in group[1].engine.graph.nodes if type(n.plan) is Join) for group in groups]
    return [(o1.operator.rows_out / o1.rows_in, of) for o1, of in zip(first, traces, strict=True)]


def run(conditions: Conditions) -> Result:
    """From an O1 that passes one row in ten to one that makes eight of each."""
    seconds = conditions.seconds(2.5, 3.0, 60.0)
    keys = conditions.of((2,), KEYS, KEYS)
    compared([10], 0.5, WARM_UP)
    found = compared(keys, seconds, conditions)
    made = [ratio for ratio, _ in found]
    latency = {level: [traces[i].release_ms for _, traces in found] for i, level in enumerate(LEVELS)}
    memory = {level: [traces[i].peak / 1024 for _, traces in found] for i, level in enumerate(LEVELS)}
    x = "Rows that O1 makes of each row it takes"
    panels = [
        Panel(title, x, y, [Line(LEVELS[level], made, values[level]) for level in LEVELS], "log", "log")
        for title, y, values in (
            ("(a) latency", "From the last proof to the answer (ms)", latency),
            ("(b) memory", "Peak memory (KiB)", memory),
        )
    ]
    few, many = 0, len(keys) - 1
    return Result(
        [
            *_rows("selective", few, latency, memory),
            *_rows("proliferative", many, latency, memory),
            *(
                Measure(f"levels.{name}", of[level][many] / of["query"][many], "×", paper=paper, **bound)
                for name, of, level, paper, bound in (
                    ("operator_over_query_latency", latency, "operator", "lower", {"ceiling": 1.0}),
                    ("operator_over_query_memory", memory, "operator", "higher", {"floor": 1.2}),
                    ("memory_aware_over_query_memory", memory, "memory", "not higher", {"ceiling": 1.1}),
                )
            ),
            Measure("levels.memory_aware_worst", max(_ratios(memory)), "×", differs=WORST),
        ],
        panels,
        f"with {made[many]:.1f} rows made of one: "
        + "; ".join(
            f"{word} {latency[level][many]:.2f} ms, {memory[level][many]:,.0f} KiB"
            for level, word in LEVELS.items()
        ),
    )


def _ratios(memory: Curves) -> list[float]:
    """Memory of memory-aware heartbeats against query-level ones, for each O1."""
    return [aware / query for aware, query in zip(memory["memory"], memory["query"], strict=True)]


def _rows(which: str, at: int, latency: Curves, memory: Curves) -> list[Measure]:
    return [
        measure
        for level in LEVELS
        for measure in (
            Measure(f"levels.{which}.{level}_ms", latency[level][at], "ms"),
            Measure(f"levels.{which}.{level}_kib", memory[level][at], "KiB"),
        )
    ]


EXPERIMENT = Experiment(
    name="levels",
    figure="Srivastava & Widom, §7.3",
    claim="operator-level heartbeats give results earlier than query-level ones, and hold more if an "
    "operator makes more rows than it takes; memory-aware ones hold no more than query-level",
    method="Figure 5: O1 joins two streams of 60 rows/s on a key over 0.25 s, O2 pairs that with a stream "
    "of 5 rows/s that comes two seconds later; latency from the arrival that makes a result "
    "provable (S3 catching up) to the result, on the simulated clock; memory is the engine's count "
    "of state and buffers after each step of an operator and each arrival; all levels over the same "
    "arrivals, taking turns event by event, a twentieth of each number of keys at a time",
    run=run,
)
