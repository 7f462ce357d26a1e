"""Short ways to write the streams and relations of the hand-computed examples."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from headrace.plan.nodes.core import AggregateCall, Plan, Source
from headrace.testing import oracle

K_V = pa.schema([("k", pa.int64()), ("v", pa.float64())])
A = Source("a", K_V)
B = Source("b", K_V)


def rows(*events: tuple[int, Any, Any]) -> list[tuple[int, dict[str, Any]]]:
    """A stream of (time, k, v)."""
    return [(time, {"k": k, "v": v}) for time, k, v in events]


def intervals(plan: Plan, **sources: list[tuple[int, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """The relation as (columns…, start, end), by start."""
    return [(*e.row, e.start, e.end) for e in oracle.relation(plan, sources).elements]


def events(plan: Plan, **sources: list[tuple[int, dict[str, Any]]]) -> list[tuple[Any, ...]]:
    """The stream as (time, columns…)."""
    return [(time, *row) for time, row in oracle.stream(plan, sources)]


def call(function: str, column: str | None = "v") -> AggregateCall:
    return AggregateCall(function, function, column)
