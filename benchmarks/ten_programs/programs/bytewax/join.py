from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.files import CSVSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(minutes=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))
flow = Dataflow("join")
offers = op.key_on(
    "offers by item", op.input("offers", flow, CSVSource("offers.csv")), lambda row: row["item"]
)
sales = op.key_on("sales by item", op.input("sales", flow, CSVSource("sales.csv")), lambda row: row["item"])
pairs = win.join_window("join", clock, minutes, offers, sales, insert_mode="product")
whole = op.filter("pairs only", pairs.down, lambda each: None not in each[1][1])
shown = op.map("show", whole, lambda each: (each[0], each[1][1][0]["price"], each[1][1][1]["amount"]))
op.output("out", shown, StdOutSink())
run_main(flow)
