"""Three pipelines over files, written into a directory: for runs, kills, tears and replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BASE: Final = 1_700_000_000_000_000


def run(pipeline: str) -> None:
    """Run a pipeline to its end, in whatever process this is."""
    from headrace.pipeline import load
    from headrace.runtimes.embedded import Runner

    Runner(load(pipeline)).run()


def sliding(root: Path, rows: int = 8_000, more: str = "") -> Path:
    """Disordered JSON lines with bad ones among them, by the rows' own time; some rows are late."""
    rng = np.random.default_rng(11)
    lines = []
    for i in range(rows):
        at = BASE + i * 10_000 - int(rng.integers(0, 900_000))
        row = {"auction": int(rng.integers(20)), "price": int(rng.integers(400)) / 4, "at": at}
        text = json.dumps(row)
        lines.append(text[: len(text) // 2] if i % 97 == 5 else text)
    (root / "bids.jsonl").write_text("\n".join(lines) + "\n")
    return _file(
        root,
        f"""
        [pipeline]
        name = "sliding"
        runtime = "embedded"
        checkpoint = "state"
        every_rows = 150
        {more}

        [streams.bids]
        source = {{ path = "bids.jsonl", block_bytes = 4_000 }}
        schema = "auction BIGINT, price DOUBLE, at BIGINT"
        time = {{ column = "at", unit = "us" }}
        bounds = {{ disorder = "500 ms" }}

        [[queries]]
        name = "hot"
        sql = '''SELECT auction, max(price) AS price, count(*) AS n, window_end
                 FROM bids [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY auction'''
        sink = {{ path = "hot.jsonl", time = "at" }}
        late = "late.jsonl"
        rejected = "rejected.jsonl"
        """,
    )


def joined(root: Path, rows: int = 6_000, more: str = "") -> Path:
    """A join of CSV with a directory of Parquet, to CSV and to parts of Parquet."""
    rng = np.random.default_rng(12)
    at = BASE + np.arange(rows) * 10_000
    orders = (f"{k},{t // 1000}" for k, t in zip(rng.integers(0, 200, rows), at, strict=True))
    (root / "orders.csv").write_text("item,at\n" + "\n".join(orders) + "\n")
    (root / "paid").mkdir()
    for part, begin in enumerate(range(0, rows, rows // 4)):
        size = min(rows // 4, rows - begin)
        table = pa.table(
            {
                "item": rng.integers(0, 200, size),
                "amount": rng.integers(0, 1000, size),
                "at": pa.array(at[begin : begin + size] + 3_000, pa.timestamp("us")),
            }
        )
        pq.write_table(table, root / "paid" / f"{part}.parquet", row_group_size=400)
    return _file(
        root,
        f"""
        [pipeline]
        name = "joined"
        runtime = "embedded"
        checkpoint = "state"
        every_rows = 250
        {more}

        [streams.orders]
        source = {{ path = "orders.csv", block_bytes = 3_000 }}
        schema = "item BIGINT, at BIGINT"
        time = {{ column = "at", unit = "ms" }}

        [streams.paid]
        source = {{ path = "paid", block_rows = 130 }}
        schema = "item BIGINT, amount BIGINT, at TIMESTAMP"
        time = "at"

        [[queries]]
        name = "pairs"
        sql = '''SELECT o.item, p.amount FROM orders [RANGE 1 SECOND] AS o, paid [RANGE 1 SECOND] AS p
                 WHERE o.item = p.item'''
        sink = "pairs.parquet"

        [[queries]]
        name = "totals"
        sql = '''SELECT item, sum(amount) AS total FROM paid [RANGE 5 SECONDS] GROUP BY item'''
        sink = {{ path = "totals.csv", time = "at" }}
        """,
    )


def replayed(root: Path, rows: int = 1_500, more: str = "") -> Path:
    """Recorded arrivals on the simulated clock, late rows admitted, to Arrow IPC and JSON lines."""
    rng = np.random.default_rng(13)
    came = BASE + np.sort(rng.integers(0, rows * 5_000, rows)) // 20_000 * 20_000
    lines = [
        json.dumps(
            {"k": int(rng.integers(5)), "v": i, "at": int(t - rng.integers(0, 400_000)), "came": int(t)}
        )
        for i, t in enumerate(came)
    ]
    (root / "in").mkdir()
    for part in range(3):
        (root / "in" / f"{part}.jsonl").write_text(
            "\n".join(lines[part * rows // 3 : (part + 1) * rows // 3])
        )
    return _file(
        root,
        f"""
        [pipeline]
        name = "replayed"
        runtime = "embedded"
        checkpoint = "state"
        every_rows = 40
        {more}

        [streams.s]
        source = {{ path = "in/*.jsonl", block_bytes = 2_000 }}
        schema = "k BIGINT, v BIGINT, at BIGINT"
        time = {{ column = "at", unit = "us" }}
        bounds = {{ latency = "300 ms" }}
        enforcement = "admit"
        arrival = "came"

        [[queries]]
        name = "per_key"
        sql = '''SELECT k, count(*) AS n, sum(v) AS v, window_end
                 FROM s [RANGE 1 SECOND SLIDE 200 MILLISECONDS] GROUP BY k'''
        sink = "per_key.arrow"
        late = "late.jsonl"

        [[queries]]
        name = "newest"
        sql = '''SELECT k, v FROM s [PARTITION BY k ROWS 1]'''
        sink = "newest.jsonl"
        """,
    )


PIPELINES: Final[dict[str, Callable[..., Path]]] = {
    "sliding": sliding,
    "joined": joined,
    "replayed": replayed,
}


def _file(root: Path, text: str) -> Path:
    path = root / "pipeline.toml"
    path.write_text("\n".join(line.strip() for line in text.splitlines()))
    return path


OUTPUTS: Final = ("hot", "late", "rejected", "pairs", "totals", "per_key", "newest")


def bags(root: Path) -> dict[str, list[Any]]:
    """Every output's rows, sorted: a restored engine may give simultaneous answers in another order."""
    return {name: sorted(rows, key=str) for name, rows in outputs(root).items()}


def outputs(root: Path) -> dict[str, list[Any]]:
    """Every output's rows, in order."""
    found: dict[str, list[Any]] = {}
    for path in sorted(root.iterdir()):
        if path.stem in OUTPUTS:
            found[path.name] = _rows(path)
    return found


def _rows(path: Path) -> list[Any]:
    if path.is_file():
        return path.read_text().splitlines()
    return [row for part in sorted(path.glob("part-*")) for row in _part(part)]


def _part(path: Path) -> list[Any]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    return list(pa.ipc.open_file(path).read_all().to_pylist())
