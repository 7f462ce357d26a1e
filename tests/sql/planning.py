"""How long planning takes: a query of 10 joins and 30 columns. Run `python -m tests.sql.planning`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pyarrow as pa

from headrace.sql import query

COLUMNS = [("k", pa.int64()), ("j", pa.int32()), *((f"c{n}", pa.float64()) for n in range(6))]
STREAMS = {f"s{i}": pa.schema(COLUMNS) for i in range(11)}
LISTED = ", ".join(f"s{i}.c{n} + {n} AS o{i}_{n}" for i in range(10) for n in range(3))
CONDITIONS = [f"s{i}.k = s{i + 1}.j AND s{i}.c0 > {i} AND s{i}.c1 < s{i + 1}.c2" for i in range(10)]
ITEMS = [f"s{i} [RANGE {i + 1} MINUTES]" for i in range(11)]
COMMAS = f"SELECT {LISTED} FROM {', '.join(ITEMS)} WHERE {' AND '.join(CONDITIONS)}"
JOINED = " ".join(f"JOIN {item} ON {on}" for item, on in zip(ITEMS[1:], CONDITIONS, strict=True))
ON = f"SELECT {LISTED} FROM {ITEMS[0]} {JOINED}"
KEYS = ", ".join(f"s{i}.c{n}" for i in range(10) for n in range(3))
GROUPED = f"SELECT {KEYS}, count(*) FROM {', '.join(ITEMS)} WHERE {' AND '.join(CONDITIONS)} GROUP BY {KEYS}"


def milliseconds(run: Callable[[], object], times: int = 30) -> list[float]:
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append((time.perf_counter() - start) * 1e3)
    return taken


if __name__ == "__main__":
    for name, text in {"commas": COMMAS, "JOIN … ON": ON, "grouped": GROUPED}.items():
        taken = milliseconds(lambda text=text: query(text, STREAMS).schema)  # type: ignore[misc]
        print(f"{name:10} median {statistics.median(taken):5.1f} ms, least {min(taken):5.1f}")
