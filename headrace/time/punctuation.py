"""Punctuations: promises about rows that will not come (Tucker & Maier, §2 and Figure 2).

A punctuation has one pattern per attribute and promises that no later tuple matches all of them. The
heartbeat is the punctuation with a pattern on time alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask, Times
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Constant:
    """Matches one value; null matches null."""

    value: Any

    def matches(self, values: pa.Array) -> Mask:
        return _one_of(values, (self.value,))


@dataclass(frozen=True)
class OneOf:
    """Matches the values of a list."""

    values: tuple[Any, ...]

    def matches(self, values: pa.Array) -> Mask:
        return _one_of(values, self.values)


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

    `heartbeat` applied at that time. `missed` counts the results that each row came too late for; an
    `admitted` row still counted in others.
    """

    stream: str
    rows: pa.RecordBatch
    times: Times
    heartbeat: int
    missed: Times
    admitted: Mask

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


@dataclass
class Punctuate:
    """The promises made on one stream so far.

    Closed values ("auction 7 is closed") are looked up for the values in a batch, so the cost depends on the
    batch, not on the number of closed values.
    """

    promised: int = MIN_TIME
    patterns: list[Punctuation] = field(default_factory=list)
    closed: dict[str, set[Any]] = field(default_factory=dict)

    def promise(self, time: int) -> bool:
        """Promise that future rows are later than `time`; true if that is new."""
        if time <= self.promised:
            return False
        self.promised = time
        return True

    def close(self, punctuation: Punctuation) -> None:
        """Promise that no future row matches `punctuation`."""
        if len(punctuation.patterns) == 1 and punctuation.until == MAX_TIME:
            name, pattern = punctuation.patterns[0]
            if isinstance(pattern, Constant):
                self.closed.setdefault(name, set()).add(pattern.value)
                return
        self.patterns.append(punctuation)

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
        for name, values in self.closed.items():
            hit = values.intersection(rows.column(name).unique().to_pylist())
            for value in hit:
                broken |= Constant(value).matches(rows.column(name))
        for punctuation in self.patterns:
            broken |= punctuation.matches(times, rows)
        return broken
