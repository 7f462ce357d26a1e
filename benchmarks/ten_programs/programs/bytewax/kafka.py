import json
import sys
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.kafka import KafkaSource
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(seconds=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))
flow = Dataflow("kafka")
messages = op.input("bids", flow, KafkaSource([sys.argv[1]], ["bids"]))
bids = op.map("parse", messages, lambda message: json.loads(message.value))
counts = win.count_window("count", bids, clock, minutes, lambda row: row["item"])
op.output("out", counts.down, StdOutSink())
run_main(flow)
