"""User-defined aggregates by instant: a state per group, or its rows where nothing can be taken away.

Where rows never leave, or the aggregate can let them go (`expire`), the state alone is kept. Else a group's
rows are, as words: a step that only adds goes on from the state, one that takes away begins anew.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.flow.state import Part
from headrace.operators.accumulators.codecs import Codec, Relabelling
from headrace.operators.accumulators.copies import lasts_for_ever
from headrace.operators.accumulators.folding import Folding, State, runs
from headrace.operators.accumulators.instants import InstantValue, Ints, Layout, Mask, Steps
from headrace.operators.accumulators.objects import Derived, Objects
from headrace.operators.accumulators.specs import Folded
from headrace.plan.nodes import Plan

_NUMBER, _NULLS, _WORDS = 0, 1, 2
"""Where a line of a kept row has what: its number, which columns are null, and a word for each column."""


class FoldedInstants(InstantValue):
    """Walks the steps of each group; a subclass says what is kept of it."""

    def __init__(self, spec: Folded, codecs: Mapping[str, Codec], below: pa.Schema) -> None:
        super().__init__(spec)
        self._folded, self._fold = spec, Folding(spec, below)
        self._codecs = [codecs[column] for column in spec.columns]
        self._held = Objects(spec.definition.name)
        self._known = Derived(spec.definition.name)

    def run(self, steps: Steps, groups: int) -> pa.Array:
        events, lines = self._given(steps)
        at, signs = steps.at[events], steps.sign()[events]
        pieces = {int(at[begin]): (begin, end) for begin, end in runs(at)}
        found: list[Any] = [None] * steps.positions
        walks = zip(steps.codes.tolist(), steps.first.tolist(), steps.last.tolist(), strict=True)
        for code, first, last in walks:
            value = found[first] = self._value(code)
            for position in range(first + 1, last + 1):
                if position in pieces:
                    begin, end = pieces[position]
                    self._step(code, lines[begin:end], signs[begin:end])
                    value = self._fold.value(self._state(code))
                found[position] = value
            self._remember(code, value)
        return self._fold.array(found)

    def _given(self, steps: Steps) -> tuple[Ints, Ints]:
        """The events that the aggregate is given, and a line for each."""
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

    def _value(self, code: int) -> Any:
        return self._known.get(code) if code in self._known else self._fold.value(self._state(code))

    def _remember(self, code: int, value: Any) -> None:
        if self._held.get(code) is None:
            self._known.drop([code])
        else:
            self._known.put(code, value)

    def _columns(self, lines: Ints) -> list[pa.Array]:
        """The rows of some lines, as the aggregate is given them."""
        return [codec.decode(*self._words(lines, i)) for i, codec in enumerate(self._codecs)]

    def _words(self, lines: Ints, column: int) -> tuple[Ints, Mask | None]:
        valid: Mask = ((lines[:, _NULLS] >> column) & 1) == 0
        return np.ascontiguousarray(lines[:, _WORDS + column]), None if valid.all() else valid

    @abstractmethod
    def _step(self, code: int, lines: Ints, signs: Ints) -> None:
        """Take what happens to a group at an instant."""

    @abstractmethod
    def _state(self, code: int) -> State | None:
        """The state of a group; None where it has no rows."""

    def remap(self, new: Ints, keep: Mask) -> None:
        self._held.remap(new)
        self._known.clear()

    def state(self) -> dict[str, Part]:
        return {"held": self._held, "values": self._known}


class StatesOnly(FoldedInstants):
    """How many rows a group has, and the state; it begins anew whenever the last row has left."""

    def _step(self, code: int, lines: Ints, signs: Ints) -> None:
        come, gone = _net(lines, signs)
        count, state = self._held.get(code) or (0, None)
        if len(gone):
            count -= len(gone)
            state = self._fold.without_rows(state, self._columns(gone)) if count else None
        if len(come):
            count += len(come)
            state = self._fold.with_rows(state, self._columns(come))
        if count:
            self._held.put(code, (count, state))
        else:
            self._held.drop([code])

    def _state(self, code: int) -> State | None:
        held = self._held.get(code)
        return None if held is None else held[1]


class RowsToo(FoldedInstants):
    """The rows of each group, in their order. States follow from them and are no part of a snapshot."""

    def __init__(self, spec: Folded, codecs: Mapping[str, Codec], below: pa.Schema) -> None:
        super().__init__(spec, codecs, below)
        self._states = Derived(spec.definition.name)
        for i, codec in enumerate(self._codecs):
            codec.on_relabel(partial(self._relabel, _WORDS + i))

    def _relabel(self, at: int, new: Relabelling) -> None:
        for code in list(self._held):
            lines = self._held.get(code).copy()
            lines[:, at] = new(lines[:, at])
            self._held.put(code, lines)

    def _step(self, code: int, lines: Ints, signs: Ints) -> None:
        come, gone = _net(lines, signs)
        held = self._held.get(code)
        if held is not None and len(gone):
            self._states.drop([code])
            held = held[~np.isin(held[:, _NUMBER], gone[:, _NUMBER])]
        if held is None or not len(held):
            held = come
        elif len(come):
            if code in self._states:
                self._states.put(code, self._fold.with_rows(self._states.get(code), self._columns(come)))
            held = np.concatenate((held, come))
        if len(held):
            self._held.put(code, held)
        else:
            self._held.drop([code])

    def _state(self, code: int) -> State | None:
        held = self._held.get(code)
        if held is None:
            return None
        if code not in self._states:
            self._states.put(code, self._fold.with_rows(None, self._columns(held)))
        return self._states.get(code)

    def _remember(self, code: int, value: Any) -> None:
        super()._remember(code, value)
        if self._held.get(code) is None:
            self._states.drop([code])

    def remap(self, new: Ints, keep: Mask) -> None:
        super().remap(new, keep)
        self._states.clear()

    def state(self) -> dict[str, Part]:
        return {**super().state(), "states": self._states}

    def words(self, column: str) -> Ints:
        """Of a column that is an argument twice the words are the same."""
        if column not in self._folded.columns:
            return super().words(column)
        at = _WORDS + self._folded.columns.index(column)
        return np.concatenate([super().words(column), *(self._held.get(code)[:, at] for code in self._held)])


def _net(lines: Ints, signs: Ints) -> tuple[Ints, Ints]:
    """The rows that come, in order, and those that go; what comes and goes at one instant does neither."""
    come, gone = lines[signs > 0], lines[signs < 0]
    if len(come) and len(gone):
        both = np.intersect1d(come[:, _NUMBER], gone[:, _NUMBER])
        if len(both):
            come, gone = (each[~np.isin(each[:, _NUMBER], both)] for each in (come, gone))
    return come[np.argsort(come[:, _NUMBER], kind="stable")], gone


def folded_instants(spec: Folded, codecs: Mapping[str, Codec], input: Plan) -> FoldedInstants:
    """What keeps a user-defined aggregate by instant."""
    alone = spec.definition.expires or lasts_for_ever(input)
    return (StatesOnly if alone else RowsToo)(spec, codecs, input.schema)
