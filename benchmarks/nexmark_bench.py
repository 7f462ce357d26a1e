"""NEXMark: how many events a second one core can make, and how many the engine answers, query by query.

    nice python -m benchmarks.nexmark_bench [q5 ...]

All by CPU time, so that other processes on the machine do not count. The queries are those of
`examples/nexmark`, over events that arrive scattered in groups of 100; making the events is not counted.
Each has run before on fewer events, so that compiling kernels is not counted either.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import process_time

from benchmarks.report import OUT, Result, write
from examples.nexmark import NAMES, arrive, engine_for, load
from headrace.connectors.nexmark import NexmarkGenerator

BATCH, EVENTS, RUNS = 50_000, 1_000_000, 5
FLOOR = 2_000_000
ASKED, WARMING, STEP = 300_000, 20_000, 10_000


def made_per_second(generator: NexmarkGenerator) -> float:
    """Events in the batches of a run over the CPU time of making them."""
    start = process_time()
    for begin in range(0, EVENTS, BATCH):
        generator.batches(begin, BATCH)
    return EVENTS / (process_time() - start)


def answered_per_second(name: str, events: int) -> float:
    """Events over the CPU time of the engine, from the first push to the last answer."""
    generator = NexmarkGenerator(seed=1, disorder=100)
    engine = engine_for(generator, {name: load(name)})
    spent = 0.0
    for begin in range(0, events, STEP):
        rows = generator.batches(begin, min(STEP, events - begin))
        start = process_time()
        arrive(engine, rows)
        engine.drain()
        spent += process_time() - start
    start = process_time()
    for stream in engine.graph.sources:
        engine.end(stream)
    engine.drain()
    return events / (spent + process_time() - start)


def main(names: Sequence[str]) -> int:
    """Measure, write, and say whether the floor holds."""
    ways = {
        "generator.events_per_s": NexmarkGenerator(seed=1),
        "generator.disordered.events_per_s": NexmarkGenerator(seed=1, disorder=100, delayed=0.1),
    }
    results: list[Result] = []
    for name, generator in ways.items():
        generator.batches(0, BATCH)
        best = max(made_per_second(generator) for _ in range(RUNS))
        results.append({"name": name, "value": best, "unit": "events/s", "floor": FLOOR})
    for name in names:
        answered_per_second(name, WARMING)
        rate = answered_per_second(name, ASKED)
        results.append({"name": f"embedded.{name}.events_per_s", "value": rate, "unit": "events/s"})
    return 0 if write(OUT / "nexmark.json", results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or NAMES))
