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
counts = bids.windowby(pw.this.at, window=minute, instance=pw.this.bidder).reduce(
    minute=pw.this._pw_window_start, pair=pw.make_tuple(-pw.reducers.count(), pw.this._pw_instance)
)
tops = counts.groupby(pw.this.minute).reduce(pairs=pw.reducers.sorted_tuple(pw.this.pair))
first = tops.select(pair=pw.apply_with_type(lambda pairs: pairs[:2], tuple, pw.this.pairs)).flatten(
    pw.this.pair
)
pw.debug.compute_and_print(first)
