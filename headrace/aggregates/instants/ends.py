"""What leaves a group at an instant as one partial value: counts and exact sums of all rows that end then.

Where a granularity or a slide rounds validity, many rows of a group end at the same instant. Nothing that is
computed from counts and sums needs to tell them apart (Cammert et al., §2.2: the state of an aggregate
shrinks with a coarser granularity). Sums are exact, so it makes no difference that they are subtracted
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace import tuning
from headrace.aggregates.codecs import Codec
from headrace.aggregates.instants.protocol import Layout, Leaving
from headrace.aggregates.limbs import digits_of, whole_limbs
from headrace.aggregates.specs import Nulls, OfColumn, Real, Rows, Spec, Whole
from headrace.arrays import Events, Ints
from headrace.state.timeline import Timeline

Piece = tuple[int, int]
"""A number of a partial value: the position of its spec, and which of its numbers."""

ADDITIVE: Final = (Rows, Nulls, Whole, Real)
"""Partial values that can be subtracted."""
_ROWS: Final = 2
_FIXED: Final = 3
"""A line has the time, the group, the number of rows, and a number for each piece."""


class PartialEnds(Timeline):
    """A timeline of partial values: one line for the rows of a group that end together.

    Law: for each group and instant, the lines add up to the rows that end there. Lines of one group and
    instant that came apart are added up from time to time, so there are at most about twice as many as
    needed. A column is added when a sum first needs it (`headrace.aggregates.limbs`).
    """

    def __init__(self, specs: Sequence[Spec], layout: Layout, codecs: Mapping[str, Codec]) -> None:
        self._specs = [spec for spec in specs if isinstance(spec, OfColumn)]
        self._layout, self._codecs = layout, codecs
        self._pieces = [
            (i, number)
            for i, spec in enumerate(self._specs)
            for number in range(spec.limbs if isinstance(spec, Whole) else int(isinstance(spec, Nulls)))
        ]
        self._least = 0
        super().__init__(_FIXED + len(self._pieces))

    def add_rows(self, lines: Ints, until: Ints) -> None:
        """Add the ends of rows: `lines` are their starts as events, `until` their ends."""
        if not len(lines):
            return
        numbers = dict(self._numbers(lines))
        self._have([piece for piece in numbers if piece not in self._pieces])
        rows = np.zeros((len(lines), self.width), np.int64)
        rows[:, Layout.TIME] = until
        rows[:, Layout.GROUP] = lines[:, Layout.GROUP]
        rows[:, _ROWS] = lines[:, Layout.SIGN]
        for at, piece in enumerate(self._pieces, _FIXED):
            if piece in numbers:
                rows[:, at] = numbers[piece]
        self.add(_added_up(rows))
        if len(self) > 2 * self._least + tuning.current.compact_after:
            self.coalesce()

    def _numbers(self, lines: Ints) -> Iterator[tuple[Piece, Ints]]:
        """For each piece that is not 0 everywhere, the number of each row."""
        sign = lines[:, Layout.SIGN]
        values: dict[str, tuple[Ints, Any]] = {}
        for i, spec in enumerate(self._specs):
            bit = np.int64(1) << self._layout.columns.index(spec.column)
            null = (lines[:, Layout.NULLS] & bit) != 0
            if isinstance(spec, Nulls):
                yield (i, 0), np.where(null, sign, 0)
                continue
            if spec.column not in values:
                known = np.flatnonzero(~null)
                words = np.ascontiguousarray(lines[known, self._layout.word(spec.column)])
                values[spec.column] = known, self._codecs[spec.column].decode(words)
            known, column = values[spec.column]
            found = _whole(column, spec) if isinstance(spec, Whole) else _real(column, spec)
            for number, of in found:
                spread = np.zeros(len(lines), np.int64)
                spread[known] = of * sign[known]
                yield (i, number), spread

    def _have(self, pieces: list[Piece]) -> None:
        """Add columns for these pieces."""
        if pieces:
            self._pieces += pieces
            self.widen(_FIXED + len(self._pieces))

    def coalesce(self) -> None:
        """Add up the lines of one group and instant that are in memory."""
        self.rewrite(_added_up)
        self._least = len(self)

    def taken(self, until: int) -> tuple[Events, Leaving]:
        """Remove what ends up to `until`: as events without values, and the values that leave."""
        lines = self.take(until)
        ends = np.zeros((len(lines), self._layout.width), np.int64)
        ends[:, Layout.TIME], ends[:, Layout.GROUP] = lines[:, Layout.TIME], lines[:, Layout.GROUP]
        ends[:, Layout.SIGN] = -lines[:, _ROWS]
        columns: dict[Spec, dict[int, Ints]] = {spec: {} for spec in self._specs}
        for at, (i, number) in enumerate(self._pieces, _FIXED):
            columns[self._specs[i]][number] = lines[:, at]
        self._least = min(self._least, len(self))
        return ends, Leaving(np.arange(len(lines)), columns)

    def seen(self) -> tuple[int, int]:
        """A sample of the earliest ends: how many rows they are, and of how many groups."""
        times = self.values(Layout.TIME)
        if not len(times):
            return 0, 0
        sample = tuning.current.granularity_sample
        upto = times.max() if len(times) <= sample else np.partition(times, sample)[sample]
        chosen = times <= upto
        groups = np.unique(self.values(Layout.GROUP)[chosen])
        return int(self.values(_ROWS)[chosen].sum()), len(groups)

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {**super().changes(full), "pieces": np.array(self._pieces, np.int64).reshape(-1, 2)}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._pieces = [(int(i), int(number)) for i, number in chunk["pieces"]]
        self.width = _FIXED + len(self._pieces)
        super().apply(chunk)


def _whole(column: Any, spec: Whole) -> Iterator[tuple[int, Ints]]:
    """The limbs of whole numbers."""
    yield from enumerate(whole_limbs(column, spec.limbs))


def _real(column: Any, spec: Spec) -> Iterator[tuple[int, Ints]]:
    """The digits of numbers of any size, by their place."""
    assert isinstance(spec, Real)
    numbers = digits_of(column, spec.power)
    places = numbers.bases[:, None] + np.arange(numbers.digits.shape[1])
    for place in np.unique(places[numbers.digits != 0]):
        yield int(place), np.where(places == place, numbers.digits, 0).sum(axis=1)


def _added_up(lines: Events) -> Events:
    """One line for each instant and group, in this order; a line that adds up to nothing is dropped."""
    order = np.lexsort((lines[:, Layout.GROUP], lines[:, Layout.TIME]))
    lines = lines[order]
    first = np.ones(len(lines), np.bool_)
    first[1:] = (lines[1:, : Layout.GROUP + 1] != lines[:-1, : Layout.GROUP + 1]).any(axis=1)
    at = np.flatnonzero(first)
    summed = lines[at]
    summed[:, _ROWS:] = np.add.reduceat(lines[:, _ROWS:], at, axis=0)
    kept: Events = summed[summed[:, _ROWS:].any(axis=1)]
    return kept
