"""The protocol of partial values by instant, and the steps of groups that they apply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.codecs import Codec
from headrace.aggregates.specs import Spec
from headrace.arrays import Ints, Mask
from headrace.state.part import Part


@dataclass(frozen=True)
class Layout:
    """The layout of an event: an int64 line of time, group, sign, nulls, and a word for each column.

    Bit i of nulls is set if the i-th column is null. If rows are ordered, `number` is the element's place
    in that order and `content` identifies equal elements, so that one of them can be withdrawn.
    """

    columns: tuple[str, ...]
    TIME = 0
    GROUP = 1
    SIGN = 2
    NULLS = 3
    NUMBER = 4
    CONTENT = 5
    FIXED = 6

    @property
    def width(self) -> int:
        """Int64 numbers in a line."""
        return self.FIXED + len(self.columns)

    def word(self, column: str) -> int:
        """The place of a column's word."""
        return self.FIXED + self.columns.index(column)


@dataclass(frozen=True)
class Leaving:
    """Events that stand for all rows of a group that end together (`headrace.aggregates.instants.ends`).

    `events` are their numbers. `pieces`: for each spec the numbers of its partial value, an array each with a
    line for every one of these events.
    """

    events: Ints
    pieces: Mapping[Spec, Mapping[int, Ints]]

    def taken(self, events: Ints, lines: Ints) -> Leaving:
        """The same under other numbers of events, with the lines in this order."""
        pieces = {s: {n: of[lines] for n, of in found.items()} for s, found in self.pieces.items()}
        return Leaving(events, pieces)


@dataclass(frozen=True)
class Steps:
    """Events in order of (group, time), and the positions of the values they lead to.

    A step is all that happens to a group at an instant. Position first[g] is the group codes[g] before its
    first step here, the positions after it are its steps; `at` is the position of each event's step. `lines`
    has the time, group and rank in time of each position. `order` has the number that each event had when it
    was given, starts before ends. `leaving`: the events, if any, that have partial values in place of words.
    """

    layout: Layout
    codecs: Mapping[str, Codec]
    events: Ints
    at: Ints
    first: Ints
    lines: Ints
    order: Ints
    leaving: Leaving | None = None

    @property
    def positions(self) -> int:
        """How many positions there are."""
        return len(self.lines)

    @cached_property
    def codes(self) -> Ints:
        """The groups, in order."""
        codes: Ints = self.lines[self.first, 1]
        return codes

    @cached_property
    def has_nulls(self) -> bool:
        """Whether some event has a null."""
        return bool(self.events[:, Layout.NULLS].any())

    def sign(self) -> Ints:
        """The sign of each event: a row comes (+) or goes (−)."""
        return self.events[:, Layout.SIGN]

    def is_null(self, column: str) -> Mask:
        """Whether the column is null, for each event."""
        bit = np.int64(1) << self.layout.columns.index(column)
        null: Mask = (self.events[:, Layout.NULLS] & bit) != 0
        return null

    def known(self, column: str) -> Ints | slice:
        """The events that have a value which is not null."""
        if self.leaving is not None:
            coming = ~self.is_null(column)
            coming[self.leaving.events] = False
            return np.flatnonzero(coming)
        if not self.has_nulls:
            return slice(None)
        null = self.is_null(column)
        return np.flatnonzero(~null) if null.any() else slice(None)

    def deltas(self, spec: Spec, piece: int, events: Ints | slice, changes: Ints) -> tuple[Ints, Ints]:
        """At which positions a number changes by how much: by `changes` at `events`, and by what leaves."""
        if self.leaving is None:
            return self.at[events], changes
        found = np.zeros(len(self.events), np.int64)
        found[events] = changes
        leaving = self.leaving.pieces[spec].get(piece)
        if leaving is not None:
            found[self.leaving.events] -= leaving
        return self.at, found

    def words(self, column: str) -> Ints:
        """The word of each event."""
        return self.events[:, self.layout.word(column)]

    def values(self, column: str, events: Ints | slice) -> pa.Array:
        """The values of some events."""
        words = np.ascontiguousarray(self.words(column)[events])
        return self.codecs[column].decode(words)

    @cached_property
    def last(self) -> Ints:
        """The last position of each group."""
        last = np.empty_like(self.first)
        last[:-1] = self.first[1:]
        last[-1] = self.positions
        return last - 1


class InstantValue(ABC):
    """Keeps one partial value per group, as of the last step.

    Laws: `run` gives the value over exactly the rows valid at each position; its cost depends on the number
    of events, not on the size of the groups.
    """

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    @abstractmethod
    def run(self, steps: Steps, groups: int) -> Any:
        """Apply the steps; returns the value at each position, in the form that the spec states."""

    movable = True
    """Whether the values of a group can be evicted and restored."""

    def put_away(self, codes: Ints, groups: int) -> dict[str, pa.Array]:
        """The values of some groups, one row each, by name; `remap` then drops them from memory."""
        raise NotImplementedError

    def take_back(self, codes: Ints, groups: int, columns: Mapping[str, pa.Array]) -> None:
        """Restore values from `put_away`, for groups that are new here."""
        raise NotImplementedError

    @abstractmethod
    def remap(self, new: Ints, keep: Mask) -> None:
        """Forget groups; the others get new codes."""

    def words(self, column: str) -> Ints:
        """The words of a column's codec that are in use."""
        return np.empty(0, np.int64)

    def tidy(self) -> None:
        """Free space that is no longer used; called from time to time."""
        return

    @abstractmethod
    def state(self) -> dict[str, Part]:
        """The value of every group."""
