"""Tries a query on a few rows: the engine's result, after a check that the oracle's is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.engine import Engine
from headrace.flow.batch import Batch
from headrace.schema import Schema
from headrace.sql import Query, query
from headrace.testing import oracle
from headrace.testing.compare import assert_same_stream, events_of

Row = tuple[Any, ...]
"""(time, column, column, …)"""


def ask(text: str, *, ticks_per_second: int | None = 1, **rows: Sequence[Row]) -> list[Row]:
    """The results of the only query in `text`, as (time, column, …).

    `text` declares its streams. `rows` are their rows, each with its time first, in ticks.
    """
    found = query(text, ticks_per_second=ticks_per_second)
    given = {source.name: _named(source.schema, rows.get(source.name, ())) for source in found.sources}
    answers = _answers(found, given)
    assert_same_stream(answers, oracle.stream(found.plan, given), schema=found.schema)
    return [(time, *row) for time, row in events_of(answers)]


def _named(schema: Schema, rows: Sequence[Row]) -> list[tuple[int, dict[str, Any]]]:
    """Rows as dicts, with values as columns hold them: a TIMESTAMP is a datetime in UTC."""
    named = [dict(zip(schema.names, values, strict=True)) for _, *values in rows]
    typed = pa.RecordBatch.from_pylist(named, schema).to_pylist()
    return [(time, row) for (time, *_), row in zip(rows, typed, strict=True)]


def _answers(found: Query, given: dict[str, list[tuple[int, dict[str, Any]]]]) -> list[Batch]:
    """Push the rows of each stream at once, end it, and return the results."""
    engine = Engine()
    engine.add(found.name, found)
    for source in found.sources:
        rows = pa.RecordBatch.from_pylist([row for _, row in given[source.name]], source.schema)
        engine.push(source.name, rows, [time for time, _ in given[source.name]])
        engine.streams.end(source.name)
    return engine.drain(found.name)
