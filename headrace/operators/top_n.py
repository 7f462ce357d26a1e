"""Top-n: the first rows of each key by an order, at every instant."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.aggregates.forest import may_withdraw
from headrace.arrays import Ints, Mask
from headrace.flow.batch import Batch
from headrace.kernels.changes import CODE, DELTA, TIME
from headrace.kernels.top_n import RANK
from headrace.operators.contract import Waiting
from headrace.operators.state.net_changes import Change, Changes
from headrace.operators.state.ranked_rows import RankedRows
from headrace.operators.state.skyband import Skyband
from headrace.plan.nodes.top_n import TopN
from headrace.state.part import Cell, Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


class TopNOperator(Waiting):
    """Emits ± [τ, MAX_TIME) as rows enter and leave the first `count` of their key.

    It waits for the earliest end that it holds, because a row that leaves makes room for another. It holds:

    - a `Skyband` where every row leaves at its end: only the rows that may still be among the first;
    - `RankedRows`, that is all rows in trees, where rows may be withdrawn, where `count` is large, or once a
      skyband has become too large. A change then takes time logarithmic in the rows of its key, plus the
      ranks that move if the query asks for ranks.
    """

    def __init__(self, plan: TopN) -> None:
        super().__init__()
        self._plan, self._schema = plan, plan.schema
        self.changes = Changes(plan.input.schema)
        self._rows = RankedRows(plan)
        self._skyband = Skyband(plan)
        few = plan.count <= tuning.current.skyband_limit and not may_withdraw(plan.input)
        self._mode = Cell(contenders=int(few))

    @property
    def _uses_skyband(self) -> bool:
        """Whether rows are held in a skyband, not in trees."""
        return bool(self._mode["contenders"])

    def ingest(self, input: int, batch: Batch) -> None:
        if self._uses_skyband:
            self._skyband.ingest(batch)
        else:
            self.changes.ingest(batch)

    def due(self) -> int:
        return self._skyband.next() if self._uses_skyband else self.changes.next()

    def answer(self, frontier: int) -> Batch | None:
        if not self._uses_skyband:
            return self._answer_from_trees(frontier)
        changes, rest = self._skyband.step(frontier)
        out = self._batch(changes, self._skyband.columns(changes[:, CODE].copy())) if len(changes) else None
        if rest is None:
            self._skyband.forget()
            return out
        if out is not None:
            self.emit(out)
        self._change_over(rest)
        return self._answer_from_trees(frontier)

    def _change_over(self, rest: list[Batch]) -> None:
        """A skyband is too large: hold all rows in trees from now on. `rest` are rows not yet applied."""
        held, ends = self._skyband.held()
        self._skyband.reset()
        self._mode["contenders"] = 0
        self._rows.begin_with(self.changes.begin_with(held, ends), self.changes.contents)
        for batch in rest:
            self.changes.ingest(batch)

    def _answer_from_trees(self, frontier: int) -> Batch | None:
        """The output up to `frontier`; from time to time, drops contents that are no longer valid."""
        change = self.changes.take(frontier)
        out = self._step(change) if len(change) else None
        if self.changes.is_due_to_forget():
            kept = self.changes.forget(self._rows.live(self.changes.contents))
            if kept is not None:
                self._rows.keep(kept)
        return out

    def _step(self, change: Change) -> Batch | None:
        """The output for some changes, one row for each copy."""
        self._rows.rebuild_if_stale(self.changes.contents)
        changes = self._rows.tops(change) if self._plan.rank is None else self._rows.ranks(change)
        if not len(changes):
            return None
        copies = np.repeat(np.arange(len(changes)), np.abs(changes[:, DELTA]))
        changes = changes[copies] if len(copies) > len(changes) else changes
        return self._batch(changes, self.changes.contents.keys.take(changes[:, CODE].copy()))

    def _batch(self, changes: Ints, columns: list[pa.Array]) -> Batch:
        """The output for changes (TIME, CODE, DELTA, RANK) of rows with these columns."""
        sign = np.sign(changes[:, DELTA]).astype(np.int8)
        if self._plan.rank is not None:
            columns.append(pa.array(changes[:, RANK].copy()))
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        open_ends = np.full(len(changes), MAX_TIME)
        return Batch(data, changes[:, TIME].copy(), open_ends, None if sign.min() > 0 else sign)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """Drop the keys that it closes, unless a row of theirs has yet to leave; their last rows stay valid.

        A punctuation that reads other columns than the keys is not passed on.
        """
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._plan.keys):
            return None
        if self._uses_skyband:
            return punctuation if self._skyband.close(punctuation) else None
        closed: Mask = self.changes.matching(punctuation)
        if (closed & self.changes.pending()).any():
            return None
        if closed.any():
            self._rows.rebuild_if_stale(self.changes.contents)
            self.changes.drop(~closed)
            self._rows.keep(~closed)
        return punctuation

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"mode": self._mode, "contenders": self._skyband}
        return {**parts, **self.changes.parts(), "copies": self._rows}
