"""Punctuations: promises about rows that will not come (Tucker & Maier, §2 and Figure 2).

A punctuation has one pattern per attribute and promises that no later tuple matches all of them. The
heartbeat is the punctuation with a pattern on time alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask, Times
from headrace.time.closed_values import ClosedValues
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Constant:
    """Matches one value; null matches null."""

    value: Any

    def matches(self, values: pa.Array) -> Mask:
        return _one_of(values, (self.value,))

    def __str__(self) -> str:
        return f"= {_shown(self.value)}"


@dataclass(frozen=True)
class OneOf:
    """Matches the values of a list."""

    values: tuple[Any, ...]

    def matches(self, values: pa.Array) -> Mask:
        return _one_of(values, self.values)

    def __str__(self) -> str:
        return f"in ({', '.join(map(_shown, self.values))})"


@dataclass(frozen=True)
class Between:
    """Matches low ≤ value ≤ high; None leaves that end open. Null never matches."""

    low: Any = None
    high: Any = None

    def matches(self, values: pa.Array) -> Mask:
        mask = _mask(pc.is_valid(values))
        if self.low is not None:
            mask &= _mask(pc.greater_equal(values, pa.scalar(self.low, values.type)))
        if self.high is not None:
            mask &= _mask(pc.less_equal(values, pa.scalar(self.high, values.type)))
        return mask

    def holds(self, value: Any) -> bool:
        """Whether a single value is between the ends."""
        above = self.low is None or (value is not None and value >= self.low)
        below = self.high is None or (value is not None and value <= self.high)
        return value is not None and above and below

    def __str__(self) -> str:
        low, high = ("" if end is None else _shown(end) for end in (self.low, self.high))
        return f"in {low}..{high}"


Pattern = Constant | OneOf | Between


@dataclass(frozen=True)
class Punctuation:
    """No later tuple has a time ≤ `until` and values that match every pattern.

    Attributes without a pattern are wildcards; `until == MAX_TIME` is the wildcard on time.
    """

    until: int = MAX_TIME
    patterns: tuple[tuple[str, Pattern], ...] = ()

    @cached_property
    def heartbeat(self) -> int:
        """The heartbeat that follows from this: `until` if there are no other patterns, else no promise."""
        return MIN_TIME if self.patterns else self.until

    @cached_property
    def columns(self) -> dict[str, Pattern]:
        """The patterns by attribute."""
        return dict(self.patterns)

    def matches(self, times: npt.NDArray[np.int64], data: pa.RecordBatch) -> Mask:
        """Which rows match this punctuation."""
        mask: Mask = times <= self.until
        for name, pattern in self.patterns:
            mask = mask & pattern.matches(data.column(name))
        return mask

    def __str__(self) -> str:
        """For messages: the patterns, such as `auction = 7 and price in 5..`."""
        return " and ".join(f"{name} {pattern}" for name, pattern in self.patterns)

    def rename(self, names: Mapping[str, str]) -> Punctuation | None:
        """The same promise under other names; None if an attribute with a pattern is missing."""
        if any(name not in names for name, _ in self.patterns):
            return None
        return Punctuation(self.until, tuple((names[name], pattern) for name, pattern in self.patterns))

    def intersect(self, other: Punctuation) -> Punctuation | None:
        """The common promise, about the rows that match both; None if no row can."""
        merged = dict(self.patterns)
        for name, pattern in other.patterns:
            both = intersect(merged[name], pattern) if name in merged else pattern
            if both is None:
                return None
            merged[name] = both
        return Punctuation(min(self.until, other.until), tuple(merged.items()))


def heartbeat(time: int) -> Punctuation:
    """The punctuation with a pattern on time alone."""
    return Punctuation(time)


def intersect(left: Pattern, right: Pattern) -> Pattern | None:
    """The pattern for the values that match both; None if there are none."""
    if isinstance(left, Between) and isinstance(right, Between):
        low = max((p.low for p in (left, right) if p.low is not None), default=None)
        high = min((p.high for p in (left, right) if p.high is not None), default=None)
        empty = low is not None and high is not None and low > high
        return None if empty else Between(low, high)
    if isinstance(left, Between):
        return intersect(right, left)
    kept = tuple(v for v in _values(left) if _holds(right, v))
    if not kept:
        return None
    return Constant(kept[0]) if len(kept) == 1 else OneOf(kept)


def _values(pattern: Constant | OneOf) -> tuple[Any, ...]:
    return (pattern.value,) if isinstance(pattern, Constant) else pattern.values


def _holds(pattern: Pattern, value: Any) -> bool:
    """Whether the pattern matches one Python value."""
    return pattern.holds(value) if isinstance(pattern, Between) else value in _values(pattern)


def _one_of(values: pa.Array, wanted: tuple[Any, ...]) -> Mask:
    return _mask(pc.is_in(values, value_set=pa.array(wanted, values.type)))


def _shown(value: Any) -> str:
    """A value in a message: dates and times as ISO text, no value as NULL."""
    if value is None:
        return "NULL"
    return value.isoformat() if hasattr(value, "isoformat") else repr(value)


def _mask(array: pa.Array) -> Mask:
    """An Arrow boolean array as a mask; null is False."""
    mask: Mask = pc.fill_null(array, pa.scalar(False)).to_numpy(zero_copy_only=False)
    return mask


# The punctuate operator: promises made on a stream, and enforced on it (Tucker & Maier, §2).
#
# A timer or a heartbeat generator supplies the time; `promise` turns it into a punctuation, and `breaking`
# finds the rows that break one.


@dataclass(frozen=True)
class Late:
    """Rows that came although a punctuation had promised that they would not.

    `heartbeat` applied at that time, to all rows or to each. `missed` counts the results that each row came
    too late for; an `admitted` row still counted in others. `reasons` name the punctuation that each row
    broke; None for rows that were late by their time.
    """

    stream: str
    rows: pa.RecordBatch
    times: Times
    heartbeat: int | Times
    missed: Times
    admitted: Mask
    reasons: tuple[str | None, ...] = ()

    @property
    def lateness(self) -> Times:
        """By how many ticks each row was late; 0 if a punctuation on other attributes excluded it."""
        return np.maximum(self.heartbeat - self.times + 1, 0)

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Rejected:
    """Rows that do not fit the stream: malformed, without a time, or too far in the future."""

    stream: str
    code: str
    reason: str
    rows: pa.RecordBatch | None = None
    raw: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.raw) if self.rows is None else int(self.rows.num_rows)


Columns = tuple[str, ...]
WrittenRuns = Mapping[str, tuple[Times, Times]]
"""By column, the first and the last number of each run of closed integers."""


@dataclass
class Punctuate:
    """The promises made on one stream so far.

    Closed values ("auction 7 is closed") are looked up for the values in a batch, so the cost depends on the
    batch, not on the number of closed values. `log` has the punctuations since the last snapshot; None if
    there was none.
    """

    promised: int = MIN_TIME
    patterns: list[Punctuation] = field(default_factory=list)
    closed: dict[Columns, ClosedValues] = field(default_factory=dict)
    log: list[Punctuation] | None = None

    def promise(self, time: int) -> bool:
        """Promise that future rows are later than `time`; true if that is new."""
        if time <= self.promised:
            return False
        self.promised = time
        return True

    def close(self, punctuation: Punctuation) -> bool:
        """Promise that no future row matches `punctuation`; true if that is new."""
        new = self._add(punctuation)
        if new and self.log is not None:
            self.log.append(punctuation)
        return new

    def _add(self, punctuation: Punctuation) -> bool:
        """Note a punctuation; true if it is new."""
        by_name = sorted(punctuation.patterns, key=lambda each: each[0])
        values = tuple(pattern.value for _, pattern in by_name if isinstance(pattern, Constant))
        if punctuation.until == MAX_TIME and len(values) == len(by_name):
            return self.closed.setdefault(tuple(name for name, _ in by_name), ClosedValues()).add(values)
        if punctuation in self.patterns:
            return False
        self.patterns.append(punctuation)
        return True

    @property
    def closes(self) -> bool:
        """Whether there is a promise on attributes other than time."""
        return bool(self.closed or self.patterns)

    def breaking(self, times: Times, rows: pa.RecordBatch) -> Mask:
        """Which rows break a promise."""
        return (times <= self.promised) | self.closed_to(times, rows)

    def closed_to(self, times: Times, rows: pa.RecordBatch) -> Mask:
        """Which rows break a promise on attributes other than time."""
        broken = np.zeros(len(times), np.bool_)
        for punctuation in self._matched(rows):
            broken |= punctuation.matches(times, rows)
        return broken

    def broken_by(self, times: Times, rows: pa.RecordBatch) -> tuple[str | None, ...]:
        """For each row, why it breaks a promise on attributes; None if it does not."""
        found: list[str | None] = [None] * len(times)
        for punctuation in self._matched(rows):
            why = f"breaks the punctuation {punctuation}"
            for i in np.flatnonzero(punctuation.matches(times, rows)):
                found[i] = min(found[i] or why, why)  # the same one, however the promises came
        return tuple(found)

    def _matched(self, rows: pa.RecordBatch) -> Iterator[Punctuation]:
        """The punctuations that may match one of the rows."""
        for names, closed in self.closed.items():
            for values in closed.among(rows, names):
                patterns = zip(names, map(Constant, values), strict=True)
                yield Punctuation(patterns=tuple(patterns))
        yield from self.patterns

    def bytes(self) -> int:
        """The estimated size of what is remembered."""
        return sum(each.bytes for each in self.closed.values())

    def written(self, full: bool) -> tuple[list[Punctuation], WrittenRuns, bool]:
        """What a snapshot needs: punctuations, and runs of closed integers, all of them or what is new.

        Tells which of the two it is, and starts the next increment.
        """
        log, self.log = self.log, []
        if log is not None and not full:
            return log, {}, False
        others = [
            Punctuation(patterns=tuple((n, Constant(v)) for n, v in zip(names, values, strict=True)))
            for names, closed in self.closed.items()
            for values in closed.others
        ]
        runs = {names[0]: closed.runs.arrays() for names, closed in self.closed.items() if len(closed.runs)}
        return self.patterns + others, runs, True

    def read(self, punctuations: Iterable[Punctuation], runs: WrittenRuns | None = None) -> None:
        """Take what a snapshot has."""
        for name, (first, last) in (runs or {}).items():
            self.closed.setdefault((name,), ClosedValues()).runs.read(first, last)
        for punctuation in punctuations:
            self._add(punctuation)
        self.log = []
