"""User-defined aggregates by instant: a state for each group, or its rows if it cannot remove rows.

If rows never leave, or the aggregate can remove them (`expire`), only the state is kept. Otherwise the rows
of each group are kept, as words: a step that only adds continues from the state, others start over.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.codecs import Codec
from headrace.aggregates.forest import lasts_for_ever
from headrace.aggregates.instants.protocol import InstantValue, Layout, Steps
from headrace.aggregates.objects import Derived, Folding, Objects, State, runs
from headrace.aggregates.specs import Folded
from headrace.arrays import Ints, Mask
from headrace.plan.nodes.core import Plan
from headrace.state.part import Part

_NUMBER, _NULLS, _WORDS = 0, 1, 2
"""The layout of a row's line: its number, which columns are null, and a word for each column."""

At = slice | Ints
"""Some of the events of a run, in order."""


class Given:
    """The events that an aggregate sees: a line for each, and the values, decoded once for a run."""

    def __init__(self, lines: Ints, signs: Ints, codecs: Sequence[Codec]) -> None:
        self.lines = lines
        self._signs, self._columns = signs, decoded(lines, codecs)

    def columns(self, at: At) -> list[pa.Array]:
        """The values of some events, an array per argument."""
        if isinstance(at, slice):
            return [column.slice(at.start, at.stop - at.start) for column in self._columns]
        return [column.take(pa.array(at)) for column in self._columns]

    def net(self, begin: int, end: int) -> tuple[At | None, At | None]:
        """The rows that come, in order, and those that go; a row that does both at once is left out."""
        if end - begin == 1:
            only = slice(begin, end)
            return (only, None) if self._signs[begin] > 0 else (None, only)
        numbers, comes = self.lines[begin:end, _NUMBER], self._signs[begin:end] > 0
        come, gone = np.flatnonzero(comes), np.flatnonzero(~comes)
        if len(come) and len(gone):
            both = np.intersect1d(numbers[come], numbers[gone])
            if len(both):
                come, gone = (each[~np.isin(numbers[each], both)] for each in (come, gone))
        come = come[np.argsort(numbers[come], kind="stable")]
        return begin + come if len(come) else None, begin + gone if len(gone) else None


def decoded(lines: Ints, codecs: Sequence[Codec]) -> list[pa.Array]:
    """The rows of some lines, as arrays for the aggregate."""
    return [codec.decode(*_words(lines, i)) for i, codec in enumerate(codecs)]


def _words(lines: Ints, column: int) -> tuple[Ints, Mask | None]:
    """The words of a column, and where it is not null."""
    valid: Mask = ((lines[:, _NULLS] >> column) & 1) == 0
    return np.ascontiguousarray(lines[:, _WORDS + column]), None if valid.all() else valid


class FoldedInstants(InstantValue):
    """Walks the steps of each group; a subclass decides what to keep for a group.

    What is kept is loaded when the walk enters a group, and stored when it leaves.
    """

    movable = False

    def __init__(self, spec: Folded, codecs: Mapping[str, Codec], below: pa.Schema) -> None:
        super().__init__(spec)
        self._folded, self._fold = spec, Folding(spec, below)
        self._codecs = [codecs[column] for column in spec.columns]
        self._held = Objects(spec.definition.name, spec.definition.allow_pickle)
        self._known = Derived(spec.definition.name)

    def run(self, steps: Steps, groups: int) -> pa.Array:
        events, lines = self._given(steps)
        given = Given(lines, steps.sign()[events], self._codecs)
        at = steps.at[events]
        pieces = {int(at[begin]): (begin, end) for begin, end in runs(at)}
        found: list[Any] = [None] * steps.positions
        walks = zip(steps.codes.tolist(), steps.first.tolist(), steps.last.tolist(), strict=True)
        for code, first, last in walks:
            self._enter(code)
            known = code in self._known
            value = found[first] = self._known.get(code) if known else self._fold.value(self._state())
            for position in range(first + 1, last + 1):
                if position in pieces:
                    self._step(given, *given.net(*pieces[position]))
                    value = self._fold.value(self._state())
                found[position] = value
            if self._leave(code):
                self._known.put(code, value)
            else:
                self._known.drop([code])
        return self._fold.array(found)

    def _given(self, steps: Steps) -> tuple[Ints, Ints]:
        """The events that the aggregate sees, with a line for each."""
        columns, layout = self._folded.columns, steps.layout
        nulls = np.zeros(len(steps.events), np.int64)
        if steps.has_nulls:
            for i, column in enumerate(columns):
                nulls |= steps.is_null(column).astype(np.int64) << i
        given = np.arange(len(nulls)) if self._folded.definition.nulls else np.flatnonzero(nulls == 0)
        lines = np.empty((len(given), _WORDS + len(columns)), np.int64)
        lines[:, _NUMBER] = steps.events[given, Layout.NUMBER]
        lines[:, _NULLS] = nulls[given]
        for i, column in enumerate(columns):
            lines[:, _WORDS + i] = steps.events[given, layout.word(column)]
        return given, lines

    @abstractmethod
    def _enter(self, code: int) -> None:
        """Load what is kept for a group."""

    @abstractmethod
    def _step(self, given: Given, come: At | None, gone: At | None) -> None:
        """Apply everything that happens to the group at one instant."""

    @abstractmethod
    def _state(self) -> State | None:
        """The state of the group; None if it has no rows."""

    @abstractmethod
    def _leave(self, code: int) -> bool:
        """Store what is kept for the group; returns whether there is anything."""

    def remap(self, new: Ints, keep: Mask) -> None:
        self._held.remap(new)
        self._known.clear()

    def state(self) -> dict[str, Part]:
        return {"held": self._held, "values": self._known}


