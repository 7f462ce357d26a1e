"""Top-n: the first rows of each key by an order, at every instant."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.batch import Batch
from headrace.flow.state import Cell, Part
from headrace.operators.accumulators.copies import may_withdraw
from headrace.operators.changes import Change, Changes, Mask
from headrace.operators.contenders import Contenders
from headrace.operators.contract import Waiting
from headrace.operators.ranked_rows import RankedRows
from headrace.plan.top import TopN
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

Ints = npt.NDArray[np.int64]


_FEW = 64


class TopNOperator(Waiting):
    """Emits ± [τ, MAX_TIME) as rows enter and leave the first `count` of their key.

    Waits for the earliest end held, for what leaves makes room. Where rows leave when they said, only those
    are held that may yet be among the first (`Contenders`); where they may be withdrawn, where many rows are
    asked for or where contenders prove to be many, trees hold all rows (`RankedRows`). Then costs follow the
    changes of the input, by the logarithm of a key's contents; with `rank` also the places that move.
    """

    def __init__(self, plan: TopN) -> None:
        super().__init__()
        self._plan, self._schema = plan, plan.schema
        self.changes = Changes(plan.input.schema)
        self._rows = RankedRows(plan)
        self._contenders = Contenders(plan)
        few = plan.count <= _FEW and not may_withdraw(plan.input)
        self._mode = Cell(contenders=int(few))

    @property
    def _contend(self) -> bool:
        return bool(self._mode["contenders"])

    def ingest(self, input: int, batch: Batch) -> None:
        if self._contend:
            self._contenders.ingest(batch)
        else:
            self.changes.ingest(batch)

    def due(self) -> int:
        return self._contenders.next() if self._contend else self.changes.next()

    def answer(self, frontier: int) -> Batch | None:
        if not self._contend:
            return self._answer_from_trees(frontier)
        lines, rest = self._contenders.step(frontier)
        out = self._batch(lines, self._contenders.columns(lines[:, 1].copy())) if len(lines) else None
        if rest is None:
            self._contenders.forget()
            return out
        if out is not None:
            self.emit(out)
        self._change_over(rest)
        return self._answer_from_trees(frontier)

    def _change_over(self, rest: list[Batch]) -> None:
        """Contenders are many: hold all rows in trees from here on; those that came before are dealt with."""
        held, ends = self._contenders.held()
        self._contenders.reset()
        self._mode["contenders"] = 0
        self._rows.begin_with(self.changes.begin_with(held, ends), self.changes.contents)
        for batch in rest:
            self.changes.ingest(batch)

    def _answer_from_trees(self, frontier: int) -> Batch | None:
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
        return self._batch(lines, self.changes.contents.keys.take(lines[:, 1].copy()))

    def _batch(self, lines: Ints, columns: list[pa.Array]) -> Batch:
        """Lines (time, row, sign, place) with the columns of their rows."""
        sign = np.sign(lines[:, 2]).astype(np.int8)
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
        if self._contend:
            return punctuation if self._contenders.close(punctuation) else None
        closed: Mask = self.changes.matching(punctuation)
        if (closed & self.changes.pending()).any():
            return None
        if closed.any():
            self._rows.know(self.changes.contents)
            self.changes.drop(~closed)
            self._rows.keep(~closed)
        return punctuation

    def state(self) -> dict[str, Part]:
        parts: dict[str, Part] = {"mode": self._mode, "contenders": self._contenders}
        return {**parts, **self.changes.parts(), "copies": self._rows}
