"""Operators that compute how often a row is in the output from how often it is in each input."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Codes, Counts, Mask, Times
from headrace.flow.batch import Batch
from headrace.kernels.changes import step_counts
from headrace.operators.contract import Waiting
from headrace.operators.memory import OperatorMemory
from headrace.operators.state.net_changes import Change, Changes
from headrace.schema import Schema
from headrace.state.code_table import CodeTable
from headrace.state.part import Part
from headrace.time.timestamp import MAX_TIME


@dataclass(frozen=True, slots=True)
class History:
    """Changes in order of time, with the counts of the content before and after each."""

    times: Times
    codes: Codes
    before: Counts
    after: Counts


class Multiplicities:
    """How many copies of each content each relation holds, after the changes taken so far."""

    def __init__(self, relations: int) -> None:
        self._names = [f"relation{i}" for i in range(relations)]
        self.table = CodeTable(**dict.fromkeys(self._names, (np.int64, 0)))

    def of(self, codes: Codes) -> Counts:
        """The counts of some contents, a column for each relation."""
        return np.stack([self.table[name][codes] for name in self._names], axis=1)

    def live(self, contents: int) -> Mask:
        """Which of the first `contents` contents have a copy in any relation."""
        self.table.grow(contents)
        live: Mask = np.logical_or.reduce([self.table[name] != 0 for name in self._names])
        return live

    def forget(self, changes: Changes, *, at_once: bool = False) -> None:
        """Drop contents that are neither live nor pending, from time to time or at once."""
        if at_once or changes.is_due_to_forget():
            kept = changes.forget(self.live(len(changes.contents)), at_once=at_once)
            if kept is not None:
                self.table.keep(kept)

    def advance(self, change: Change) -> History:
        """Apply one or more changes; returns the counts before and after each."""
        self.table.grow(int(change.codes.max()) + 1)
        before = np.empty_like(change.deltas)
        for i, name in enumerate(self._names):
            step_counts(change.codes, change.deltas[:, i], self.table[name], before[:, i])
        self.table.touch(change.codes)
        return History(change.times, change.codes, before, before + change.deltas)


class Counted(Waiting):
    """At each instant a content is in the output `multiplicity` times; emits ± [τ, MAX_TIME) as that changes.

    Waits for the earliest end held, because it may change the answer. The cost depends on the changes of the
    input, and the size of the state on the contents valid now.
    """

    def __init__(self, schema: Schema, relations: int = 1) -> None:
        super().__init__()
        self.changes = Changes(schema, relations)
        self.counts = Multiplicities(relations)
        self.memory = OperatorMemory(
            self.state,
            forget=lambda: self.counts.forget(self.changes, at_once=True),
            dead_bytes=self._dead_bytes,
        )

    @abstractmethod
    def multiplicity(self, counts: Counts) -> Times:
        """Copies in the output, for counts with a column for each input."""

    def ingest(self, input: int, batch: Batch) -> None:
        self.changes.ingest(batch, input)

    def due(self) -> int:
        return self.changes.next()

    def answer(self, frontier: int) -> Batch | None:
        change = self.changes.take(frontier)
        out = self._step(change) if len(change) else None
        self.counts.forget(self.changes)
        return out

    def _dead_bytes(self) -> int:
        """Bytes of contents that are not valid any more and not dropped yet."""
        live = self.counts.live(len(self.changes.contents))
        return self.changes.dead_bytes(live, [self.counts.table])

    def _step(self, change: Change) -> Batch | None:
        """The output for some changes: how the multiplicity of each content changes."""
        history = self.counts.advance(change)
        steps = self.multiplicity(history.after) - self.multiplicity(history.before)
        return self._signed(history.times, history.codes, steps)

    def _signed(self, times: Times, codes: Codes, steps: Times) -> Batch | None:
        """Elements that start at `times`, each repeated |step| times with the sign of its step."""
        chosen = np.repeat(np.arange(len(steps)), np.abs(steps))
        if len(chosen) == 0:
            return None
        sign = np.sign(steps[chosen]).astype(np.int8)
        open_ends = np.full(len(chosen), MAX_TIME)
        rows = self.changes.rows(codes[chosen])
        return Batch(rows, times[chosen], open_ends, None if sign.min() > 0 else sign)

    def state(self) -> dict[str, Part]:
        return {**self.changes.parts(), "counts": self.counts.table}
