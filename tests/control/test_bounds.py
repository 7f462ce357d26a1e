"""Other bounds for a stream that is read: what is known about the streams stays known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.control import Entry, SetBounds, apply, changed
from headrace.control.apply import add_queries
from headrace.engine import Engine
from headrace.pipeline import parse

TEXT = """
[pipeline]
name = "paced"
runtime = "embedded"
[streams.a]
source = "a.jsonl"
schema = "k BIGINT, t BIGINT"
time = { column = "t", unit = "tick" }
bounds = { disorder = 1 }
[streams.b]
source = "b.jsonl"
schema = "k BIGINT, t BIGINT"
time = { column = "t", unit = "tick" }
bounds = { skew = 3 }
[[queries]]
name = "both"
sql = "SELECT k FROM a UNION ALL SELECT k FROM b"
sink = "both.jsonl"
"""
ROW = pa.RecordBatch.from_pylist([{"k": 1, "t": 10}])


@pytest.mark.parametrize(
    ("stream", "bounds"), [("a", {"disorder": 5}), ("a", {"latency": 9}), ("b", {"latency": 50})]
)
def test_a_silent_stream_still_keeps_pace_with_the_clock(
    tmp_path: Path, stream: str, bounds: dict[str, Any]
) -> None:
    """Its watermark stood still until its next row: how far its rows were behind the clock was forgotten."""
    pipeline, engine = parse(TEXT, root=tmp_path), Engine()
    add_queries(engine, pipeline)
    engine.push("b", ROW, [10], now=10)
    engine.advance(10)
    entry = Entry(1, SetBounds(stream, bounds))
    apply(entry, engine, changed(pipeline, entry))
    engine.advance(20)
    assert engine.streams.known("b") == 17