class StatesOnly(FoldedInstants):
    """How many rows a group has, and the state; it starts over when the last row has left."""

    def _enter(self, code: int) -> None:
        held: tuple[int, State | None] = self._held.get(code) or (0, None)
        self._count, self._now = held

    def _step(self, given: Given, come: At | None, gone: At | None) -> None:
        if gone is not None:
            self._count -= _length(gone)
            self._now = self._fold.without_rows(self._now, given.columns(gone)) if self._count else None
        if come is not None:
            self._count += _length(come)
            self._now = self._fold.with_rows(self._now, given.columns(come))

    def _state(self) -> State | None:
        return self._now

    def _leave(self, code: int) -> bool:
        if self._count:
            self._held.put(code, (self._count, self._now))
        else:
            self._held.drop([code])
        return bool(self._count)


class RowsToo(FoldedInstants):
    """The rows of each group, in their order. States are computed from them and are not in a snapshot."""

    def __init__(self, spec: Folded, codecs: Mapping[str, Codec], below: pa.Schema) -> None:
        super().__init__(spec, codecs, below)
        self._states = Derived(spec.definition.name)

    def _enter(self, code: int) -> None:
        held = self._held.get(code)
        self._lines: Ints = np.empty((0, _WORDS + len(self._codecs)), np.int64) if held is None else held
        self._now = self._states.get(code)

    def _step(self, given: Given, come: At | None, gone: At | None) -> None:
        if gone is not None:
            self._lines, self._now = _without(self._lines, given.lines[gone, _NUMBER]), None
        if come is None:
            return
        if self._now is not None:
            self._now = self._fold.with_rows(self._now, given.columns(come))
        self._lines = np.concatenate((self._lines, given.lines[come]))

    def _state(self) -> State | None:
        if self._now is None and len(self._lines):
            self._now = self._fold.with_rows(None, decoded(self._lines, self._codecs))
        return self._now

    def _leave(self, code: int) -> bool:
        if not len(self._lines):
            self._held.drop([code])
            self._states.drop([code])
            return False
        self._held.put(code, self._lines)
        self._states.put(code, self._state())
        return True

    def remap(self, new: Ints, keep: Mask) -> None:
        super().remap(new, keep)
        self._states.clear()

    def words(self, column: str) -> Ints:
        """The words in use; a column that is an argument twice has the same words in both places."""
        if column not in self._folded.columns:
            return super().words(column)
        at = _WORDS + self._folded.columns.index(column)
        return np.concatenate([super().words(column), *(self._held.get(code)[:, at] for code in self._held)])

    def state(self) -> dict[str, Part]:
        return {**super().state(), "states": self._states}


def _length(at: At) -> int:
    """How many events `at` selects."""
    return at.stop - at.start if isinstance(at, slice) else len(at)


def _without(lines: Ints, numbers: Ints) -> Ints:
    """The rows without those that have these numbers; rows are in order of number."""
    if len(numbers) == 1:
        at = int(np.searchsorted(lines[:, _NUMBER], numbers[0]))
        return np.concatenate((lines[:at], lines[at + 1 :]))
    kept: Ints = lines[~np.isin(lines[:, _NUMBER], numbers)]
    return kept


def folded_instants(spec: Folded, codecs: Mapping[str, Codec], input: Plan) -> FoldedInstants:
    """The object that keeps a user-defined aggregate by instant."""
    alone = spec.definition.expires or lasts_for_ever(input)
    return (StatesOnly if alone else RowsToo)(spec, codecs, input.schema)
