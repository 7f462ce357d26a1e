"""Run a NEXMark query over generated events: `python -m examples.nexmark q5 --events 100000`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from time import perf_counter

from examples.nexmark import NAMES, arrive, engine_for, load
from headrace import Engine
from headrace.connectors.nexmark import NexmarkGenerator
from headrace.flow.batch import Batch

BATCH = 10_000


def run(engine: Engine, generator: NexmarkGenerator, events: int) -> Iterator[Batch]:
    """The answers of the engine's one query, as they come."""
    for start in range(0, events, BATCH):
        arrive(engine, generator.batches(start, min(BATCH, events - start)))
        yield from engine.drain()
    for stream in engine.streams:
        engine.streams.end(stream)
    yield from engine.drain()


def main(arguments: Sequence[str] | None = None) -> int:
    """Show the first answers, then how many there were and how long they took."""
    parser = argparse.ArgumentParser(prog="python -m examples.nexmark", description=__doc__)
    parser.add_argument("query", choices=NAMES)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=10_000, help="events a second, in the events' own time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--disorder", type=int, default=1, help="size of the groups that arrive scattered")
    parser.add_argument("--show", type=int, default=5, help="how many answers to show")
    parser.add_argument("--explain", action="store_true", help="show the plan instead")
    options = parser.parse_args(arguments)
    generator = NexmarkGenerator(seed=options.seed, rate=options.rate, disorder=options.disorder)
    query = load(options.query)
    engine = engine_for(generator, {query.name: query})
    print(query.text.strip(), end="\n\n")
    if options.explain:
        print(engine.explain(query.name))
        return 0
    _report(engine, generator, options.events, options.show)
    return 0


def _report(engine: Engine, generator: NexmarkGenerator, events: int, show: int) -> None:
    answers, start = 0, perf_counter()
    for batch in run(engine, generator, events):
        for row in batch.data.slice(0, max(0, show - answers)).to_pylist():
            print("  " + ", ".join(f"{name}={_short(value)}" for name, value in row.items()))
        answers += len(batch)
    took = perf_counter() - start
    print(f"\n{answers:,} answers to {events:,} events in {took:.2f} s: {events / took:,.0f} events/s")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."


if __name__ == "__main__":
    sys.exit(main())
