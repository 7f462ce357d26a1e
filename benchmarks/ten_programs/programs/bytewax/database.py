import sqlite3
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSource, run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(seconds=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))
database = sqlite3.connect("shop.db")
database.row_factory = sqlite3.Row
flow = Dataflow("database")
bids = op.input("bids", flow, TestingSource(map(dict, database.execute("SELECT * FROM bids"))))
counts = win.count_window("count", bids, clock, minutes, lambda row: row["item"])
op.output("out", counts.down, StdOutSink())
run_main(flow)
