from datetime import datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import CSVSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(seconds=10))
flow = Dataflow("session")
clicks = op.input("clicks", flow, CSVSource("clicks.csv"))
sessions = win.SessionWindower(gap=timedelta(seconds=30))
counts = win.count_window("count", clicks, clock, sessions, lambda row: row["user"])
op.output("out", counts.down, StdOutSink())
run_main(flow)
