"""Extremes, ends and distinct values by instant: ends and sizes of ordered multisets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.codecs import Codec
from headrace.aggregates.forest import CHANGE, COUNT, GROUP, ITEM, KEY, VALID, Forest
from headrace.aggregates.instants.protocol import InstantValue, Layout, Steps
from headrace.aggregates.specs import OfColumn
from headrace.arrays import Ints, Mask
from headrace.state.columns import valid_mask
from headrace.state.part import Part

LEAST, GREATEST = 1, 4
"""Where `run_trees` puts the two ends."""


class Ordered(InstantValue):
    """A forest; each subclass defines its keys."""

    KEYED = KEY
    """Whether the column's words are the keys or the items."""

    def __init__(self, column: str, codec: Codec) -> None:
        super().__init__(OfColumn(column))
        self.column, self.codec = column, codec
        self.forest = self._planted(codec)

    @abstractmethod
    def _planted(self, codec: Codec) -> Forest:
        """A forest whose keys are in their order."""

    def run(self, steps: Steps, groups: int) -> Any:
        events = self.chosen(steps)
        at = steps.at[events]
        changes = np.empty((len(at), CHANGE), np.int64)
        changes[:, COUNT] = steps.sign()[events]
        changes[:, GROUP] = steps.events[events, Layout.GROUP]
        self.fill(changes, steps, events)
        self.forest.reserve(groups, len(changes))
        return self.forest.run(steps.codes, steps.first, at, changes, steps.positions)

    @abstractmethod
    def chosen(self, steps: Steps) -> Ints | slice:
        """The events that count."""

    @abstractmethod
    def fill(self, changes: Ints, steps: Steps, events: Ints | slice) -> None:
        """Set keys, items and validity."""

    def words(self, column: str) -> Ints:
        return self.forest.items(self.KEYED) if column == self.column else super().words(column)

    def put_away(self, codes: Ints, groups: int) -> dict[str, pa.Array]:
        """A list per group: keys, items and counts; the words of the column are decoded to values."""
        self.forest.reserve(groups, 0)
        sizes, lines = self.forest.of_groups(codes)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]))
        columns = {"key": lines[:, KEY], "item": lines[:, ITEM], "count": lines[:, COUNT]}
        arrays = {name: pa.array(values) for name, values in columns.items()}
        valid: Mask | None = None if self.KEYED == KEY else lines[:, VALID] == 1
        words = np.ascontiguousarray(lines[:, self.KEYED])
        arrays["item" if self.KEYED == ITEM else "key"] = self.codec.decode(words, valid)
        return {name: pa.LargeListArray.from_arrays(offsets, values) for name, values in arrays.items()}

    def take_back(self, codes: Ints, groups: int, columns: Mapping[str, pa.Array]) -> None:
        sizes = columns["count"].value_lengths().to_numpy()
        values = {name: column.flatten() for name, column in columns.items()}
        own = "item" if self.KEYED == ITEM else "key"
        changes = np.zeros((len(values["count"]), CHANGE), np.int64)
        changes[:, GROUP] = np.repeat(codes, sizes)
        changes[:, COUNT] = values["count"].to_numpy()
        words = self.codec.encode(values[own])
        for name, at in (("key", KEY), ("item", ITEM)):
            changes[:, at] = words if name == own else values[name].to_numpy()
        if self.KEYED == ITEM:
            changes[:, VALID] = valid_mask(values[own])
        self.forest.reserve(groups, len(changes))
        self.forest.change(changes)

    def remap(self, new: Ints, keep: Mask) -> None:
        self.forest.remap(new, keep)

    def tidy(self) -> None:
        self.forest.tidy()

    def state(self) -> dict[str, Part]:
        return {"forest": self.forest}


class Values(Ordered):
    """The distinct valid values: one forest for `min`, `max` and `count(distinct)` of a column."""

    def _planted(self, codec: Codec) -> Forest:
        """Words are reused once values were forgotten: trees are then written whole."""
        forest = Forest(codec.order)
        codec.on_forget(forest.write_whole)
        return forest

    def chosen(self, steps: Steps) -> Ints | slice:
        return steps.known(self.column)

    def fill(self, changes: Ints, steps: Steps, events: Ints | slice) -> None:
        changes[:, KEY] = steps.words(self.column)[events]
        changes[:, ITEM] = changes[:, VALID] = 0

    def extreme(self, out: Ints, end: int) -> pa.Array:
        """The least or the greatest value at each position."""
        return self.codec.decode(np.ascontiguousarray(out[:, end + KEY]))

    def distinct(self, out: Ints) -> Ints:
        """How many different values."""
        return np.ascontiguousarray(out[:, 0])


class Arrivals(Ordered):
    """The rows that are valid, in their order: one forest for `first` and `last` of a column."""

    KEYED = ITEM

    def _planted(self, codec: Codec) -> Forest:
        return Forest()

    def chosen(self, steps: Steps) -> slice:
        return slice(None)

    def fill(self, changes: Ints, steps: Steps, events: Ints | slice) -> None:
        changes[:, KEY] = steps.events[:, Layout.NUMBER]
        changes[:, ITEM] = steps.words(self.column)
        changes[:, VALID] = ~steps.is_null(self.column)

    def value(self, out: Ints, end: int) -> pa.Array:
        """The value of the first or the last row at each position."""
        valid = out[:, end + VALID] == 1
        return self.codec.decode(np.ascontiguousarray(out[:, end + ITEM]), None if valid.all() else valid)
