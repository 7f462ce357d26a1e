"""How many NEXMark events a second one core can make, all columns of all three streams.

    nice python -m benchmarks.nexmark_bench

The best of several runs by CPU time, so that other processes on the machine do not count.
"""

from __future__ import annotations

import sys
from time import process_time

from benchmarks.report import OUT, Result, write
from headrace.connectors.nexmark import NexmarkGenerator

BATCH, EVENTS, RUNS = 50_000, 1_000_000, 5
FLOOR = 2_000_000


def events_per_second(generator: NexmarkGenerator) -> float:
    """Events in the batches of a run over the CPU time of making them."""
    start = process_time()
    for begin in range(0, EVENTS, BATCH):
        generator.batches(begin, BATCH)
    return EVENTS / (process_time() - start)


def main() -> int:
    """Measure, write, and say whether the floor holds."""
    ways = {
        "generator.events_per_s": NexmarkGenerator(seed=1),
        "generator.disordered.events_per_s": NexmarkGenerator(seed=1, disorder=100, delayed=0.1),
    }
    results: list[Result] = []
    for name, generator in ways.items():
        generator.batches(0, BATCH)
        best = max(events_per_second(generator) for _ in range(RUNS))
        results.append({"name": name, "value": best, "unit": "events/s", "floor": FLOOR})
    return 0 if write(OUT / "nexmark.json", results) else 1


if __name__ == "__main__":
    sys.exit(main())
