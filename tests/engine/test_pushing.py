"""What `Engine.push` takes: tables, DataFrames and dicts, with times from the declared column."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headrace import Engine, StreamDef, query
from headrace.errors import InputError

SCHEMA = pa.schema([("item", pa.string()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))])
BIDS = StreamDef("bids", SCHEMA, time_column="at")
ROWS = [
    {"at": dt.datetime(2026, 1, 1, 0, 0, s, tzinfo=dt.UTC), "price": p, "item": "lamp", "more": 1}
    for s, p in ((1, 2), (2, 5), (3, 4))
]


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        pa.Table.from_pylist(ROWS),
        pa.Table.from_pylist(ROWS).to_reader(max_chunksize=1),
        pd.DataFrame(ROWS),
        pl.DataFrame(ROWS),
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
        pa.RecordBatch.from_pylist(ROWS, SCHEMA),
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_of_every_kind_bring_the_times_of_their_column(data: Any) -> None:
    engine = Engine()
    engine.add("q", query("SELECT max(price) AS most FROM bids [RANGE 1 MINUTE SLIDE 1 MINUTE]", [BIDS]))
    assert len(engine.push("bids", data)) == 3
    engine.streams.end("bids")
    assert [row for batch in engine.drain() for row in batch.data.to_pylist()] == [{"most": 5.0}]


def test_times_that_are_given_are_used() -> None:
    engine = Engine()
    bids = StreamDef("bids", SCHEMA.remove(2), ticks_per_second=None)
    engine.add("q", query("SELECT item FROM bids", [bids], ticks_per_second=None))
    pushed = engine.push("bids", [{"item": "a", "price": 1}, {"item": "b", "price": 2}], [4, 9])
    assert pushed.start.tolist() == [4, 9]


def test_without_a_time_column_times_are_needed() -> None:
    engine = Engine()
    bids = StreamDef("bids", SCHEMA)
    engine.add("q", query("SELECT item FROM bids", [bids]))
    with pytest.raises(InputError, match="HR-I001"):
        engine.push("bids", ROWS)
