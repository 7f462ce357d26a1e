import json
import socket
import sys
from datetime import timedelta

import pathway as pw


class Bid(pw.Schema):
    item: str
    bidder: str
    price: float
    at: str


class Lines(pw.io.python.ConnectorSubject):
    def run(self):
        for line in socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile():
            self.next_json(json.loads(line))


bids = pw.io.python.read(Lines(), schema=Bid)
bids = bids.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"))
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
counts = bids.windowby(
    pw.this.at, window=minute, instance=pw.this.item, behavior=pw.temporal.exactly_once_behavior()
).reduce(item=pw.this._pw_instance, n=pw.reducers.count())
pw.io.subscribe(counts, lambda key, row, time, is_addition: print(row))
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
