"""Looking back: each row with values of an earlier row of its partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask
from headrace.flow.batch import Batch, concat
from headrace.kernels.newest import NONE
from headrace.operators.content_order import by_content
from headrace.operators.contract import Operator, Stateless, Waiting
from headrace.operators.state.newest_rows import NewestRows
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.lag import Lag, LagCall
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


def lag(plan: Lag) -> Operator:
    """The operator of a lag: if rows are ordered by arrival, one that never waits."""
    return LagOperator(plan) if keeps_arrival_order(plan.input) else OrderedLagOperator(plan)


class LookingBack:
    """For each offset, the newest rows of each partition: a new row displaces the row that it looks back to.

    Holds `offset` rows of each partition, with the columns that are asked for.
    """

    def __init__(self, plan: Lag) -> None:
        below = plan.input.schema
        self._schema, self._keys, self._calls = plan.schema, plan.keys, plan.calls
        self._newest: dict[int, NewestRows] = {}
        for offset in dict.fromkeys(call.offset for call in plan.calls):
            wanted = dict.fromkeys([*plan.keys, *(c.column for c in plan.calls if c.offset == offset)])
            held = pa.schema([below.field(name) for name in wanted])
            self._newest[offset] = NewestRows(held, plan.keys, offset)

    def apply(self, batch: Batch) -> Batch:
        """The rows with their new columns, in the same order."""
        columns: dict[str, pa.Array] = {}
        for offset, newest in self._newest.items():
            calls = [call for call in self._calls if call.offset == offset]
            columns |= self._earlier(newest, batch.data, calls)
        added = [columns[call.name] for call in self._calls]
        data = pa.RecordBatch.from_arrays([*batch.data.columns, *added], schema=self._schema)
        return batch.with_data(data)

    def _earlier(
        self, newest: NewestRows, data: pa.RecordBatch, calls: Sequence[LagCall]
    ) -> dict[str, pa.Array]:
        """The values that calls with the same offset see, by name; adds the rows to what is remembered."""
        earlier = newest.add(data.select(newest.rows.schema.names))
        there = earlier != NONE
        rows = newest.rows.rows(np.where(there, earlier, newest.rows.base))
        found = {call.name: _or_default(rows.column(call.column), there, call) for call in calls}
        newest.tidy()
        return found

    def punctuate(self, punctuation: Punctuation) -> Punctuation:
        """Each row keeps its columns, so a punctuation passes; partitions that are closed are forgotten."""
        if punctuation.until == MAX_TIME and set(punctuation.columns) <= set(self._keys):
            for newest in self._newest.values():
                newest.close(punctuation)
        return punctuation

    def state(self) -> dict[str, Part]:
        return {f"rows{offset}": newest for offset, newest in self._newest.items()}


def _or_default(values: pa.Array, there: Mask, call: LagCall) -> pa.Array:
    """The values, with the default of the call where there is no earlier row."""
    if there.all():
        return values
    default = pa.scalar(None if call.default is None else call.default.value, values.type)
    return pc.if_else(pa.array(there), values, default)


class LagOperator(Stateless):
    """Looks back in the order of the source: answers at once, never waits."""

    order_sensitive = True

    def __init__(self, plan: Lag) -> None:
        super().__init__()
        self._back = LookingBack(plan)

    def apply(self, batch: Batch) -> Batch:
        return self._back.apply(batch)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._back.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._back.state()


class OrderedLagOperator(Waiting):
    """Looks back in the order of content within an instant: waits until the instant is complete."""

    def __init__(self, plan: Lag) -> None:
        super().__init__()
        self._back = LookingBack(plan)
        self._taken: list[Batch] = []

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken.append(batch)

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, []
        return self._back.apply(by_content(concat(taken))) if taken else None

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return self._back.punctuate(punctuation)

    def state(self) -> dict[str, Part]:
        return self._back.state()
