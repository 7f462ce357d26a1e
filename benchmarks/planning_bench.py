"""How long planning takes: a query of 10 joins and 30 columns, read, resolved and rewritten.

    python -m benchmarks.planning_bench

CPU time, so that other work on the machine counts as little as it can; the median of many runs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa

from benchmarks.report import OUT, Result, write
from headrace.plan.rewrite import optimize
from headrace.sql import query

RUNS = 50
CEILING = 50.0
COLUMNS = [("k", pa.int64()), ("j", pa.int32()), *((f"c{n}", pa.float64()) for n in range(6))]
STREAMS = {f"s{i}": pa.schema(COLUMNS) for i in range(11)}
LISTED = ", ".join(f"s{i}.c{n} + {n} AS o{i}_{n}" for i in range(10) for n in range(3))
KEYS = ", ".join(f"s{i}.c{n}" for i in range(10) for n in range(3))
CONDITIONS = [f"s{i}.k = s{i + 1}.j AND s{i}.c0 > {i} AND s{i}.c1 < s{i + 1}.c2" for i in range(10)]
ITEMS = [f"s{i} [RANGE {11 - i} MINUTES]" for i in range(11)]
FROM = f"FROM {', '.join(ITEMS)} WHERE {' AND '.join(CONDITIONS)}"
ON = " ".join(f"JOIN {item} ON {on}" for item, on in zip(ITEMS[1:], CONDITIONS, strict=True))
TEXTS = {
    "commas": f"SELECT {LISTED} {FROM}",
    "join on": f"SELECT {LISTED} FROM {ITEMS[0]} {ON}",
    "grouped": f"SELECT {KEYS}, count(*) {FROM} GROUP BY {KEYS}",
}


def milliseconds(run: Callable[[], object]) -> float:
    """The median CPU time of a call, once it is warm."""
    run()
    taken = []
    for _ in range(RUNS):
        start = time.process_time()
        run()
        taken.append((time.process_time() - start) * 1e3)
    return statistics.median(taken)


def results() -> list[Result]:
    """All of planning for each way to write the query, and the rewriting alone."""
    found: list[Result] = []
    for name, text in TEXTS.items():
        whole = milliseconds(lambda text=text: query(text, STREAMS).plan)  # type: ignore[misc]
        logical = query(text, STREAMS).logical
        rewriting = milliseconds(lambda logical=logical: optimize(logical))  # type: ignore[misc]
        label = f"10 joins, 30 columns, {name}"
        found.append({"name": label, "value": whole, "unit": "ms", "ceiling": CEILING})
        found.append({"name": f"{label}: rewriting", "value": rewriting, "unit": "ms"})
    return found


if __name__ == "__main__":
    sys.exit(0 if write(OUT / "planning.json", results()) else 1)
