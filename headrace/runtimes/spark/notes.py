"""Rows of what a host tells, whatever they tell of."""

from __future__ import annotations

from typing import Any

from headrace.runtimes.spark.progress import METRIC

FIELDS = ", ".join(f.strip().replace(" ", ":") for f in METRIC.split(","))

RESULT, LATE, REJECTED, METRICS = "result", "late", "rejected", "metric"

OUT_DDL = f"kind string, shard int, body binary, metric struct<{FIELDS}>"

Row = dict[str, Any]


def counted(kind: str, shard: int, count: int) -> Row:
    """So many rows of a kind, nobody wants which."""
    return row(kind, shard, None, metric(shard, rows=count))


def row(kind: str, shard: int, body: bytes | None, figures: Row) -> Row:
    """One packed row."""
    return {"kind": kind, "shard": shard, "body": body, "metric": figures}


def metric(shard: int, **figures: Any) -> Row:
    """The figures of a row; those that are not given are nothing."""
    empty = {"stream": None, "heartbeat": None, "waiting": 0, "rows": 0, "state_bytes": 0}
    return {"shard": shard, **empty, **figures}
