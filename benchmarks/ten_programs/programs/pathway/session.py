from datetime import timedelta

import pathway as pw


class Click(pw.Schema):
    user: str
    at: str


clicks = pw.io.csv.read("clicks.csv", schema=Click, mode="static")
clicks = clicks.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"))
session = pw.temporal.session(max_gap=timedelta(seconds=30))
counts = clicks.windowby(pw.this.at, window=session, instance=pw.this.user).reduce(
    user=pw.this._pw_instance, n=pw.reducers.count()
)
pw.debug.compute_and_print(counts)
