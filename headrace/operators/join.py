"""Window join: pairs that are equal on the keys and valid at a common instant (Bai et al. 2007, Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Ids, Mask, Words
from headrace.expressions.adaptive_filter import AdaptiveFilter
from headrace.flow.batch import Batch, Signs, concat, order_of_changes
from headrace.operators.contract import Waiting
from headrace.operators.memory import OperatorMemory
from headrace.operators.state.join_side import Buckets, JoinSide
from headrace.operators.state.spilled_join_rows import Pairs
from headrace.plan.nodes.core import Pairing
from headrace.state.keys import equal_rows
from headrace.state.part import Part
from headrace.state.promises import Agreement
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


class JoinOperator(Waiting):
    """Delta join of signed intervals: new rows of each side meet all rows that the other side holds.

    The pair of w₁ × [s₁, e₁) and w₂ × [s₂, e₂) is w₁w₂ × [max s, min e). A withdrawal meets the other side
    like any element, and then cancels against the row it withdraws, so state holds live rows only. A side
    with a `[NOW]` window makes the join asymmetric: its rows probe and are forgotten.
    """

    arity = 2
    eager = True

    def __init__(self, plan: Pairing) -> None:
        super().__init__()
        self._plan, self._schema = plan, plan.pair_schema
        self._sides = self._new_sides(plan, Buckets())
        self.adaptive_filter = self._holds = (
            None if plan.residual is None else AdaptiveFilter(plan.residual, plan.pair_schema)
        )
        self._new: list[Batch | None] = [None, None]
        self._keys = (plan.left_keys, plan.right_keys)
        self._promises = Agreement(2)
        self.memory = OperatorMemory(self.state, bytes_by_input=self._bytes_by_input)
        self.hold = MAX_TIME
        """The instant up to which it may answer; a tree of joins stops at one before its order is changed."""

    def _new_sides(self, plan: Pairing, buckets: Buckets) -> tuple[JoinSide, JoinSide]:
        """The state for both inputs, empty."""
        return (
            JoinSide(plan.left.schema, plan.left_keys, buckets, plan.null_safe),
            JoinSide(plan.right.schema, plan.right_keys, buckets, plan.null_safe),
        )

    def reach(self) -> int:
        return min(super().reach(), self.hold)

    def ingest(self, input: int, batch: Batch) -> None:
        self._new[input] = batch

    def answer(self, frontier: int) -> Batch | None:
        left, right = self._sides
        news = self._enter(0), self._enter(1)
        found = self._gather(self._meet(*news))
        out = None if found is None else found.batch
        if left.spilled or right.spilled:
            out = self._with_shelved(out, *news)
        self._forget(news, frontier)
        return out

    def _meet(self, new_left: New | None, new_right: New | None) -> list[Met]:
        """Add the new rows to their sides; returns the pairs that they make with rows in memory."""
        left, right = self._sides
        met: list[Met] = []
        if new_left is not None:
            pairs = new_left.enter(left, right)
            met.append(Met(pairs, pairs.probe + new_left.first(left), pairs.id, new_left.batch.arrival))
        if new_right is not None:
            pairs = new_right.enter(right, left)
            met.append(Met(pairs, pairs.id, pairs.probe + new_right.first(right), new_right.batch.arrival))
        return [each for each in met if len(each.left)]

    def _forget(self, news: tuple[New | None, New | None], frontier: int) -> None:
        """Forget rows that were withdrawn or have ended."""
        for side, new in zip(self._sides, news, strict=True):
            if new is not None:
                new.cancel(side)
            side.expire(frontier)

    def _enter(self, input: int) -> New | None:
        """The new rows of an input with their key words, except rows that can match nothing."""
        batch, self._new[input] = self._new[input], None
        if batch is None:
            return None
        words, valid = self._sides[input].words(batch.data)
        if valid is not None:
            self._without_key(input, batch, valid)
            batch, words = batch.filter(valid), words[valid]
        return New(batch, words) if len(batch) else None

    def _without_key(self, input: int, batch: Batch, valid: Mask) -> None:
        """New rows whose key is null are about to be dropped."""

    def _gather(self, met: list[Met]) -> Found | None:
        """The rows of the pairs, in order of start; at one instant, insertions before withdrawals."""
        if not met:
            return None
        start = np.concatenate([m.pairs.start for m in met])
        signs = _signs(met)
        order = order_of_changes(start, signs)
        left_ids, right_ids = (
            np.concatenate(ids)[order] for ids in zip(*((m.left, m.right) for m in met), strict=True)
        )
        columns = [*self._sides[0].rows.take(left_ids), *self._sides[1].rows.take(right_ids)]
        out = Batch(
            pa.RecordBatch.from_arrays(columns, schema=self._schema),
            start[order],
            np.concatenate([m.pairs.end for m in met])[order],
            None if signs is None else signs[order],
            _arrivals(met, order),
        )
        return Found(*self._verify(out, columns), left_ids, right_ids)

    def _with_shelved(self, out: Batch | None, new_left: New | None, new_right: New | None) -> Batch | None:
        """Add the pairs of new rows with spilled rows of the other side, in order of start."""
        batches = [] if out is None else [out]
        for new, input in ((new_left, 0), (new_right, 1)):
            if new is None:
                continue
            for pairs, theirs in self._sides[1 - input].spilled.meet(new.batch, new.words):
                own = new.batch.data.take(pa.array(pairs.probe)).columns
                columns = [*own, *theirs] if input == 0 else [*theirs, *own]
                batches.append(self._verify(self._paired(pairs, columns, new.batch.arrival), columns)[0])
        if not batches:
            return None
        both = concat(batches)
        return both.take(order_of_changes(both.start, both.sign))

    def _paired(self, pairs: Pairs, columns: list[pa.Array], arrival: Ids | None) -> Batch:
        """An output batch of pairs, whose columns are given."""
        return Batch(
            pa.RecordBatch.from_arrays(columns, schema=self._schema),
            pairs.start,
            pairs.end,
            None if bool((pairs.sign > 0).all()) else pairs.sign.astype(np.int8),
            None if arrival is None else arrival[pairs.probe],
        )

    def _verify(self, out: Batch, columns: list[pa.Array]) -> tuple[Batch, Mask | None]:
        """Drop pairs whose words collided, and those that do not satisfy the join condition.

        Returns also which of the pairs are left; None: all.
        """
        left, right = self._sides
        same: Mask | None = None
        if not (left.exact and right.exact):
            width = len(left.rows.schema)
            same = equal_rows(left.key_columns(columns[:width]), right.key_columns(columns[width:]), len(out))
            out = out.filter(same)
        if self._holds is None:
            return out, same
        holds = self._holds(out.data)
        if same is None:
            return out.filter(holds), holds
        same[same] = holds
        return out.filter(holds), same

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """A key closed on one side frees the other side's rows of that key; closed on both, it passes on."""
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._keys[input]):
            return None
        to_other = dict(zip(self._keys[input], self._keys[1 - input], strict=True))
        mirrored = punctuation.rename(to_other)
        assert mirrored is not None
        self._sides[1 - input].close(mirrored)
        of_left = punctuation if input == 0 else mirrored
        return of_left if self._promises.make(input, of_left) else None

    def _bytes_by_input(self) -> tuple[int, ...]:
        """Bytes of each side's rows."""
        left, right = self._sides
        return left.own_bytes(), right.own_bytes()

    @property
    def has_closed(self) -> bool:
        """Whether rows were forgotten because their key was closed, not because they ended."""
        return any(side.closed for side in self._sides)

    @property
    def has_shelved(self) -> bool:
        """Whether rows are on disk."""
        return any(side.spilled for side in self._sides)

    def held(self, input: int) -> Batch:
        """The rows of an input that a future row can meet."""
        held = self._sides[input].held()
        assert held.end is not None
        over = min(self.frontier, MAX_TIME - 1) + 1
        return held.filter(held.end > over)

    def take_over(self, inputs: Sequence[Batch], frontier: int) -> None:
        """Take over the rows of another tree of joins at `frontier`; their pairs have been answered."""
        for side, batch in zip(self._sides, inputs, strict=True):
            words, valid = side.words(batch.data)
            if valid is not None:
                batch, words = batch.filter(valid), words[valid]
            if len(batch):
                side.add(batch, words)
        self.frontier = self.promised = frontier

    def exchange(self, input: int, rows: Batch) -> None:
        """Hold other rows on one side, as if they had always been there; no pair of theirs is answered."""
        held = [self.held(0), self.held(1)]
        held[input] = rows
        made, promised = JoinOperator(self._plan), self.promised
        made.take_over(held, self.frontier)
        self._sides, self.promised = made._sides, promised

    def prime(self, inputs: Sequence[Batch], frontier: int) -> Batch | None:
        """Take over the rows of another tree of joins at `frontier`; returns their answered pairs."""
        for input, batch in enumerate(inputs):
            if len(batch):
                self.ingest(input, batch)
        self.frontier = self.promised = frontier
        return self.answer(frontier)

    def state(self) -> dict[str, Part]:
        return {"left": self._sides[0], "right": self._sides[1], "promises": self._promises}


