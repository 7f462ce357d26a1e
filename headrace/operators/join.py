"""Window join: pairs that are equal on the keys and valid at a common instant (Bai et al. 2007, Figure 6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.expressions import compile_predicate
from headrace.flow.batch import Batch
from headrace.flow.keys import Words, equal_rows
from headrace.flow.state import Part
from headrace.kernels.join import END, SIGN, START
from headrace.operators.contract import Waiting
from headrace.operators.joinside import JoinSide
from headrace.plan.nodes import Join

Ids = npt.NDArray[np.int64]


class JoinOperator(Waiting):
    """Delta join of signed intervals: what is new on each side meets all that the other side holds.

    The pair of w₁ × [s₁, e₁) and w₂ × [s₂, e₂) is w₁w₂ × [max s, min e). A withdrawal meets the other side
    like any element, and then cancels against the row it withdraws, so state holds live rows only. A side
    with a `[NOW]` window makes the join asymmetric: its rows probe and are forgotten.
    """

    arity = 2
    eager = True

    def __init__(self, plan: Join) -> None:
        super().__init__()
        self._schema = plan.schema
        self._sides = (JoinSide(plan.left.schema, plan.left_keys), JoinSide(plan.right.schema, plan.right_keys))
        self._holds = None if plan.residual is None else compile_predicate(plan.residual, plan.schema)
        self._new: list[Batch | None] = [None, None]

    def ingest(self, input: int, batch: Batch) -> None:
        self._new[input] = batch

    def answer(self, frontier: int) -> Batch | None:
        left, right = self._sides
        new_left, new_right = (self._enter(i) for i in (0, 1))
        pairs: list[tuple[Ids, Ids, Ids | None]] = []
        if new_left is not None:
            probe, id = _split(right.probe(new_left.words, new_left.batch.start, _end(new_left.batch)))
            pairs.append((probe + left.rows.next, id, _arrivals(new_left.batch, probe)))
            left.add(new_left.batch, new_left.words)
        if new_right is not None:
            probe, id = _split(left.probe(new_right.words, new_right.batch.start, _end(new_right.batch)))
            pairs.append((id, probe + right.rows.next, _arrivals(new_right.batch, probe)))
            right.add(new_right.batch, new_right.words)
        out = self._pair(pairs)
        for side, new in ((left, new_left), (right, new_right)):
            if new is not None:
                new.cancel(side)
            side.expire(frontier)
        return out

    def _enter(self, input: int) -> _New | None:
        batch, self._new[input] = self._new[input], None
        if batch is None:
            return None
        words, valid = self._sides[input].words(batch.data)
        if valid is not None:
            batch, words = batch.filter(valid), words[valid]
        return _New(batch, words) if len(batch) else None

    def _pair(self, pairs: list[tuple[Ids, Ids, Ids | None]]) -> Batch | None:
        pairs = [p for p in pairs if len(p[0])]
        if not pairs:
            return None
        left_ids = np.concatenate([p[0] for p in pairs])
        right_ids = np.concatenate([p[1] for p in pairs])
        arrival = None if any(p[2] is None for p in pairs) else np.concatenate([p[2] for p in pairs if p[2] is not None])
        return self._gather(left_ids, right_ids, arrival)

    def _gather(self, left_ids: Ids, right_ids: Ids, arrival: Ids | None) -> Batch | None:
        left, right = self._sides
        a = left.links[left_ids - left.rows.base]
        b = right.links[right_ids - right.rows.base]
        start = np.maximum(a[:, START], b[:, START])
        order = None
        if len(start) > 1 and not bool(np.all(start[:-1] <= start[1:])):
            order = np.argsort(start, kind="stable")
            left_ids, right_ids, a, b, start = left_ids[order], right_ids[order], a[order], b[order], start[order]
            arrival = None if arrival is None else arrival[order]
        columns = [*left.rows.take(left_ids), *right.rows.take(right_ids)]
        data = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        sign = (a[:, SIGN] * b[:, SIGN]).astype(np.int8)
        signs = None if bool((sign > 0).all()) else sign
        out = Batch(data, start, np.minimum(a[:, END], b[:, END]), signs, arrival)
        return self._verify(out, columns)

    def _verify(self, out: Batch, columns: list[pa.Array]) -> Batch:
        left, right = self._sides
        if not (left.exact and right.exact):
            width = len(left.rows.schema)
            same = equal_rows(left.key_columns(columns[:width]), right.key_columns(columns[width:]), len(out))
            out = out.filter(same)
        return out if self._holds is None else out.filter(self._holds(out.data))

    def state(self) -> dict[str, Part]:
        return {"left": self._sides[0], "right": self._sides[1]}


class _New:
    """The new rows of one side in this step."""

    def __init__(self, batch: Batch, words: Words) -> None:
        self.batch = batch
        self.words = words

    def cancel(self, side: JoinSide) -> None:
        """Take withdrawals, and the rows they withdraw, out of the side they were added to."""
        if self.batch.sign is None:
            return
        at = np.flatnonzero(self.batch.sign < 0)
        if len(at):
            ids = side.rows.next - len(self.batch) + at
            side.withdraw(self.batch.take(at), self.words[at], ids)


def _split(pairs: npt.NDArray[np.int64]) -> tuple[Ids, Ids]:
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _end(batch: Batch) -> Ids:
    assert batch.end is not None
    return batch.end


def _arrivals(batch: Batch, probe: Ids) -> Ids | None:
    return None if batch.arrival is None else batch.arrival[probe]
