"""Queries run twice, by the oracle and by the engine, over rows written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.engine import Engine
from headrace.flow.batch import Batch
from headrace.sql import Catalog, Query, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream

BIDS = pa.schema([("item", pa.int64()), ("price", pa.float64())])
ITEMS = pa.schema([("id", pa.int32()), ("name", pa.string())])
STREAMS = {"bids": BIDS, "items": ITEMS}
SEQUENCE = Catalog(STREAMS, ticks_per_second=None)
"""Time in sequence numbers, so that answers can be computed by hand."""

Rows = Sequence[tuple[Any, ...]]
"""(time, column, column, …)"""


def plan_of(text: str, catalog: Catalog = SEQUENCE) -> Any:
    return query(text, catalog).plan


def answer(text: str, catalog: Catalog = SEQUENCE, **rows: Rows) -> list[tuple[Any, ...]]:
    """What the oracle says that `text` answers, as (time, column, …), once the engine has said the same."""
    found = query(text, catalog)
    data = {source.name: _named(source.schema, rows.get(source.name, ())) for source in found.sources}
    expected = oracle.stream(found.plan, data)
    assert_same_stream(_engine(found, rows), expected, schema=found.schema)
    return [(time, *row) for time, row in expected]


def _named(schema: pa.Schema, rows: Rows) -> list[tuple[int, dict[str, Any]]]:
    return [(time, dict(zip(schema.names, values, strict=True))) for time, *values in rows]


def _engine(found: Query, rows: Mapping[str, Rows]) -> list[Batch]:
    engine = Engine(now=-(10**9))
    engine.add(found.name, found.plan)
    for source in found.sources:
        given = list(rows.get(source.name, ()))
        columns = [pa.array([r[i + 1] for r in given], field.type) for i, field in enumerate(source.schema)]
        engine.push(
            source.name, pa.RecordBatch.from_arrays(columns, schema=source.schema), [r[0] for r in given]
        )
    answers = engine.drain(found.name)
    for source in found.sources:
        engine.streams.end(source.name)
    return answers + engine.drain(found.name)
