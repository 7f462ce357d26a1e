"""The punctuate operator: promises made on a stream, and enforced on it (Tucker & Maier, §2).

A timer or a heartbeat generator says how far time has come; `promise` turns that into a punctuation, and
`breaking` finds the rows that break one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Times = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Late:
    """Rows that came after a punctuation said they could not.

    `heartbeat` was in force. `missed` counts the answers that each row came too late for; an `admitted` row
    still counted in others.
    """

    stream: str
    rows: pa.RecordBatch
    times: Times
    heartbeat: int
    missed: Times
    admitted: Mask

    @property
    def lateness(self) -> Times:
        """By how many ticks each row was late; 0 where a punctuation on other attributes kept it out."""
        return np.maximum(self.heartbeat - self.times + 1, 0)

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Rejected:
    """Rows that are not rows of the stream: malformed, without a time, or too far in the future."""

    stream: str
    code: str
    reason: str
    rows: pa.RecordBatch | None = None
    raw: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.raw) if self.rows is None else int(self.rows.num_rows)


@dataclass
class Punctuate:
    """The promises made on one stream so far.

    Closed values ("auction 7 is closed") are looked up for the values in a batch, so enforcing them costs
    the batch, not all that was ever closed.
    """

    promised: int = MIN_TIME
    patterns: list[Punctuation] = field(default_factory=list)
    closed: dict[str, set[Any]] = field(default_factory=dict)

    def promise(self, time: int) -> bool:
        """Promise that rows to come are later than `time`; true if that is news."""
        if time <= self.promised:
            return False
        self.promised = time
        return True

    def close(self, punctuation: Punctuation) -> None:
        """Promise that no row to come matches `punctuation`."""
        if len(punctuation.patterns) == 1 and punctuation.until == MAX_TIME:
            name, pattern = punctuation.patterns[0]
            if isinstance(pattern, Constant):
                self.closed.setdefault(name, set()).add(pattern.value)
                return
        self.patterns.append(punctuation)

    @property
    def closes(self) -> bool:
        """Whether a promise was made on attributes other than time."""
        return bool(self.closed or self.patterns)

    def breaking(self, times: Times, rows: pa.RecordBatch) -> Mask:
        """Which rows break a promise."""
        return (times <= self.promised) | self.closed_to(times, rows)

    def closed_to(self, times: Times, rows: pa.RecordBatch) -> Mask:
        """Which rows break a promise on attributes other than time."""
        broken = np.zeros(len(times), np.bool_)
        for name, values in self.closed.items():
            hit = values.intersection(rows.column(name).unique().to_pylist())
            for value in hit:
                broken |= Constant(value).matches(rows.column(name))
        for punctuation in self.patterns:
            broken |= punctuation.matches(times, rows)
        return broken
