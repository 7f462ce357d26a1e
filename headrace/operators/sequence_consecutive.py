"""Sequences of rows that follow each other directly: no other row of the partition comes between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ids, Lines, Mask
from headrace.expressions import Expression, compile_predicate
from headrace.flow.batch import Batch
from headrace.kernels.sequence import by_instants, in_total_order
from headrace.plan.nodes.sequence import Sequence
from headrace.schema import Schema
from headrace.state.code_table import CodeTable
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part
from headrace.state.rows import RowStore
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME

Taken = list[Batch | None]
_TIME = "\0time"


class ConsecutiveMatcher:
    """An automaton for each partition, and the rows of its partial matches, at most one or two per length.

    The state of an automaton is a line of a table, in the layout of its kernel.
    """

    def __init__(self, plan: Sequence) -> None:
        self._plan = plan
        self._shape = (ByInstants if plan.strict else InTotalOrder)(len(plan.bound))
        self._numbers = {step: k for k, step in enumerate(plan.bound)}
        self._stores = [RowStore(_timed(plan.streams[step].schema)) for step in plan.bound[:-1]]
        first = plan.streams[plan.bound[0]].schema
        self._index = GroupIndex(pa.schema([first.field(k) for k in plan.steps[plan.bound[0]].keys]))
        self._table = CodeTable(**{f"s{i}": (np.int64, fill) for i, fill in enumerate(self._shape.fills)})
        self._checked = 0
        conditions = [step.condition for step in plan.steps if step.condition is not None]
        self._holds = (
            compile_predicate(reduce(Expression.__and__, conditions), plan.schema) if conditions else None
        )

    def answer(self, taken: Taken, frontier: int) -> Batch | None:
        """The matches that the rows taken complete."""
        entered = [self._enter(i, batch) for i, batch in enumerate(taken) if batch is not None]
        if not entered:
            return None
        ranks, steps, codes, times, ids = (np.concatenate(each) for each in zip(*entered, strict=True))
        order = np.lexsort((ranks, times))
        last, before = self._step(steps[order], codes[order], times[order], ids[order])
        rows = taken[self._plan.bound[-1]]
        made = None if rows is None or not len(last) else self._make(rows.take(last), before)
        self._tidy()
        return made

    def _enter(self, input: int, batch: Batch) -> tuple[Ids, Ids, Ids, Ids, Ids]:
        """For each row: its rank among simultaneous ones, its step, partition, time and id."""
        number = self._numbers.get(input, -1)
        ids = np.arange(len(batch))
        if 0 <= number < len(self._stores):
            store = self._stores[number]
            columns = [*batch.data.columns, pa.array(batch.start)]
            ids = ids + store.append(pa.RecordBatch.from_arrays(columns, schema=store.schema))
        keys = [batch.data.column(k) for k in self._plan.steps[input].keys]
        codes = self._index.codes(keys, len(batch))
        rank = -input if self._plan.strict else input
        return np.full(len(batch), rank), np.full(len(batch), number), codes, batch.start, ids

    def _step(self, steps: Ids, codes: Ids, times: Ids, ids: Ids) -> tuple[Ids, Lines]:
        """Run the automata; returns, for each complete match, its last row and the rows before it."""
        self._table.grow(len(self._index))
        touched, local = np.unique(codes, return_inverse=True)
        columns = self._columns()
        state = np.stack([column[touched] for column in columns], axis=1)
        count = int(np.count_nonzero(steps == len(self._stores)))
        last, before = np.empty(count, np.int64), np.empty((count, len(self._stores)), np.int64)
        kernel = self._shape.kernel
        found = kernel(steps, local, times, ids, len(self._plan.bound), state, last, before)
        for i, column in enumerate(columns):
            column[touched] = state[:, i]
        self._table.touch(touched)
        return last[:found], before[:found]

    def _columns(self) -> list[Ids]:
        """The columns of the automata, one line per partition."""
        return [self._table[f"s{i}"] for i in range(len(self._shape.fills))]

    def _make(self, last: Batch, before: Lines) -> Batch:
        """The complete matches as rows, without those that are too long or fail the condition."""
        parts = [store.take(np.ascontiguousarray(before[:, k])) for k, store in enumerate(self._stores)]
        columns = [column for part in parts for column in part[:-1]]
        data = pa.RecordBatch.from_arrays([*columns, *last.data.columns], schema=self._plan.schema)
        mask = np.ones(len(last), np.bool_)
        if self._plan.within is not None:
            mask &= last.start - parts[0][-1].to_numpy() < self._plan.within
        if self._holds is not None:
            mask &= self._holds(data)
        return last.with_data(data).filter(mask)

    # ----------------------------------------------------------------------------------------- forgetting

    def _tidy(self) -> None:
        """Free rows and partitions that no partial match needs, once they may be half of all."""
        size = len(self._index) + sum(len(store) for store in self._stores)
        if size <= 2 * self._checked + tuning.current.compact_after:
            return
        columns = self._columns()
        for k, store in enumerate(self._stores):
            self._keep_rows(k, store, columns)
        alive = self._shape.alive(columns)
        self._index.compact(alive)
        self._table.keep(alive)
        self._checked = len(self._index) + sum(len(store) for store in self._stores)

    def _keep_rows(self, number: int, store: RowStore, columns: list[Ids]) -> None:
        """Drop the stored rows of a step that no match refers to, and renumber the references to the rest."""
        used = [(at, columns[flag] > least) for at, flag, least in self._shape.references(number)]
        keep = np.zeros(len(store), np.bool_)
        for at, there in used:
            keep[columns[at][there] - store.base] = True
        places = np.cumsum(keep) - 1
        for at, there in used:
            columns[at][there] = places[columns[at][there] - store.base]
        store.compact(keep)

    def close(self, input: int, names: tuple[str, ...], punctuation: Punctuation) -> None:
        """No row of a step will come in some partitions: the matches that wait for it end."""
        number = self._numbers.get(input, 0)
        renamed = punctuation.rename(dict(zip(names, self._index.keys.schema.names, strict=True)))
        assert renamed is not None
        codes = self._index.matching(renamed)
        codes = codes[codes < len(self._table)]
        self._shape.end(self._columns(), codes, number)
        self._table.touch(codes)

    def parts(self) -> dict[str, Part]:
        rows: dict[str, Part] = {f"rows{k}": store for k, store in enumerate(self._stores)}
        return rows | {"partitions": self._index, "state": self._table}


def _timed(schema: Schema) -> Schema:
    """The schema with a column for the time of each row."""
    return pa.schema([*schema, pa.field(_TIME, pa.int64())])


class InTotalOrder:
    """A line is how many steps are met, then the row of each."""

    kernel = staticmethod(in_total_order)

    def __init__(self, count: int) -> None:
        self.fills = [0] * count

    def references(self, number: int) -> Iterator[tuple[int, int, int]]:
        """Where ids of a step's rows are: column, flag column, bound; an id counts if flag > bound."""
        yield 1 + number, 0, number

    def alive(self, columns: list[Ids]) -> Mask:
        """The partitions that have a partial match."""
        return columns[0] > 0

    def end(self, columns: list[Ids], codes: Ids, number: int) -> None:
        """End the partial matches of some partitions that have not met a step."""
        columns[0][codes] = np.where(columns[0][codes] <= number, 0, columns[0][codes])


class ByInstants:
    """A line is the newest instant, then the blocks described at `headrace.kernels.sequence.by_instants`."""

    kernel = staticmethod(by_instants)

    def __init__(self, count: int) -> None:
        self._kept = count - 1
        self._block = self._kept * count
        self.fills = [MIN_TIME] + [0] * (2 * self._block + count)

    def _flags(self) -> Iterator[tuple[int, int]]:
        """The columns that flag whether a partial match ends in a step, each with the step."""
        for begin in (1, 1 + self._block):
            for step in range(self._kept):
                yield begin + step * (1 + self._kept), step

    def references(self, number: int) -> Iterator[tuple[int, int, int]]:
        for flag, step in self._flags():
            if step >= number:
                yield flag + 1 + number, flag, 0

    def alive(self, columns: list[Ids]) -> Mask:
        alive: Mask = np.logical_or.reduce([columns[flag] > 0 for flag, _ in self._flags()])
        return alive

    def end(self, columns: list[Ids], codes: Ids, number: int) -> None:
        for flag, step in self._flags():
            if step < number:
                columns[flag][codes] = 0
