"""The values that punctuations have closed for good, in little memory.

A stream remembers them for as long as it runs. Identifiers are mostly closed one after the other, so integers
are kept as runs of consecutive numbers: the cost follows the gaps between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace import tuning
from headrace.arrays import Ints, Mask, Times

Values = tuple[Any, ...]

_SET_BYTES: Final = 150
"""The estimated size of values in a set."""
_INT64: Final = np.iinfo(np.int64)


class Runs:
    """A set of 64-bit integers: runs of consecutive numbers, and some that are merged into them later."""

    def __init__(self) -> None:
        self._first: Times = np.empty(0, np.int64)
        self._last: Times = np.empty(0, np.int64)
        self._waiting: set[int] = set()

    def __len__(self) -> int:
        """The number of runs, with all numbers merged."""
        self._merge()
        return len(self._first)

    def __contains__(self, number: int) -> bool:
        return number in self._waiting or bool(self._held(np.array([number], np.int64))[0])

    def add(self, number: int) -> bool:
        """Add a number; true if it is new."""
        if number in self:
            return False
        self._waiting.add(number)
        if len(self._waiting) > max(tuning.current.closed_waiting, len(self._first) // 4):
            self._merge()
        return True

    def among(self, numbers: Ints) -> list[int]:
        """Those of some different numbers that are in the set."""
        found: list[int] = numbers[self._held(numbers)].tolist()
        return [*found, *self._waiting.intersection(numbers.tolist())] if self._waiting else found

    def _held(self, numbers: Ints) -> Mask:
        """Which numbers are in a run."""
        if not len(self._first):
            return np.zeros(len(numbers), np.bool_)
        at = np.searchsorted(self._first, numbers, side="right") - 1
        held: Mask = (at >= 0) & (numbers <= self._last[at])
        return held

    def _merge(self) -> None:
        """Make the numbers that wait part of runs."""
        if not self._waiting:
            return
        new = np.fromiter(self._waiting, np.int64, len(self._waiting))
        self._waiting.clear()
        first, last = np.concatenate((self._first, new)), np.concatenate((self._last, new))
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
        begins = np.ones(len(first), np.bool_)
        begins[1:] = first[1:] - 1 > last[:-1]  # nothing is before the first, so this does not overflow
        self._first, self._last = first[begins], last[np.append(begins[1:], True)]

    @property
    def bytes(self) -> int:
        """Its size, which depends on the numbers and not on the order in which they came."""
        return 16 * len(self)

    def arrays(self) -> tuple[Times, Times]:
        """The first and the last number of each run."""
        self._merge()
        return self._first, self._last

    def read(self, first: Times, last: Times) -> None:
        """Become the set of these runs."""
        self._first, self._last = first.astype(np.int64), last.astype(np.int64)
        self._waiting = set()


class ClosedValues:
    """The closed values of some columns together. `runs` has the integers, if it is one column."""

    def __init__(self) -> None:
        self.runs = Runs()
        self._others: set[Values] = set()

    def add(self, values: Values) -> bool:
        """Add a value for each column; true if they are new together."""
        if len(values) == 1 and type(values[0]) is int and _INT64.min <= values[0] <= _INT64.max:
            return self.runs.add(values[0])
        known = len(self._others)
        self._others.add(values)
        return len(self._others) > known

    def among(self, rows: pa.RecordBatch, names: Sequence[str]) -> Iterator[Values]:
        """The closed values that occur in the columns `names` of some rows."""
        if len(names) == 1 and pt.is_integer(rows.schema.field(names[0]).type):
            column = rows.column(names[0]).unique()
            if column.type != pa.uint64():
                numbers = column.drop_null().to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
                yield from ((number,) for number in self.runs.among(numbers))
                if column.null_count and (None,) in self._others:
                    yield (None,)
                return
        for values in distinct_values(rows, names):
            if values in self._others or (len(values) == 1 and _is_whole(values[0], self.runs)):
                yield values

    @property
    def others(self) -> Iterable[Values]:
        """Those that are not in `runs`."""
        return self._others

    @property
    def bytes(self) -> int:
        """Its estimated size."""
        return self.runs.bytes + _SET_BYTES * len(self._others)


def _is_whole(value: Any, numbers: Runs) -> bool:
    """Whether a value of another type equals one of some integers."""
    try:
        whole = int(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return whole == value and _INT64.min <= whole <= _INT64.max and whole in numbers


def distinct_values(rows: pa.RecordBatch, names: Sequence[str]) -> set[Values]:
    """The distinct values of some columns together."""
    if len(names) == 1:
        return {(value,) for value in rows.column(names[0]).unique().to_pylist()}
    columns = pa.Table.from_batches([rows.select(list(names))])
    found = columns.group_by(list(names)).aggregate([])
    return set(zip(*(found.column(name).to_pylist() for name in names), strict=True))
