"""Where to restore order: before or after rows become fewer or more, or not at all (001, §4; 003, §7.5)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments.result import Conditions, Experiment, Line, Measure, Panel, Result
from headrace.arrays import Ints
from headrace.engine import Engine
from headrace.graph.admission import Rules
from headrace.sql import StreamDef, query
from headrace.time.bounds import Bounds
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.skew import SkewMatrix

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("parts", pa.list_(pa.int64()))])
S = StreamDef("s", SCHEMA, ticks_per_second=None)
PARTS = "SELECT k, part FROM s, UNNEST(parts) AS t(part) WHERE part < {passing}"
WINDOWS = "SELECT k, count(*) AS n, sum(v) AS total FROM s [RANGE 200 SLIDE 100] GROUP BY k"
FANS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
PASSING = (9, 3)
DISORDERS = (200, 1_000, 5_000, 20_000)
LABELS = {"first": "as rows come in", "late": "as late as possible", "cost": "by cost"}
PUSH = 250


@dataclass(frozen=True)
class Cost:
    """Mean KiB that wait in the engine, seconds of CPU, and results."""

    waiting: float
    seconds: float
    results: int


def stream(rows: int, fan: float, disorder: int) -> list[tuple[pa.RecordBatch, Ints]]:
    """A row at each tick, each with some parts; rows come up to `disorder` ticks late."""
    rng = np.random.default_rng(7)
    sent = np.arange(rows)
    order = np.argsort(sent + rng.integers(0, disorder, rows), kind="stable")
    sizes = rng.poisson(fan, rows)
    parts = pa.ListArray.from_arrays(
        pa.array(np.append(0, np.cumsum(sizes)), pa.int32()), pa.array(rng.integers(0, 9, int(sizes.sum())))
    )
    columns = [pa.array(rng.integers(0, 5, rows)), pa.array(rng.integers(0, 100, rows)), parts]
    data = pa.RecordBatch.from_arrays(columns, schema=SCHEMA).take(pa.array(order))
    return [(data.slice(i, PUSH), sent[order[i : i + PUSH]]) for i in range(0, rows, PUSH)]


def cost(text: str, batches: Sequence[tuple[pa.RecordBatch, Ints]], disorder: int, placement: str) -> Cost:
    """Run a query with order restored in one way."""
    engine = Engine()
    bounds = Bounds.of(SkewMatrix.of(["s"], {("s", "s"): [(0, disorder)]}), timeout=10**9)
    engine.streams.manage(HeartbeatGenerator(bounds), {S.source: Rules(disordered=True, enforce="strict")})
    engine.graph.placement = placement
    engine.add("q", query(text, [S], ticks_per_second=None))
    held: list[int] = []
    results, begun = 0, time.process_time()
    for now, (data, times) in enumerate(batches, start=1):
        engine.push("s", data, times, now=now)
        results += sum(len(batch) for batch in engine.drain("q"))
        held.append(sum(node.operator.memory.bytes() for node in engine.graph.nodes))
    engine.streams.end("s")
    results += sum(len(batch) for batch in engine.drain("q"))
    return Cost(float(np.mean(held)) / 1024, time.process_time() - begun, results)


Choices = dict[str, Cost]


def choices(text: str, rows: int, fan: float, disorder: int, ways: Sequence[str]) -> Choices:
    """Each way to restore order over the same rows; all have as many results."""
    batches = stream(rows, fan, disorder)
    found = {way: cost(text, batches, disorder, way) for way in ways}
    assert len({each.results for each in found.values()}) == 1, found
    return found


def over_best(found: Choices) -> float:
    """The choice by cost against the better of the others: bytes that wait."""
    return found["cost"].waiting / min(each.waiting for way, each in found.items() if way != "cost")


def run(conditions: Conditions) -> Result:
    """Rows that become fewer or more, for several disorders; then windows, sorted first or not at all."""
    fans = conditions.of((0.1, 1.0, 4.0), FANS, FANS)
    disorders = conditions.of((2_000,), (2_000, 5_000), (2_000, 5_000, 20_000))
    periods = conditions.of(6, 10, 20)
    cases = [(passing, fan, disorder) for passing in PASSING for fan in fans for disorder in disorders]
    found = {
        (passing, fan, disorder): choices(
            PARTS.format(passing=passing), periods * disorder, fan, disorder, tuple(LABELS)
        )
        for passing, fan, disorder in cases
    }
    worst = max(found, key=lambda case: over_best(found[case]))
    fixed = {
        way: max(each[way].waiting / min(c.waiting for c in each.values()) for each in found.values())
        for way in ("first", "late")
    }
    seconds = {way: sum(each[way].seconds for each in found.values()) for way in LABELS}
    spans = conditions.of((1_000, 20_000), DISORDERS, DISORDERS)
    windows = {d: choices(WINDOWS, max(8 * d, 4_000), 1.0, d, ("first", "cost")) for d in spans}
    longest = windows[spans[-1]]
    return Result(
        [
            Measure(
                "order.cost_chosen_over_best", over_best(found[worst]), "×", ceiling=1.1, paper="future work"
            ),
            Measure("order.first_over_best", fixed["first"], "×"),
            Measure("order.late_over_best", fixed["late"], "×"),
            Measure("order.cpu_chosen_over_first", seconds["cost"] / seconds["first"], "×"),
            Measure("order.cpu_chosen_over_late", seconds["cost"] / seconds["late"], "×"),
            Measure(
                "order.windows_unsorted_over_sorted",
                longest["cost"].waiting / longest["first"].waiting,
                "×",
                ceiling=0.5,
                paper="less",
            ),
        ],
        [
            _early_or_late(fans, {fan: found[PASSING[0], fan, disorders[-1]] for fan in fans}),
            _against_disorder(spans, windows),
        ],
        f"by cost at most {over_best(found[worst]):.2f} × the bytes of the better fixed choice wait, sorted "
        f"first up to {fixed['first']:.1f} ×, late up to {fixed['late']:.1f} ×; windows in any order hold "
        f"{longest['cost'].waiting:,.0f} KiB, and {longest['first'].waiting:,.0f} KiB over sorted rows",
    )


def _early_or_late(fans: Sequence[float], found: dict[float, Choices]) -> Panel:
    styles = {"first": "points", "late": "points", "cost": "analytic"}
    lines = [
        Line(label, list(fans), [found[fan][way].waiting for fan in fans], styles[way])
        for way, label in LABELS.items()
    ]
    return Panel(
        "(a) order early or late", "Rows that a row becomes", "Mean memory (KiB)", lines, y_scale="log"
    )


def _against_disorder(spans: Sequence[int], found: dict[int, Choices]) -> Panel:
    labels = {"first": "sorted as they come in", "cost": "panes in any order"}
    lines = [
        Line(label, list(spans), [found[span][way].waiting for span in spans])
        for way, label in labels.items()
    ]
    x = "Disorder (rows)"
    return Panel("(b) sorting against disorder", x, "Mean memory (KiB)", lines, x_scale="log", y_scale="log")


EXPERIMENT = Experiment(
    name="order",
    figure="Tucker & Maier §4; Srivastava & Widom §7.5",
    claim="order restored by cost keeps at most 1.1 × the bytes waiting of the better fixed choice (left for "
    "future work); aggregates over windows need no order and hold less without it",
    method="rows that come out of order within a bound; (a) each becomes several, of which a condition lets "
    "all or a third pass, and results are in order: bytes that wait, averaged over the run, if order is "
    "restored as rows come in, after all steps, or where it is measured to be cheapest; (b) a window "
    "aggregate of five groups, with rows sorted first and with open panes that take them in any order",
    run=run,
)
