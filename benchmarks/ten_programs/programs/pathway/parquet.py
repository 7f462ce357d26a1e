from datetime import timedelta

import pathway as pw

bids = pw.debug.table_from_parquet("bids.parquet")
minute = pw.temporal.tumbling(duration=timedelta(minutes=1))
counts = bids.windowby(pw.this.at, window=minute, instance=pw.this.item).reduce(
    item=pw.this._pw_instance, n=pw.reducers.count()
)
pw.debug.compute_and_print(counts)
