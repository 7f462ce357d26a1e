"""Headrace on Spark against Spark's own operators: same session, data and query, equal answers, one run.

    python -m benchmarks.spark_bench [PART ...] [--rows N] [--turns N] [--native-store default] [--out FILE]

Parts: tumbling, sliding, join, dedup, keys_1m, partitions_64, batch_floor, growth, nexmark. All parts in one
run make `benchmarks/out/spark.json`; some of them make `spark_PART….json` beside it, or with `--add` replace
their numbers in `spark.json`, if it was measured on this machine with these versions.
`benchmarks/spark_runs.py` says what is measured. `ours` reads files by Arrow, `dataframe` is Headrace over an
ordinary DataFrame. Results are in no order within a micro-batch on both sides.
All contenders first run over many small micro-batches, because Java compiles for the first hundred or so.
Windows of 1,000 keys take four times as many rows as the other parts: a micro-batch of few rows is mostly
what any micro-batch costs, which `batch_floor` measures.
Growth is the time of a micro-batch of 10,000 rows while the join state grows from nothing to 10 M rows: last
tenth over first tenth, of one run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import nexmark_spark
from benchmarks import spark_queries as queries
from benchmarks.report import OUT, Result, measured_before, write
from benchmarks.spark_queries import FILES, WINDOW, contenders
from benchmarks.spark_runs import (
    FIRST,
    STORES,
    TURNS,
    Contender,
    Measured,
    by_arrow,
    compared,
    dataframe,
    run,
    session,
    started,
    turns_of,
    write_files,
)
from examples.nexmark import NAMES
from examples.spark_log import spark_speaks_to

PHASES = (
    "latestOffset",
    "walCommit",
    "getBatch",
    "queryPlanning",
    "addBatch",
    "commitBatch",
    "commitOffsets",
    "triggerExecution",
)
FEW_KEYS = 4
"""By how much more rows there are in the parts with few keys."""
SMALL = 40
"""Micro-batches of each turn of `batch_floor`."""
WARM = 40
"""Micro-batches of each contender before the first part."""


@dataclass(frozen=True)
class Bench:
    """What all parts are given: where, how much, how often, and the settings of Spark's own queries."""

    spark: SparkSession
    folder: Path
    rows: int
    held: int
    events: int = 10_000_000
    turns: int = TURNS
    store: str = "session"

    @property
    def native(self) -> dict[str, str]:
        """The settings of Spark's own queries."""
        return STORES[self.store]

    def files(self, name: str, rows: int, keys: int, seed: int, copies: int = 1) -> tuple[Path, int]:
        """Two files with so many rows, after a small first one; and how many rows count."""
        path = self.folder / name
        return path, write_files(path, FILES + 1, rows // FILES, keys, 150, seed, FIRST, copies)


def warm_up(bench: Bench) -> None:
    """Micro-batches of few rows of all contenders, before anything is counted.

    Java compiles for the first hundred or so of a session. Without them, the parts that come first would
    measure mostly that.
    """
    small = bench.folder / "warm"
    write_files(small, WARM, 2_000, 1000, 5, 10)
    size, slide = WINDOW["tumbling"]
    native = Contender(queries.native_windows(bench.spark, small, size, slide), bench.native)
    both = contenders(lambda read: queries.our_windows(bench.spark, small, size, slide, read), native)
    print(f"  warm-up: {WARM} micro-batches of each", flush=True)
    turns_of("warm-up", bench.spark, both, ("k", "n", "s", "w"), 0)


def windows(bench: Bench, name: str, floors: dict[str, float]) -> list[Result]:
    """A grouped count and sum over windows, 1,000 keys."""
    folder, rows = bench.files(name, FEW_KEYS * bench.rows, 1000, 1)
    size, slide = WINDOW[name]
    native = Contender(queries.native_windows(bench.spark, folder, size, slide), bench.native)
    both = contenders(lambda read: queries.our_windows(bench.spark, folder, size, slide, read), native)
    return compared(name, bench.spark, both, rows, floors, ("k", "n", "s", "w"), bench.turns)


def tumbling(bench: Bench) -> list[Result]:
    return windows(bench, "tumbling", {"ours": 2.0, "dataframe": 1.0})


def sliding(bench: Bench) -> list[Result]:
    return windows(bench, "sliding", {"ours": 4.0})


def join(bench: Bench) -> list[Result]:
    """Two streams within ten seconds, 100,000 keys; four files each."""
    side = max(400, bench.rows // 10)

    def made(name: str, rows: int) -> tuple[dict[str, Contender], int]:
        left, right = bench.folder / f"{name}_left", bench.folder / f"{name}_right"
        first = min(FIRST // 10, rows // 4)
        counted = write_files(left, 5, rows // 4, 100_000, 60, 2, first)
        counted += write_files(right, 5, rows // 4, 100_000, 60, 3, first)
        native = Contender(queries.native_join(bench.spark, left, right), bench.native)
        return contenders(lambda read: queries.our_join(bench.spark, left, right, read), native), counted

    # Spark's own join takes a minute for two sides of 1 M rows: fewer warm up.
    few, _ = made("few", max(400, side // 10))
    turns_of("join, few rows", bench.spark, few, ("k", "n", "s"), 0)
    both, rows = made("many", side)
    return compared("join", bench.spark, both, rows, {"ours": 8.0}, turns=bench.turns, warm=True)


def dedup(bench: Bench) -> list[Result]:
    """Each row comes twice."""
    folder, rows = bench.files("dedup", bench.rows // 4, 1_000_000, 4, copies=2)
    native = Contender(queries.native_dedup(bench.spark, folder), bench.native)
    both = contenders(lambda read: queries.our_dedup(bench.spark, folder, read), native)
    return compared("dedup", bench.spark, both, rows, {"ours": 2.0}, turns=bench.turns)


def keys_1m(bench: Bench) -> list[Result]:
    """Tumbling windows with 1 M keys: nearly as many results as rows.

    `ours` and `dataframe` are jobs, which write results as Parquet files by Arrow; with `apply`, Spark does.
    """
    size, slide = WINDOW["tumbling"]

    def made(folder: Path) -> dict[str, Contender]:
        def job(source: queries.Source) -> Contender:
            return Contender(queries.our_outputs(bench.spark, folder, size, slide, source))

        return {
            "native": Contender(queries.native_windows(bench.spark, folder, size, slide), bench.native),
            "ours": job(by_arrow),
            "dataframe": job(dataframe),
            "apply": Contender(queries.our_windows(bench.spark, folder, size, slide, by_arrow)),
        }

    columns = ("k", "n", "s", "w")
    # A turn of Spark's own takes half a minute: fewer rows warm up.
    few, _ = bench.files("few_keys", bench.rows // 40, 1_000_000, 10)
    turns_of("keys_1m, few rows", bench.spark, made(few), columns, 0)
    folder, rows = bench.files("keys", bench.rows // 2, 1_000_000, 5)
    found = made(folder)
    return compared("keys_1m", bench.spark, found, rows, {"ours": 8.0}, columns, bench.turns, warm=True)


def partitions_64(bench: Bench) -> list[Result]:
    """Tumbling windows in a session with 64 shuffle partitions.

    `ours` and `dataframe` are jobs, which choose their number of partitions; `apply` cannot.
    """
    folder, rows = bench.files("partitions", FEW_KEYS * bench.rows, 1000, 6)
    size, slide = WINDOW["tumbling"]
    many = {"spark.sql.shuffle.partitions": 64}

    def job(source: queries.Source) -> Contender:
        return Contender(queries.our_outputs(bench.spark, folder, size, slide, source), many)

    found = {
        "native": Contender(
            queries.native_windows(bench.spark, folder, size, slide), {**bench.native, **many}
        ),
        "ours": job(by_arrow),
        "dataframe": job(dataframe),
        "apply": Contender(queries.our_windows(bench.spark, folder, size, slide, by_arrow), many),
    }
    columns = ("k", "n", "s", "w")
    return compared("partitions_64", bench.spark, found, rows, {"ours": 1.0}, columns, bench.turns)


def batch_floor(bench: Bench) -> list[Result]:
    """The median micro-batch of 200 rows, of a warm session: Java compiles for the first hundred or so.

    `ordered` puts the results of each micro-batch in order, which is one more task in it.
    """
    small = bench.folder / "small"
    write_files(small, SMALL, 200, 100, 5, 7)
    size, slide = WINDOW["tumbling"]
    native = Contender(queries.native_windows(bench.spark, small, size, slide), bench.native)
    both = {
        "native": native,
        "ours": Contender(queries.our_windows(bench.spark, small, size, slide, dataframe)),
        "ordered": Contender(queries.our_windows(bench.spark, small, size, slide, dataframe, ordered=True)),
        "files": Contender(queries.our_windows(bench.spark, small, size, slide, by_arrow)),
    }
    print(f"  batch_floor: 200 rows, {bench.turns} turns", flush=True)
    measured = turns_of("batch_floor", bench.spark, both, ("k", "n", "s", "w"), bench.turns)
    found = {who: phases(each) for who, each in measured.items()}
    print(f"    {'ms':16}" + "".join(f"{who:>8}" for who in found))
    for phase in PHASES:
        print(f"    {phase:16}" + "".join(f"{each[phase]:8.0f}" for each in found.values()), flush=True)
    whole = {who: each["triggerExecution"] for who, each in found.items()}
    cpu = {who: each.cpu / SMALL for who, each in measured.items()}
    print("    CPU ms".ljust(20) + "".join(f"{1000 * each:8.0f}" for each in cpu.values()), flush=True)
    results: list[Result] = [
        {
            "name": "spark.batch_floor.vs_native",
            "value": whole["ours"] / whole["native"],
            "unit": "x",
            "ceiling": 1.0,
        },
        {"name": "spark.batch_floor.cpu_vs_native", "value": cpu["ours"] / cpu["native"], "unit": "x"},
    ]
    results += [
        {"name": f"spark.batch_floor.{who}.vs_native", "value": whole[who] / whole["native"], "unit": "x"}
        for who in ("ordered", "files")
    ]
    for who, each in found.items():
        results += [
            {"name": f"spark.batch_floor.{who}.{phase}", "value": each[phase], "unit": "ms"}
            for phase in PHASES
        ]
    return results


def phases(measured: Measured) -> dict[str, float]:
    """The median time of each phase of a micro-batch, of those after the tenth; the last one is another."""
    batches = [each for made in measured.runs for each in made.batches[10:SMALL]]
    return {phase: statistics.median(each.get(phase, 0) for each in batches) for phase in PHASES}


def growth(bench: Bench) -> list[Result]:
    """Rows that stay in the state of a join, 10,000 a micro-batch."""
    files = bench.held // 10_000
    held, few = bench.folder / "held", bench.folder / "few"
    write_files(held, files, 10_000, 1_000_000, 5, 8)
    write_files(few, files, 10, 1_000_000, 5, 9)
    text = "SELECT a.k AS k, a.v AS n, b.v AS s FROM a [RANGE 100 DAYS], b [NOW] WHERE a.k = b.k"
    frames = {"a": dataframe(bench.spark, held), "b": dataframe(bench.spark, few)}
    settings = {"spark.sql.streaming.numRecentProgressUpdates": files + 10}
    made = run(
        bench.spark,
        Contender(started(lambda: queries.applied(text, frames)), settings),
        lambda out: (),
    )
    taken = [each["triggerExecution"] for each in made.batches[5:files]]
    tenth = max(1, len(taken) // 10)
    first, last = statistics.mean(taken[:tenth]), statistics.mean(taken[-tenth:])
    print(
        f"  growth, {bench.held:,} rows held: {first:.0f} ms at first, {last:.0f} ms at last, "
        f"worst {max(taken)} ms, {made.memory / 2**30:.1f} GiB",
        flush=True,
    )
    return [
        {"name": "spark.growth", "value": last / first, "unit": "x", "ceiling": 1.2},
        {"name": "spark.growth.rows_held", "value": float(bench.held), "unit": "rows"},
        {"name": "spark.growth.memory", "value": made.memory / 2**20, "unit": "MiB"},
    ]


def nexmark(bench: Bench) -> list[Result]:
    """NEXMark, 10 M events for each query."""
    return nexmark_spark.on_spark(bench.spark, NAMES, bench.events, bench.turns, bench.native)


PARTS: dict[str, Callable[[Bench], list[Result]]] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "join": join,
    "dedup": dedup,
    "keys_1m": keys_1m,
    "partitions_64": partitions_64,
    "batch_floor": batch_floor,
    "growth": growth,
    "nexmark": nexmark,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if none")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--held", type=int, default=10_000_000)
    parser.add_argument("--events", type=int, default=10_000_000, help="of NEXMark")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument(
        "--add", action="store_true", help="replace these parts in spark.json, keep the others"
    )
    parser.add_argument(
        "--native-store", choices=STORES, default="session", help="the state store of Spark's own queries"
    )
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=VALUE", help="settings of the session")
    parser.add_argument("--out", type=Path, help="the file for the results")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    chosen = asked.parts or list(PARTS)
    alone = OUT / f"{'_'.join(['spark', *asked.parts])}.json"
    out = asked.out or (OUT / "spark.json" if asked.add else alone)
    before = measured_before(out) if asked.add else []
    found: list[Result] = []
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="spark_bench") as name,
        spark_speaks_to(OUT / "spark.log"),
    ):
        spark = session(**dict(each.split("=", 1) for each in asked.set))
        tempfile.tempdir = name  # answers and checkpoints of all runs go with it
        bench = Bench(
            spark, Path(name), asked.rows, asked.held, asked.events, asked.turns, asked.native_store
        )
        warm_up(bench)
        for part in chosen:
            began = time.monotonic()
            found += PARTS[part](bench)
            print(f"  {part} took {time.monotonic() - began:.0f} s", flush=True)
        spark.stop()
    new = {each["name"] for each in found}
    return 0 if write(out, [*(each for each in before if each["name"] not in new), *found]) else 1


if __name__ == "__main__":
    sys.exit(main())
