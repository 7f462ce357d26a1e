"""Why rows were late or rejected: a count for each reason, with the first message.

A reason often names a value, so reasons that differ only in quoted values and numbers count as one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask
from headrace.connectors.contract import shown
from headrace.connectors.encode import json_objects
from headrace.time.punctuation import Late, Rejected

LATE, REJECTED = "late", "rejected"
MOST: Final = 8
"""The number of different reasons kept for one stream; rows with any other reason are counted together."""

SAMPLES: Final = 3
"""How many rows are kept as samples for each reason: the first ones."""

_VALUES = re.compile(r"""'[^']*'|"[^"]*"|[-+]?\d[\w.:+-]*""")


@dataclass(frozen=True)
class Reason:
    """Rows of a stream that were late or rejected for one reason.

    `first` is the message for the first of them, `worst` the largest lateness in ticks, `samples` the first
    few of them as text.
    """

    kind: str
    stream: str
    rows: int
    code: str = ""
    first: str = ""
    worst: int = 0
    samples: tuple[str, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        why = f"rejected: {self.code} {self.first}"
        if self.kind == LATE:
            why = f"late: {self.first}" if self.first else f"late by up to {self.worst:,} ticks"
        return f"{self.rows:,} of {self.stream} {why}"


def _count(rows: pa.RecordBatch) -> int:
    return int(rows.num_rows)


def _sampled(rows: pa.RecordBatch | None, raw: Sequence[str] = ()) -> list[str]:
    """Some rows as text, without the columns that Headrace has added."""
    if rows is None:
        return [shown(each) for each in raw[:SAMPLES]]
    own = [name for name in rows.schema.names if not name.startswith("__")]
    return [shown(each) for each in json_objects(rows.slice(0, SAMPLES).select(own)).to_pylist()]


def _by_reason(late: Late) -> Iterator[tuple[str, Mask]]:
    """The rows that were not admitted, by the punctuation that they broke ("": they were late by time)."""
    lost: Mask = ~late.admitted
    if not any(late.reasons):
        if lost.any():
            yield "", lost
        return
    why = np.array([each or "" for each in late.reasons], object)
    for reason in dict.fromkeys(why[lost].tolist()):
        yield reason, lost & (why == reason)


class Reasons:
    """Counts rows by reason, in a bounded number of groups."""

    def __init__(self, count: Callable[[pa.RecordBatch], int] = _count) -> None:
        self._count = count
        self._found: dict[tuple[str, str, str, str], Reason] = {}

    def add(self, late: Iterable[Late], rejected: Iterable[Rejected]) -> None:
        """Count rows that an engine found late or rejected. Late rows that were admitted do not count."""
        for one in late:
            for why, lost in _by_reason(one):
                rows = one.rows.filter(pa.array(lost))
                worst = int(one.lateness[lost].max())
                found = Reason(LATE, one.stream, self._count(rows), first=why, worst=worst)
                self.merge(found, lambda rows=rows: _sampled(rows))  # type: ignore[misc]
        for each in rejected:
            found = Reason(REJECTED, each.stream, len(each), str(each.code), each.reason)
            self.merge(found, lambda each=each: _sampled(each.rows, each.raw))  # type: ignore[misc]

    def merge(self, reason: Reason, samples: Callable[[], Iterable[str]] | None = None) -> None:
        """Add a count; `samples` makes some of its rows as text, and is called only if some are wanted."""
        key = (reason.kind, reason.stream, reason.code, _VALUES.sub("…", reason.first))
        known = self._found.get(key)
        if known is None and self._full(reason):
            key = (reason.kind, reason.stream, "", "")
            reason = replace(reason, code="", first="other reasons")
            known = self._found.get(key)
        seen = () if known is None else known.samples
        if len(seen) < SAMPLES:
            seen = (*seen, *(reason.samples if samples is None else samples()))[:SAMPLES]
        if known is not None:
            reason = replace(known, rows=known.rows + reason.rows, worst=max(known.worst, reason.worst))
        self._found[key] = replace(reason, samples=tuple(seen))

    def _full(self, reason: Reason) -> bool:
        """True if the stream already has the largest number of different reasons that are kept."""
        return sum(key[:2] == (reason.kind, reason.stream) for key in self._found) >= MOST

    def all(self) -> tuple[Reason, ...]:
        """Every reason, the most frequent first."""
        return tuple(sorted(self._found.values(), key=lambda each: -each.rows))

    def state(self) -> list[dict[str, Any]]:
        """As plain data."""
        return [asdict(each) for each in self._found.values()]

    def restore(self, state: Iterable[dict[str, Any]]) -> None:
        """Continue counting from what `state` returned."""
        self._found.clear()
        for each in state:
            self.merge(Reason(**each))


def merged(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Counts from several places, added up by reason."""
    together = Reasons()
    for each in reasons:
        together.merge(each)
    return together.all()
