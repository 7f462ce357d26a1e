import sys
from datetime import timedelta

import pathway as pw


class Bid(pw.Schema):
    item: str
    bidder: str
    price: float
    at: str


settings = {"bootstrap.servers": sys.argv[1], "group.id": "bids", "auto.offset.reset": "earliest"}
bids = pw.io.kafka.read(settings, topic="bids", format="json", schema=Bid)
bids = bids.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"))
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
counts = bids.windowby(
    pw.this.at, window=minute, instance=pw.this.item, behavior=pw.temporal.exactly_once_behavior()
).reduce(item=pw.this._pw_instance, n=pw.reducers.count())
pw.io.subscribe(counts, lambda key, row, time, is_addition: print(row))
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
