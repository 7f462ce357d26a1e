from datetime import timedelta

import pathway as pw


class Bid(pw.Schema):
    item: str
    bidder: str
    price: float
    at: str


bids = pw.io.csv.read("bids.csv", schema=Bid, mode="static")
bids = bids.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"))
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
counts = bids.windowby(pw.this.at, window=minute, instance=pw.this.item).reduce(
    item=pw.this._pw_instance, n=pw.reducers.count()
)
pw.debug.compute_and_print(counts)
