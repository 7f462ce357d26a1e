"""Left, full, semi and anti join: the inner join, and when each row has a partner."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.arrays import Ids, Mask
from headrace.flow.batch import Batch, concat, order_of_changes
from headrace.kernels.hashing import EMPTY
from headrace.operators.join import JoinOperator, Met, New
from headrace.operators.memory import OperatorMemory
from headrace.operators.state.followed_side import FollowedSide, Lines
from headrace.operators.state.join_side import Buckets, JoinSide
from headrace.plan.nodes.core import Pairing
from headrace.plan.nodes.outer_join import JoinKind, OuterJoin
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME


class OuterJoinOperator(JoinOperator):
    """Pairs as in the inner join; and each followed row while it has no partner, or while it has one.

    A row without a partner enters the answer as +[t, end) at the instant t from which it has none, and is
    withdrawn as −[t', end) when a partner comes. So an answer waits until both inputs are complete for its
    instant, also where the inner join could answer one tick earlier.
    """

    eager = False

    def __init__(self, plan: OuterJoin) -> None:
        self._kind = plan.kind
        super().__init__(plan)
        self._keyless: list[Batch] = []
        self._followed = [(i, side) for i, side in enumerate(self._sides) if isinstance(side, FollowedSide)]
        self.memory = OperatorMemory(
            self.state,
            pieces=[side for side in self._sides if not isinstance(side, FollowedSide)],
            bytes_by_input=self._bytes_by_input,
        )

    def _new_sides(self, plan: Pairing, buckets: Buckets) -> tuple[JoinSide, JoinSide]:
        inner = super()._new_sides
        if not self._kind.followed:
            return inner(plan, buckets)
        semi = self._kind is JoinKind.SEMI
        left = FollowedSide(plan.left.schema, plan.left_keys, buckets, plan.null_safe, semi=semi)
        if 1 not in self._kind.followed:
            return left, JoinSide(plan.right.schema, plan.right_keys, buckets, plan.null_safe)
        return left, FollowedSide(plan.right.schema, plan.right_keys, buckets, plan.null_safe)

    def due(self) -> int:
        return min(side.next_end() for _, side in self._followed)

    def answer(self, frontier: int) -> Batch | None:
        before = [side.rows.next for side in self._sides]
        news = self._enter(0), self._enter(1)
        pairs = self._partners(self._meet(*news), news)
        out = [] if pairs is None or not self._kind.has_pairs else [pairs.batch]
        out += self._keyless
        self._keyless = []
        for input, side in self._followed:
            events = None if pairs is None else pairs.of(input)
            out += self._changes(input, side, before[input], events, frontier)
        self._forget(news, frontier)
        return _merged(out) if out else None

    def _without_key(self, input: int, batch: Batch, valid: Mask) -> None:
        """A row whose key is null never has a partner."""
        if input in self._kind.followed and self._kind is not JoinKind.SEMI:
            alone = batch.filter(~valid)
            if len(alone):
                self._keyless.append(alone.with_data(self._padded(input, alone.data.columns, len(alone))))

    # ------------------------------------------------------------------------------------------- partners

    def _partners(self, met: list[Met], news: tuple[New | None, New | None]) -> _Partners | None:
        """All pairs that new rows make, in order of start, with the ids of their rows."""
        found = self._gather(met)
        parts = [] if found is None else [_Partners(found.batch, found.ids(0), found.ids(1))]
        for input, new in enumerate(news):
            if new is not None and self._sides[1 - input].spilled:
                parts += self._spilled_partners(input, new)
        parts = [each for each in parts if len(each.batch)]
        if len(parts) < 2:
            return parts[0] if parts else None
        return _Partners(
            concat([each.batch for each in parts]),
            np.concatenate([each.left for each in parts]),
            np.concatenate([each.right for each in parts]),
        ).in_order()

    def _spilled_partners(self, input: int, new: New) -> list[_Partners]:
        """The pairs of new rows with spilled rows of the other side, which have no ids."""
        parts = []
        first = new.first(self._sides[input])
        for pairs, theirs in self._sides[1 - input].spilled.meet(new.batch, new.words):
            own = new.batch.data.take(pa.array(pairs.probe)).columns
            columns = [*own, *theirs] if input == 0 else [*theirs, *own]
            batch, those = self._verify(self._paired(pairs, columns, new.batch.arrival), columns)
            mine = first + (pairs.probe if those is None else pairs.probe[those])
            nobody = np.full(len(mine), EMPTY, np.int64)
            parts.append(_Partners(batch, *((mine, nobody) if input == 0 else (nobody, mine))))
        return parts

    # -------------------------------------------------------------------------------- rows without partner

    def _changes(
        self, input: int, side: FollowedSide, first: int, events: _Events | None, frontier: int
    ) -> list[Batch]:
        """How the answer changes by rows of a side that get, lose or miss partners."""
        changes: list[Lines] = []
        ids = np.empty(0, np.int64)
        if events is not None:
            events = events.signed(side)
            ids = events.ids
            done, left_over = side.follow(*events.arrays)
            changes.append(done)
            if len(left_over):
                changes.append(self._again(input, side, events.take(left_over)))
        changes.append(side.settle(first, ids, frontier))
        found = np.concatenate(changes)
        return [self._alone(input, side, found)] if len(found) else []

    def _again(self, input: int, side: FollowedSide, events: _Events) -> Lines:
        """Apply events of rows that lost their last partners of those that end last: look at the others."""
        rows = side.deferred_rows(events.ids)
        return side.follow_again(*events.arrays, rows, self._all_partners(input, side, rows))

    def _all_partners(self, input: int, side: FollowedSide, rows: Ids) -> Lines:
        """Lines (id, end, start, sign) of all partners that some rows have; withdrawals count as −1."""
        words, starts, ends = side.intervals(rows)
        signs = side.row_signs(rows)
        other = self._sides[1 - input]
        pairs = other.meet(other.heads(words), words, starts, ends, signs)
        columns = [side.rows.take(rows[pairs.probe]), other.rows.take(pairs.id)]
        parts = [(pairs, [*columns[input], *columns[1 - input]])]
        if other.spilled:
            own = Batch(side.rows.rows(rows), starts, ends, signs.astype(np.int8))
            for found, theirs in other.spilled.meet(own, words):
                mine = own.data.take(pa.array(found.probe)).columns
                parts.append((found, [*mine, *theirs] if input == 0 else [*theirs, *mine]))
        lines = []
        for pairs, both in parts:
            _, those = self._verify(self._paired(pairs, both, None), both)
            probe, weight = pairs.probe, pairs.sign * signs[pairs.probe]
            each = np.stack([rows[probe], pairs.end, pairs.start, weight], axis=1)
            lines.append(each if those is None else each[those])
        return np.concatenate(lines)

    def _alone(self, input: int, side: FollowedSide, changes: Lines) -> Batch:
        """Changes of the answer as rows; the columns of the other side are null."""
        ids, starts, ends, signs = side.changed(changes)
        data = self._padded(input, side.rows.take(ids), len(ids))
        batch = Batch(data, starts, ends, None if bool((signs > 0).all()) else signs)
        return batch.take(order_of_changes(batch.start, batch.sign))

    def _padded(self, input: int, columns: list[pa.Array], rows: int) -> pa.RecordBatch:
        """Rows of one side in the schema of the answer."""
        if self._kind.has_pairs:
            nulls = [pa.nulls(rows, each.type) for each in self._plan.inputs[1 - input].schema]
            columns = [*columns, *nulls] if input == 0 else [*nulls, *columns]
        return pa.RecordBatch.from_arrays(columns, schema=self._plan.schema)

    # ---------------------------------------------------------------------------------------- punctuations

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """A key closed on both sides passes on when neither side holds rows of it: nothing can change then.

        Until then rows lose partners as these end, so no row is freed before its end. In a full join rows of
        either side come with nulls for the other, and nothing passes.
        """
        if self._kind is JoinKind.FULL:
            return None
        if punctuation.until != MAX_TIME or not set(punctuation.columns) <= set(self._keys[input]):
            return None
        mirrored = punctuation.rename(dict(zip(self._keys[input], self._keys[1 - input], strict=True)))
        assert mirrored is not None
        of_left, of_right = (punctuation, mirrored) if input == 0 else (mirrored, punctuation)
        if not self._promises.make(input, of_left):
            return None
        held = self._sides[0].holds(of_left) or self._sides[1].holds(of_right)
        return None if held else of_left


MOST_INSTANTS: Final = 64
"""Rows of at most so many instants are put between others slice by slice."""


def _merged(parts: list[Batch]) -> Batch:
    """Batches that are in order, as one that is."""
    first, *others = parts
    if not others:
        return first
    more = concat(others)
    few = len(more) <= max(len(first), MOST_INSTANTS)
    starts = np.unique(more.start) if few else more.start
    if len(starts) > MOST_INSTANTS or any(each.sign is not None for each in parts):
        both = concat(parts)
        return both.take(order_of_changes(both.start, both.sign))
    if len(others) > 1:
        more = more.take(order_of_changes(more.start, None))
    cuts = [0, *np.searchsorted(first.start, starts, "right").tolist(), len(first)]
    ends = np.searchsorted(more.start, starts, "right").tolist()
    slices = []
    for at, (begin, end) in enumerate(pairwise(cuts)):
        slices.append(first.slice(begin, end))
        if at < len(ends):
            slices.append(more.slice(ends[at - 1] if at else 0, ends[at]))
    return concat([each for each in slices if len(each)])


@dataclass(frozen=True, slots=True)
class _Partners:
    """Pairs in order of start, with the ids of their rows; a spilled row has none."""

    batch: Batch
    left: Ids
    right: Ids

    def in_order(self) -> _Partners:
        """The same pairs in order of start, comings first."""
        order = order_of_changes(self.batch.start, self.batch.sign)
        return _Partners(self.batch.take(order), self.left[order], self.right[order])

    def of(self, input: int) -> _Events:
        """The pairs as events of the rows of one input."""
        assert self.batch.end is not None
        signs = self.batch.signs().astype(np.int64)
        return _Events(self.right if input else self.left, self.batch.start, self.batch.end, signs)


@dataclass(frozen=True, slots=True)
class _Events:
    """Partners that come or are withdrawn, by the id of the row whose partners they are."""

    ids: Ids
    start: Ids
    end: Ids
    sign: Ids

    @property
    def arrays(self) -> tuple[Ids, Ids, Ids, Ids]:
        return self.ids, self.start, self.end, self.sign

    def take(self, at: Ids) -> _Events:
        """Some of the events."""
        return _Events(self.ids[at], self.start[at], self.end[at], self.sign[at])

    def signed(self, side: FollowedSide) -> _Events:
        """The events with the sign of the partner alone, in order.

        The pair of a withdrawn row and a new partner has the sign −1, but the partner comes.
        """
        if not side.has_withdrawals:
            return self
        own = side.row_signs(self.ids)
        if bool((own > 0).all()):
            return self
        signs = self.sign * own
        order = order_of_changes(self.start, signs.astype(np.int8))
        return _Events(self.ids, self.start, self.end, signs).take(order)
