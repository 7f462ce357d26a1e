"""What the charts show: a few numbers of each status, for the last quarter of an hour."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.runtimes.status import Status

POINTS: Final = 900
"""How many points the charts have at most; statuses come about once a second."""
APART: Final = 0.9
"""Points are at least this many seconds apart."""


@dataclass
class Figures:
    """The newest points, by the system's clock. Streams and queries may come and go."""

    points: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=POINTS))

    def add(self, status: Status) -> dict[str, Any] | None:
        """Add the numbers of a status; None if it is not newer than the last point."""
        last = self.points[-1]["at"] if self.points else 0.0
        if status.written - last < APART:
            return None
        point = {
            "at": status.written,
            "streams": {
                name: [each.rows_in, each.lag if each.lag is None else status.seconds(each.lag)]
                for name, each in status.streams.items()
            },
            "queries": {name: each.rows_out for name, each in status.queries.items()},
            "bytes": status.bytes,
            "spilled": status.spilled_bytes,
        }
        self.points.append(point)
        return point
