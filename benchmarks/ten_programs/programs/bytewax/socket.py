import json
import socket
import sys
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.connectors.stdio import StdOutSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import SimplePollingSource
from bytewax.testing import run_main

clock = win.EventClock(lambda row: datetime.fromisoformat(row["at"]), timedelta(seconds=10))
minutes = win.TumblingWindower(length=timedelta(minutes=1), align_to=datetime(2026, 1, 1, tzinfo=UTC))


class Lines(SimplePollingSource):
    def __init__(self, port):
        super().__init__(interval=timedelta(0))
        self.lines = socket.create_connection(("127.0.0.1", port)).makefile()

    def next_item(self):
        return json.loads(self.lines.readline())


flow = Dataflow("socket")
bids = op.input("bids", flow, Lines(int(sys.argv[1])))
counts = win.count_window("count", bids, clock, minutes, lambda row: row["item"])
op.output("out", counts.down, StdOutSink())
run_main(flow)
