from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow.parquet as pq
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource, run_main

clock = win.EventClock(lambda row: row["at"], timedelta(seconds=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))
flow = Dataflow("parquet")
bids = op.input("bids", flow, TestingSource(pq.read_table("bids.parquet").to_pylist()))
counts = win.count_window("count", bids, clock, minutes, lambda row: row["item"])
op.output("out", counts.down, StdOutSink())
run_main(flow)
