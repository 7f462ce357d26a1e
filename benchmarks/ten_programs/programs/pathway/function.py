from datetime import timedelta

import pathway as pw


class Bid(pw.Schema):
    item: str
    bidder: str
    price: float
    at: str


@pw.udf
def band(price: float) -> str:
    return "low" if price < 30 else "high"


bids = pw.io.csv.read("bids.csv", schema=Bid, mode="static")
bids = bids.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"), band=band(pw.this.price))
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
counts = bids.windowby(pw.this.at, window=minute, instance=pw.this.band).reduce(
    band=pw.this._pw_instance, n=pw.reducers.count()
)
pw.debug.compute_and_print(counts)
