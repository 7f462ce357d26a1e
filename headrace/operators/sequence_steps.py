"""Sequences step by step: a stage of matches that wait between each bound step and the next."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.expressions import compile_predicate
from headrace.flow.batch import Batch
from headrace.flow.state import Part
from headrace.operators.runs import fold_runs
from headrace.operators.sequence_stage import REPEATED, SINGLE, Ending, Entries, Pairs, Probes, Stage
from headrace.plan.sequence import Sequence, StepKind
from headrace.schema import Schema
from headrace.time.punctuation import Punctuation

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Taken = list[Batch | None]
Made = tuple[list[pa.Array], Ids, Ids]
"""Matches so far: the columns bound before the newest step, their first times, and their newest rows."""


class StepMatcher:
    """RECENT, CHRONICLE and UNRESTRICTED: what a stage makes enters the next."""

    def __init__(self, plan: Sequence) -> None:
        self._links = [Link(plan, i) for i in range(len(plan.bound) - 1)]

    def answer(self, taken: Taken, frontier: int) -> Batch | None:
        """The matches that the rows taken complete."""
        first = taken[self._links[0].step]
        entries = None if first is None else Entries(first, first.start)
        for link in self._links:
            entries = link.go_on(entries, taken)
            link.stage.expire(frontier)
        return None if entries is None else entries.rows

    def close(self, input: int, names: tuple[str, ...], punctuation: Punctuation) -> None:
        """No row of a step will come in some partitions: matches that wait for it or for one before it go."""
        for link in self._links:
            if input in link.awaited:
                renamed = punctuation.rename(dict(zip(names, link.keys, strict=True)))
                assert renamed is not None
                link.stage.close(renamed)

    def parts(self) -> dict[str, Part]:
        return {f"step{link.step}": link.stage for link in self._links}


class Link:
    """From one bound step to the next: what waits, what ends it, what goes on it."""

    def __init__(self, plan: Sequence, index: int) -> None:
        self.step, self._next = plan.bound[index], plan.bound[index + 1]
        self.awaited = frozenset(plan.bound[index + 1 :])
        self.keys = plan.steps[self.step].keys
        of = plan.steps[self.step]
        self._folds = of.folds if of.kind is StepKind.REPEATED else None
        schema = (
            plan.streams[self.step].schema if self._folds is not None else plan.bound_before(self.step + 1)
        )
        choice = (SINGLE if self._folds is None else REPEATED)[plan.mode]
        self.stage = Stage(schema, self.keys, choice, plan.within, plan.strict)
        self._schema = plan.bound_before(self._next + 1)
        self._missing = [(i, _condition(plan, i)) for i in range(self.step + 1, self._next)]
        self._holds = _condition(plan, self._next)
        self._next_keys = plan.steps[self._next].keys
        self._keys_of = {i: plan.steps[i].keys for i, _ in self._missing}

    def go_on(self, entries: Entries | None, taken: Taken) -> Entries | None:
        """The matches made by the rows of the next step."""
        rows = taken[self._next]
        ends = [self._ending(i, condition, batch) for i, condition in self._missing if (batch := taken[i])]
        if entries is None and rows is None and not ends:
            return None
        probes = None if rows is None else _probes(rows, self._next_keys)
        pairs = self.stage.step(entries, ends, probes)
        return None if rows is None or not len(pairs.row) else self._make(pairs, rows)

    def _ending(self, step: int, condition: Condition | None, batch: Batch) -> Ending:
        probes = _probes(batch, self._keys_of[step])
        if condition is None:
            return probes, None
        holds = condition

        def true_of(matches: Ids, rows: Ids) -> Mask:
            columns = [*self.stage.rows.take(matches), *batch.data.take(pa.array(rows)).columns]
            return holds(columns, len(rows))

        return probes, true_of

    def _make(self, pairs: Pairs, rows: Batch) -> Entries | None:
        columns, first, newest = self._single(pairs) if self._folds is None else self._repeated(pairs)
        whole = len(newest) == len(rows) and bool((newest == np.arange(len(rows))).all())
        last = rows if whole else rows.take(newest)
        data = pa.RecordBatch.from_arrays([*columns, *last.data.columns], schema=self._schema)
        made = Entries(last.with_data(data), first)
        if self._holds is None:
            return made
        mask = self._holds(data.columns, data.num_rows)
        if not mask.any():
            return None
        return Entries(made.rows.filter(mask), first[mask])

    def _single(self, pairs: Pairs) -> Made:
        return self.stage.rows.take(pairs.row), self.stage.first(pairs.row), pairs.probe

    def _repeated(self, pairs: Pairs) -> Made:
        """A match for each run: pairs of one probe are next to each other, in order of time."""
        assert self._folds is not None
        begins = np.flatnonzero(np.diff(pairs.probe, prepend=-1))
        runs = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(pairs.probe)))
        columns = fold_runs(self._folds, self.stage.rows.rows(pairs.row), runs, len(begins))
        return columns, self.stage.first(pairs.row[begins]), pairs.probe[begins]


def _probes(batch: Batch, keys: tuple[str, ...]) -> Probes:
    return Probes([batch.data.column(k) for k in keys], batch.start)


Condition = Callable[[list[pa.Array], int], Mask]


def _condition(plan: Sequence, step: int) -> Condition | None:
    condition = plan.steps[step].condition
    if condition is None:
        return None
    schema = plan.seen_by(step)
    holds = compile_predicate(condition, schema)
    return lambda columns, rows: holds(_batch(columns, schema, rows))


def _batch(columns: list[pa.Array], schema: Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=schema)
