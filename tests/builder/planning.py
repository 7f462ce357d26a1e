"""How long composing takes: ten joins and thirty columns. Run `python -m tests.builder.planning`."""

from __future__ import annotations

import statistics
import time

from headrace import stream
from headrace.builder import Builder
from tests.sql.planning import CONDITIONS, LISTED, STREAMS, milliseconds

MINUTES = [f"{i + 1} minutes" for i in range(11)]


def composed() -> Builder:
    found = stream("s0", STREAMS).window(MINUTES[0])
    for i, on in enumerate(CONDITIONS):
        found = found.join(stream(f"s{i + 1}", STREAMS).window(MINUTES[i + 1]), on=on)
    return found.select(*LISTED.split(", "))


if __name__ == "__main__":
    taken = milliseconds(composed, 20)
    start = time.process_time()
    composed()
    used = (time.process_time() - start) * 1e3
    print(f"composed   median {statistics.median(taken):5.1f} ms, least {min(taken):5.1f}, CPU {used:5.1f}")
