"""Top-n: the first rows of each key by an order, at every instant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.state import Part
from headrace.operators.changes import Change, Changes, Mask
from headrace.operators.contract import Waiting
from headrace.operators.ranked_rows import RankedRows
from headrace.plan.top import TopN
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


class TopNOperator(Waiting):
    """Emits ± [τ, MAX_TIME) as rows enter and leave the first `count` of their key.

    Waits for the earliest end held, for what leaves makes room. Costs follow the changes of the input, by
    the logarithm of a key's contents; with `rank` also the places that move.
    """

    def __init__(self, plan: TopN) -> None:
        super().__init__()
        self._plan, self._schema = plan, plan.schema
        self.changes = Changes(plan.input.schema)
        self._rows = RankedRows(plan)

    def ingest(self, input: int, batch: Batch) -> None:
        self.changes.ingest(batch)

    def due(self) -> int:
        return self.changes.next()

    def answer(self, frontier: int) -> Batch | None:
        change = self.changes.take(frontier)
        out = self._step(change) if len(change) else None
        if self.changes.is_due_to_forget():
            kept = self.changes.forget(self._rows.live(self.changes.contents))
            if kept is not None:
                self._rows.keep(kept)
        return out

    def _step(self, change: Change) -> Batch | None:
        self._rows.know(self.changes.contents)
        lines = self._rows.tops(change) if self._plan.rank is None else self._rows.ranks(change)
        if not len(lines):
            return None
        chosen = np.repeat(np.arange(len(lines)), np.abs(lines[:, 2]))
        lines = lines[chosen] if len(chosen) > len(lines) else lines
        sign = np.sign(lines[:, 2]).astype(np.int8)
        columns = self.changes.contents.keys.take(lines[:, 1].copy())
        if self._plan.rank is not None:
            columns.append(pa.array(lines[:, 3].copy()))
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        open_ends = np.full(len(lines), MAX_TIME)
        return Batch(data, lines[:, 0].copy(), open_ends, None if sign.min() > 0 else sign)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """Keys that are closed and whose rows have no end to come will not change: they are forgotten.

        Their last rows stand for ever. A punctuation that speaks of other keys too does not pass.
        """
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._plan.keys):
            return None
        closed: Mask = self.changes.matching(punctuation)
        if (closed & self.changes.pending()).any():
            return None
        if closed.any():
            self._rows.know(self.changes.contents)
            self.changes.drop(~closed)
            self._rows.keep(~closed)
        return punctuation

    def state(self) -> dict[str, Part]:
        return {**self.changes.parts(), "copies": self._rows}
