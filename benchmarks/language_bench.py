"""What SQL features cost, one part each, in one process; answers are checked before anything is reported.

`python -m benchmarks.language_bench match_recognize --add` measures one part again and keeps the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks.engine_bench import best, run_engine
from benchmarks.outer_joins import outer_over_inner
from benchmarks.report import OUT, Result, measured_before, write
from benchmarks.unordered import unordered
from benchmarks.workloads import Workload
from headrace import Catalog, query
from headrace.sql.catalog import StreamDef
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

KEYS: Final = 1_000
CHECKED: Final = 3_000

# MATCH_RECOGNIZE: A B+ C by key.

PATTERN: Final = """
    SELECT k, a_t, bs, c_t
    FROM   s MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY t
        MEASURES A.t AS a_t, COUNT(B.v) AS bs, C.t AS c_t
        PATTERN (A B+ C)
        DEFINE A AS v < 20, B AS v >= 20 AND v < 80, C AS v >= 80)
"""


def pattern_workload(rows: int, keys: int = KEYS) -> Workload:
    """Rows of random keys and values from 0 to 99; the times are distinct."""
    rng = np.random.default_rng(7)
    columns = {"t": np.arange(rows), "k": rng.integers(0, keys, rows), "v": rng.integers(0, 100, rows)}
    data = pa.record_batch(columns)
    stream = StreamDef("s", data.schema, time_column="t", ticks_per_second=None)
    return Workload(query(PATTERN, Catalog([stream])).plan, {"s": data})


def match_recognize(rows: int) -> list[Result]:
    """Rows/s of `A B+ C` over 1,000 keys, by the clock and by CPU time, and the share of rows in matches."""
    checked = pattern_workload(CHECKED, 20)
    given = checked.tables["s"].to_pylist()
    answers = run_engine(checked)
    assert_same_stream(answers, oracle.stream(checked.plan, {"s": [(row["t"], row) for row in given]}))
    work = pattern_workload(rows)
    run_engine(pattern_workload(rows // 10))
    before = time.process_time()
    made = run_engine(work)
    cpu = time.process_time() - before
    took = best({"match": lambda: run_engine(work)})["match"]
    matches = sum(len(batch) for batch in made)
    name = "language.match_recognize"
    return [
        {"name": f"{name}.rows_per_s", "value": rows / took, "unit": "rows/s", "floor": 1e6},
        {"name": f"{name}.rows_per_cpu_s", "value": rows / cpu, "unit": "rows/s"},
        {"name": f"{name}.matches", "value": float(matches), "unit": "rows"},
    ]


PARTS: Final[dict[str, Callable[[int], list[Result]]]] = {
    "match_recognize": match_recognize,
    "outer_over_inner": outer_over_inner,
    "unordered": unordered,
}
"""Each part takes the number of rows."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="part", help=f"of {', '.join(PARTS)}; all if none")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument(
        "--add", action="store_true", help="replace these parts in language.json, keep others"
    )
    parser.add_argument("--out", type=Path, default=OUT / "language.json")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    found = [result for part in asked.parts or PARTS for result in PARTS[part](asked.rows)]
    new = {each["name"] for each in found}
    kept = measured_before(asked.out) if asked.add else []
    return 0 if write(asked.out, [*(each for each in kept if each["name"] not in new), *found]) else 1


if __name__ == "__main__":
    sys.exit(main())