class New:
    """The new rows of one side in this step."""

    def __init__(self, batch: Batch, words: Words) -> None:
        self.batch = batch
        self.words = words

    def first(self, side: JoinSide) -> int:
        """The id of the first of them, once they are in."""
        return side.rows.next - len(self.batch)

    def enter(self, side: JoinSide, other: JoinSide) -> Pairs:
        """Add these rows to their side, and find their partners on the other."""
        assert self.batch.end is not None
        signs = self.batch.signs().astype(np.int64)
        cursors = side.add(self.batch, self.words)
        return other.meet(cursors, self.words, self.batch.start, self.batch.end, signs)

    def cancel(self, side: JoinSide) -> None:
        """Take withdrawals, and the rows they withdraw, out of the side they were added to."""
        if self.batch.sign is None:
            return
        at = np.flatnonzero(self.batch.sign < 0)
        if len(at):
            side.withdraw(self.batch.take(at), self.words[at], self.first(side) + at)


@dataclass(frozen=True, slots=True)
class Met:
    """Pairs with the ids of both rows, and the arrivals of the probing rows."""

    pairs: Pairs
    left: Ids
    right: Ids
    arrival: Ids | None


@dataclass(frozen=True, slots=True)
class Found:
    """Pairs that satisfy the condition, as rows; and which of all pairs they are, whose ids are given."""

    batch: Batch
    those: Mask | None
    left: Ids
    right: Ids

    def ids(self, input: int) -> Ids:
        """The ids of the rows of an input, pair by pair."""
        ids = self.right if input else self.left
        return ids if self.those is None else ids[self.those]


def _signs(met: list[Met]) -> Signs | None:
    """The signs of all pairs; None if all are insertions."""
    if all(bool((m.pairs.sign > 0).all()) for m in met):
        return None
    return np.concatenate([m.pairs.sign for m in met]).astype(np.int8)


def _arrivals(met: list[Met], order: Ids) -> Ids | None:
    """The arrivals of all pairs in output order; None if some are unknown."""
    arrivals = [m.arrival[m.pairs.probe] for m in met if m.arrival is not None]
    return np.concatenate(arrivals)[order] if len(arrivals) == len(met) else None
