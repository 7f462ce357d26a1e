"""The RFID warehouse of Bai et al. (§5, Example 1), and two cards at one terminal within a minute.

Readings arrive out of step: each reader has its own delay, so that a product is often read before the case it
is packed into. `python -m examples.sequences` runs the queries on the engine and prints what they find.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import Catalog, Engine, TimerPromise, query
from headrace.flow.batch import Batch

CATALOG = Catalog(
    {
        "cases": pa.schema([("line", pa.int64()), ("case_id", pa.int64())]),
        "products": pa.schema([("line", pa.int64()), ("product", pa.int64())]),
        "payments": pa.schema([("terminal", pa.int64()), ("card", pa.int64()), ("amount", pa.int64())]),
        "checks": pa.schema([("terminal", pa.int64())]),
    },
    ticks_per_second=1,
)
QUERIES = {
    "packed": """
        SELECT p.line, p.product, c.case_id
        FROM   SEQ(cases AS c, products AS p) RECENT PARTITION BY line""",
    "one_each": """
        SELECT p.line, p.product, c.case_id
        FROM   SEQ(cases AS c, products AS p) CHRONICLE PARTITION BY line WITHIN 2 MINUTES""",
    "suspicious": """
        SELECT b.terminal, a.card, b.card AS other, a.amount + b.amount AS total
        FROM   SEQ(payments AS a, NOT checks AS c, payments AS b)
               UNRESTRICTED STRICT PARTITION BY terminal WITHIN 1 MINUTE
        WHERE  a.card <> b.card AND b.amount > 100""",
}
DELAYS = {"cases": 5, "products": 1, "payments": 2, "checks": 9}
"""How many seconds after it was made a reading arrives; each stream is in order."""


@dataclass(frozen=True)
class Readings:
    """The rows of one stream and the times at which they were made."""

    rows: list[dict[str, Any]]
    times: list[int]

    @property
    def events(self) -> list[tuple[int, dict[str, Any]]]:
        return list(zip(self.times, self.rows, strict=True))


def readings(seconds: int = 300, seed: int = 5) -> dict[str, Readings]:
    """A few minutes of a warehouse with three lines, and of a shop with four terminals."""
    rng = np.random.default_rng(seed)

    def made(per_minute: int, **columns: int) -> Readings:
        count = seconds * per_minute // 60
        times = np.sort(rng.integers(0, seconds, count)).tolist()
        values = {name: rng.integers(1, high + 1, count).tolist() for name, high in columns.items()}
        return Readings([{name: values[name][i] for name in columns} for i in range(count)], times)

    return {
        "cases": made(12, line=3, case_id=10_000),
        "products": made(60, line=3, product=10_000),
        "payments": made(30, terminal=4, card=20, amount=500),
        "checks": made(6, terminal=4),
    }


def run(given: dict[str, Readings], seconds: int = 300) -> dict[str, list[Batch]]:
    """What the engine answers while the readings arrive, second by second."""
    engine = Engine(now=-1)
    for name, stream in CATALOG.streams.items():
        engine.streams.declare(stream.source, promise=TimerPromise(DELAYS[name]))
    for name, text in QUERIES.items():
        engine.add(name, query(text, CATALOG).plan)
    answers: dict[str, list[Batch]] = {name: [] for name in QUERIES}
    for now in range(seconds + max(DELAYS.values()) + 1):
        for name, all_of in given.items():
            arrived = [row for at, row in all_of.events if at + DELAYS[name] == now]
            if arrived:
                data = pa.RecordBatch.from_pylist(arrived, CATALOG.streams[name].schema)
                engine.push(name, data, [now - DELAYS[name]] * len(arrived), now=now)
        engine.advance(now)
        for name, batches in engine.drain_all().items():
            answers[name] += batches
    return answers


def main() -> None:
    for name, batches in run(readings()).items():
        rows = [(int(at), row) for b in batches for at, row in zip(b.start, b.data.to_pylist(), strict=True)]
        print(f"{name}: {len(rows)} rows")
        for at, row in rows[:5]:
            print(f"  at {at:3}  " + ", ".join(f"{column} {value}" for column, value in row.items()))


if __name__ == "__main__":
    main()
