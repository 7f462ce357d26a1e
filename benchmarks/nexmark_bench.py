"""NEXMark: how many events a second one core can make, and how many are answered, query by query.

    python -m benchmarks.nexmark_bench [q5 ...] [--runtime embedded|spark] [--events N] [--turns N]

With `--runtime spark` each query runs through `headrace.spark.apply` in one session, beside Spark's own
operators where they can answer it (`benchmarks/nexmark_spark.py`), on 10 M events. With at most 100,000
events, its rows are compared with those of the embedded engine instead. A query that fails is reported, and
the others go on. Embedded, all is by CPU time, so that other processes on the machine do not count. The
queries are those of `examples/nexmark`, over events that arrive scattered in groups of 100; making the events
is not counted. Embedded, each has run before on fewer events, so that compiling kernels is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

from benchmarks.report import OUT, Result, table, write
from examples.nexmark import NAMES, arrive, engine_for, load
from examples.spark_log import spark_speaks_to
from headrace.connectors.nexmark import NexmarkGenerator, Silence
from headrace.errors import HeadraceWarning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH, EVENTS, RUNS = 50_000, 1_000_000, 5
FLOOR = 2_000_000
ASKED, WARMING, STEP = 300_000, 20_000, 10_000
ON_SPARK = 10_000_000
COMPARED = 100_000
"""Up to so many events, answers on Spark are compared with those of the embedded engine."""
SECOND = 1_000_000


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
    for stream in engine.streams:
        engine.streams.end(stream)
    engine.drain()
    return events / (spent + process_time() - start)


def generated() -> list[Result]:
    """The generator alone: in order, out of order, and so with a stream that falls silent on the way."""
    quiet = (
        Silence("auction", 20 * SECOND, 40 * SECOND),
        Silence("bid", 50 * SECOND, 51 * SECOND, held=True),
    )
    ways = {
        "generator.events_per_s": NexmarkGenerator(seed=1),
        "generator.disordered.events_per_s": NexmarkGenerator(seed=1, disorder=100, delayed=0.1),
        "generator.silent.events_per_s": NexmarkGenerator(seed=1, disorder=100, delayed=0.1, silences=quiet),
    }
    results: list[Result] = []
    for name, generator in ways.items():
        generator.batches(0, BATCH)
        best = max(made_per_second(generator) for _ in range(RUNS))
        results.append({"name": name, "value": best, "unit": "events/s", "floor": FLOOR})
    print(table(results), flush=True)
    return results


def on_engine(names: Sequence[str], events: int) -> list[Result]:
    """Each query on the embedded engine."""
    results: list[Result] = []
    print(f"{'query':5}  {'events/s of a core':>18}")
    for name in names:
        answered_per_second(name, WARMING)
        rate = answered_per_second(name, events)
        results.append({"name": f"embedded.{name}.events_per_s", "value": rate, "unit": "events/s"})
        print(f"{name:5}  {rate:18,.0f}", flush=True)
    return results


# --- Spark ------------------------------------------------------------------------------------------------


def on_spark(names: Sequence[str], events: int) -> list[Result]:
    """Each query on Spark, its rows compared with those of the engine."""
    import headrace
    from benchmarks import nexmark_runs as runs

    quiet = {"spark.ui.enabled": False, "spark.ui.showConsoleProgress": False, "spark.log.level": "ERROR"}
    house, results = runs.house(events), list[Result]()
    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "nexmark_spark.log"
    print(f"{events:,} events a query in {runs.BATCHES} micro-batches, local[2]; Spark speaks to {log}\n")
    print(f"{'query':5}  {'events/s':>9}  {'answers':>9}  as embedded", flush=True)
    with tempfile.TemporaryDirectory(prefix="nexmark") as folder, spark_speaks_to(log):
        runs.write_files(Path(folder), house, events)
        spark = headrace.spark.session("nexmark", "local[2]", **quiet)
        for name in names:
            results += _compared(spark, name, Path(folder), house, events)
        spark.stop()
    equal = sum(each["value"] for each in results if each["name"].endswith(".equal"))
    print(f"{equal:.0f} of {len(names)} queries give the rows of the embedded engine")
    return results


def at_size(names: Sequence[str], events: int, turns: int, store: str) -> list[Result]:
    """Each query on Spark, beside Spark's own operators."""
    from benchmarks import nexmark_spark, spark_runs

    OUT.mkdir(parents=True, exist_ok=True)
    log = OUT / "nexmark_spark.log"
    print(f"Spark speaks to {log}")
    with spark_speaks_to(log):
        spark = spark_runs.session()
        try:
            return nexmark_spark.on_spark(spark, names, events, turns, spark_runs.STORES[store])
        finally:
            spark.stop()


def _compared(
    spark: SparkSession, name: str, folder: Path, house: NexmarkGenerator, events: int
) -> list[Result]:
    """One query on both runtimes, and its line of the table."""
    from benchmarks import nexmark_runs as runs

    mine = runs.embedded(name, house, events).answers
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", HeadraceWarning)
        try:
            its = runs.on_spark(spark, name, folder, house)
        except Exception as error:
            its = runs.Run(mine.schema.empty_table(), float("nan"), str(error).partition("\n")[0])
    same = not its.failed and runs.rows_of(mine) == runs.rows_of(its.answers)
    rate = events / its.seconds
    word = "yes" if same else its.failed or f"NO: {its.answers.num_rows:,} rows"
    notes = "; ".join(str(each.message) for each in told if issubclass(each.category, HeadraceWarning))
    print(f"{name:5}  {rate:9,.0f}  {mine.num_rows:9,}  {word:11}  {notes}".rstrip(), flush=True)
    return [
        {"name": f"spark.{name}.events_per_s", "value": rate, "unit": "events/s"},
        {"name": f"spark.{name}.equal", "value": float(same), "unit": "", "floor": 1.0},
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, write, and say whether the floors hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("queries", nargs="*", metavar="query", help=f"of {', '.join(NAMES)}; all if none")
    parser.add_argument("--runtime", choices=("embedded", "spark"), default="embedded")
    parser.add_argument("--events", type=int)
    parser.add_argument("--turns", type=int, default=5, help="on Spark: runs that are counted")
    parser.add_argument(
        "--native-store",
        choices=("session", "default"),
        default="session",
        help="the state store of Spark's own",
    )
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.queries if name not in NAMES]:
        parser.error(f"no query {', '.join(unknown)}; there are {', '.join(NAMES)}")
    names, on = asked.queries or NAMES, asked.runtime == "spark"
    if not on:
        results = generated() + on_engine(names, asked.events or ASKED)
    elif (asked.events or ON_SPARK) <= COMPARED:
        results = on_spark(names, asked.events)
    else:
        results = at_size(names, asked.events or ON_SPARK, asked.turns, asked.native_store)
    return 0 if write(OUT / f"nexmark{'_spark' if on else ''}.json", results, shown=True) else 1


if __name__ == "__main__":
    sys.exit(main())
