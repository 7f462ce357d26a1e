"""NEXMark: how many events a second one core can make, and how many are answered, query by query.

    python -m benchmarks.nexmark_bench [q5 ...] [--runtime embedded|spark] [--events N]

With `--runtime spark` each query runs through `headrace.spark.apply` in one session, and its rows must be
those that the embedded engine gives. Embedded, all is by CPU time, so that other processes on the machine
do not count. The queries are those of `examples/nexmark`, over events that arrive scattered in groups of
100; making the events is not counted. Each has run before on fewer events, so that compiling kernels is not
counted either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import process_time

from benchmarks.report import OUT, Result, write
from examples.nexmark import NAMES, arrive, engine_for, load
from headrace.connectors.nexmark import NexmarkGenerator

BATCH, EVENTS, RUNS = 50_000, 1_000_000, 5
FLOOR = 2_000_000
ASKED, WARMING, STEP = 300_000, 20_000, 10_000
ON_SPARK = 20_000


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


def generated() -> list[Result]:
    """The generator alone, in order and out of order."""
    ways = {
        "generator.events_per_s": NexmarkGenerator(seed=1),
        "generator.disordered.events_per_s": NexmarkGenerator(seed=1, disorder=100, delayed=0.1),
    }
    results: list[Result] = []
    for name, generator in ways.items():
        generator.batches(0, BATCH)
        best = max(made_per_second(generator) for _ in range(RUNS))
        results.append({"name": name, "value": best, "unit": "events/s", "floor": FLOOR})
    return results


def on_engine(names: Sequence[str], events: int) -> list[Result]:
    """Each query on the embedded engine."""
    results: list[Result] = []
    for name in names:
        answered_per_second(name, WARMING)
        rate = answered_per_second(name, events)
        results.append({"name": f"embedded.{name}.events_per_s", "value": rate, "unit": "events/s"})
        print(f"  {name:4} embedded {rate:12,.0f} events/s", flush=True)
    return results


def on_spark(names: Sequence[str], events: int) -> list[Result]:
    """Each query on Spark, its rows compared with those of the engine."""
    import headrace
    from benchmarks import nexmark_runs as runs

    quiet = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
    spark = headrace.spark.session("nexmark", "local[2]", **quiet)
    house, results = runs.house(events), list[Result]()
    with tempfile.TemporaryDirectory(prefix="nexmark") as folder:
        runs.write_files(Path(folder), house, events)
        for name in names:
            mine = runs.embedded(name, house, events)
            its = runs.on_spark(spark, name, Path(folder), house)
            same = runs.rows_of(mine.answers) == runs.rows_of(its.answers)
            rate = events / its.seconds
            told = "equal" if same else f"NOT EQUAL: {mine.answers.num_rows} and {its.answers.num_rows} rows"
            print(
                f"  {name:4} spark {rate:12,.0f} events/s  {mine.answers.num_rows:8,} answers, {told}",
                flush=True,
            )
            results.append({"name": f"spark.{name}.events_per_s", "value": rate, "unit": "events/s"})
            results.append({"name": f"spark.{name}.equal", "value": float(same), "unit": "", "floor": 1.0})
    spark.stop()
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, and say whether the floors hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("queries", nargs="*", metavar="query", help=f"of {', '.join(NAMES)}; all if none")
    parser.add_argument("--runtime", choices=("embedded", "spark"), default="embedded")
    parser.add_argument("--events", type=int)
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.queries if name not in NAMES]:
        parser.error(f"no query {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names = asked.queries or NAMES
    if asked.runtime == "spark":
        return 0 if write(OUT / "nexmark_spark.json", on_spark(names, asked.events or ON_SPARK)) else 1
    return 0 if write(OUT / "nexmark.json", generated() + on_engine(names, asked.events or ASKED)) else 1


if __name__ == "__main__":
    sys.exit(main())
