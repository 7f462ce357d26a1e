"""DISTINCT ON: drops rows that repeat a key within a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.flow.batch import Batch, concat
from headrace.kernels.repeats import NEVER, keep_first
from headrace.operators.content_order import by_content
from headrace.operators.contract import Operator, Stateless, Waiting
from headrace.operators.memory import OperatorMemory
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.state.code_table import CodeTable
from headrace.state.key_index import GroupIndex
from headrace.state.part import Cell, Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


def distinct_on(plan: DistinctOn) -> Operator:
    """The operator of DISTINCT ON: if rows are ordered by arrival, one that never waits."""
    return DistinctOnOperator(plan) if keeps_arrival_order(plan.input) else OrderedDistinctOnOperator(plan)


class KeptKeys:
    """When a row of each key was last kept: a key and a time, forgotten when the time is long enough ago.

    Forgetting is amortised: dead keys are dropped once they are half of all.
    """

    def __init__(self, plan: DistinctOn) -> None:
        self._names = plan.keys
        self._within = MAX_TIME if plan.within is None else plan.within
        self._groups = GroupIndex(pa.schema([plan.input.schema.field(key) for key in plan.keys]))
        self._kept = CodeTable(time=(np.int64, NEVER))
        self._work = Cell(rows=0, until=MIN_TIME)

    def apply(self, batch: Batch) -> Batch:
        """The rows that do not repeat a key."""
        codes = self._groups.codes([batch.data.column(name) for name in self._names], len(batch))
        self._kept.grow(len(self._groups))
        keeps = np.empty(len(batch), np.bool_)
        keep_first(codes, np.ascontiguousarray(batch.start), self._within, self._kept["time"], keeps)
        self._kept.touch(codes[keeps])
        self._work["rows"] += len(batch)
        self._work["until"] = batch.last
        if 2 * self._work["rows"] > len(self._groups) + tuning.current.compact_after:
            self.forget()
        return batch.filter(keeps)

    def forget(self) -> None:
        """Drop the keys whose next row will be kept anyway, if they are half of all."""
        self._work["rows"] = 0
        if self._within == MAX_TIME or not len(self._groups):
            return
        live = self._kept["time"] > self._work["until"] - self._within
        if 2 * int(np.count_nonzero(live)) <= len(live):
            self._groups.compact(live)
            self._kept.keep(live)

    def punctuate(self, punctuation: Punctuation) -> Punctuation:
        """A row that is kept keeps its columns, so a punctuation passes; keys that are closed are dropped."""
        if punctuation.until == MAX_TIME and set(punctuation.columns) <= set(self._names):
            closed = self._groups.matching(punctuation)
            if len(closed):
                live = np.ones(len(self._groups), np.bool_)
                live[closed] = False
                self._kept.grow(len(live))
                self._groups.compact(live)
                self._kept.keep(live)
        return punctuation

    def state(self) -> dict[str, Part]:
        return {"keys": self._groups, "kept": self._kept, "work": self._work}


class DistinctOnOperator(Stateless):
    """Drops repeats in the order of the source: answers at once, never waits."""

    order_sensitive = True

    def __init__(self, plan: DistinctOn) -> None:
        super().__init__()
        self._keys = KeptKeys(plan)
        self.memory = OperatorMemory(self.state, forget=self._keys.forget)

    def apply(self, batch: Batch) -> Batch:
        return self._keys.apply(batch)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._keys.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._keys.state()


class OrderedDistinctOnOperator(Waiting):
    """Drops repeats in the order of content within an instant: waits until the instant is complete."""

    def __init__(self, plan: DistinctOn) -> None:
        super().__init__()
        self._keys = KeptKeys(plan)
        self._taken: list[Batch] = []
        self.memory = OperatorMemory(self.state, forget=self._keys.forget)

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken.append(batch)

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, []
        return self._keys.apply(by_content(concat(taken))) if taken else None

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._keys.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._keys.state()
