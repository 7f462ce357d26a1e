from datetime import timedelta

import pathway as pw


class Login(pw.Schema):
    user: str
    ok: str
    place: str
    at: str


logins = pw.io.csv.read("logins.csv", schema=Login, mode="static")
logins = logins.with_columns(at=pw.this.at.dt.strptime("%Y-%m-%dT%H:%M:%SZ"))
logins += logins.sort(key=pw.this.at, instance=pw.this.user)
later = logins.filter(pw.this.prev.is_not_none() & (pw.this.ok == "yes"))
later = later.with_columns(prev=pw.unwrap(pw.this.prev))
before = logins.ix(later.prev)
pairs = later.select(
    pw.this.user, pw.this.place, passed=pw.this.at - before.at, ok=before.ok, failed=before.place
)
found = pairs.filter((pw.this.ok == "no") & (pw.this.passed < timedelta(seconds=10)))
pw.debug.compute_and_print(found.select(pw.this.user, pw.this.failed, pw.this.place))
