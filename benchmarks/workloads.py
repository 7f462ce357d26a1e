"""The data and the plans of the engine's benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.expressions import col
from headrace.plan.nodes.core import (
    AggregateCall,
    IStream,
    Join,
    Plan,
    RStream,
    Select,
    SlidingAggregate,
    Source,
    Union,
    Window,
)
from headrace.plan.nodes.top_n import TopN, descending
from headrace.plan.nodes.windows import Range, Sliding

SECOND = 1_000_000
BATCH = 65_536


@dataclass(frozen=True)
class Workload:
    """A plan and its streams as whole tables, each in order of its first column, the time."""

    plan: Plan
    tables: dict[str, pa.RecordBatch]

    @property
    def rows(self) -> int:
        """Rows over all streams."""
        return sum(t.num_rows for t in self.tables.values())

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch, np.ndarray]]:
        """The streams cut into batches, in turn."""
        longest = max(t.num_rows for t in self.tables.values())
        for begin in range(0, longest, BATCH):
            for name, table in self.tables.items():
                piece = table.slice(begin, BATCH)
                if piece.num_rows:
                    yield name, piece, piece.column(0).to_numpy()


def _events(rows: int, rng: np.random.Generator, keys: int, rate: int) -> pa.RecordBatch:
    """`rows` rows at about `rate` rows a second: time, key, a value in 0 … 99."""
    times = np.sort(rng.integers(0, rows * SECOND // rate, rows))
    return pa.record_batch(
        {
            "t": pa.array(times),
            "k": pa.array(rng.integers(0, keys, rows)),
            "v": pa.array(rng.integers(0, 100, rows)),
        }
    )


def union(rows: int) -> Workload:
    """(a) Two streams, each filtered at 95 %, in order of time."""
    rng = np.random.default_rng(1)
    tables = {name: _events(rows, rng, 1_000, 100_000) for name in ("a", "b")}
    sides = tuple(Select(Source(name, table.schema), col("v") < 95) for name, table in tables.items())
    return Workload(Union(sides), tables)


def sliding(rows: int, keys: int = 1_000, size: int = 60, rate: int = 100_000) -> Workload:
    """(b) Count and sum by key over `size` seconds, each second."""
    tables = {"a": _events(rows, np.random.default_rng(2), keys, rate)}
    calls = (AggregateCall("n", "count"), AggregateCall("total", "sum", "v"))
    window = Sliding(size * SECOND, SECOND)
    plan = SlidingAggregate(Source("a", tables["a"].schema), ("k",), calls, window, ("w_start", "w_end"))
    return Workload(RStream(plan, SECOND), tables)


def top(rows: int, held: int, keys: int = 10_000) -> Workload:
    """The three greatest values of each key, of the rows in a window that holds `held`."""
    rng = np.random.default_rng(4)
    columns = {
        "t": np.arange(rows, dtype=np.int64),
        "k": rng.integers(0, keys, rows),
        "v": rng.integers(0, 1_000_000, rows),
    }
    tables = {"a": pa.record_batch(columns)}
    window = Window(Source("a", tables["a"].schema), Range(held))
    return Workload(IStream(TopN(window, ("k",), (descending("v"),), 3)), tables)


def join(rows: int, held: int) -> Workload:
    """(c) Orders and payments: each key once in each stream, the payment within the window of its order.

    `held` rows of each stream are in the window at a time, whatever that is; each row finds its partner.
    """
    rng = np.random.default_rng(3)
    keys = rng.permutation(rows).astype(np.int64) * 7919
    ordered = np.arange(rows, dtype=np.int64)
    paid = ordered + rng.integers(1, held, rows)
    by_payment = np.argsort(paid, kind="stable")
    left = {"t": ordered, "k": keys, "v": rng.integers(0, 100, rows)}
    right = {"t2": paid[by_payment], "k2": keys[by_payment], "v2": rng.integers(0, 100, rows)}
    tables = {"a": pa.record_batch(left), "b": pa.record_batch(right)}
    sides = [Window(Source(name, table.schema), Range(held)) for name, table in tables.items()]
    return Workload(Join(sides[0], sides[1], ("k",), ("k2",)), tables)
