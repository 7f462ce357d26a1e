"""Punctuations: promises about what will not come (Tucker & Maier, §2 and Figure 2).

A punctuation has one pattern per attribute and promises that no later tuple matches all of them. The
heartbeat is the punctuation whose only pattern is on time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.time.timestamp import MAX_TIME, MIN_TIME

Mask = npt.NDArray[np.bool_]


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
    """Matches low ≤ value ≤ high; an end that is None is open. Null matches nothing."""

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
        """Whether a single value lies between."""
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
        """The heartbeat this implies: `until` where nothing else is restricted, else no promise."""
        return MIN_TIME if self.patterns else self.until

    @cached_property
    def columns(self) -> dict[str, Pattern]:
        """The patterns by attribute."""
        return dict(self.patterns)

    def matches(self, times: npt.NDArray[np.int64], data: pa.RecordBatch) -> Mask:
        """Which rows this punctuation speaks of."""
        mask: Mask = times <= self.until
        for name, pattern in self.patterns:
            mask = mask & pattern.matches(data.column(name))
        return mask

    def rename(self, names: Mapping[str, str]) -> Punctuation | None:
        """The same promise under other names; None where an attribute it restricts is gone."""
        if any(name not in names for name, _ in self.patterns):
            return None
        return Punctuation(self.until, tuple((names[name], pattern) for name, pattern in self.patterns))

    def intersect(self, other: Punctuation) -> Punctuation | None:
        """The promise that both together make of the rows that both speak of; None where no row is."""
        merged = dict(self.patterns)
        for name, pattern in other.patterns:
            both = intersect(merged[name], pattern) if name in merged else pattern
            if both is None:
                return None
            merged[name] = both
        return Punctuation(min(self.until, other.until), tuple(merged.items()))


def heartbeat(time: int) -> Punctuation:
    """The punctuation whose only pattern is on time."""
    return Punctuation(time)


def intersect(left: Pattern, right: Pattern) -> Pattern | None:
    """The pattern that matches what both match; None where that is nothing."""
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
    return pattern.holds(value) if isinstance(pattern, Between) else value in _values(pattern)


def _one_of(values: pa.Array, wanted: tuple[Any, ...]) -> Mask:
    return _mask(pc.is_in(values, value_set=pa.array(wanted, values.type)))


def _mask(array: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(array, pa.scalar(False)).to_numpy(zero_copy_only=False)
    return mask
