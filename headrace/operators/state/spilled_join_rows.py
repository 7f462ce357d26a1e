"""The spilled rows of one side of a join; they are matched, withdrawn and closed on disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Ids, Words
from headrace.flow.batch import Batch, sort_by_start
from headrace.kernels.hashing import EMPTY
from headrace.kernels.join import END as LINE_END
from headrace.kernels.join import START as LINE_START
from headrace.kernels.join import WORD as LINE_WORD
from headrace.kernels.join import pair_off
from headrace.schema import Schema
from headrace.spill.indexed_rows import END, Piece, SpilledRows, ints
from headrace.state.keys import encode_keys, equal_rows
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MIN_TIME

START = "headrace:start"
_OWN = 3
"""Columns of a piece before those of the rows: word, end, start."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of a probe (by position) and a held row (by id or place), with their signed common interval."""

    probe: Ids
    id: Ids
    start: Ids
    end: Ids
    sign: Ids


class SpilledJoinRows(SpilledRows):
    """Living rows with their intervals; none of them is a withdrawal."""

    def __init__(self, schema: Schema, keys: Sequence[int], null_safe: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._schema, self._keys, self._null_safe = schema, keys, null_safe

    def put_rows(self, lines: Ids, columns: list[pa.Array]) -> None:
        """Spill rows; `lines` are their chain lines."""
        words, ends, starts = (lines[:, i].copy() for i in (LINE_WORD, LINE_END, LINE_START))
        if len(words):
            self.put(words, ends, [pa.array(starts), *columns], [START, *self._schema.names])

    def held(self) -> Iterator[Batch]:
        """All living rows, piece by piece."""
        for piece in self:
            rows = piece.read().filter(pa.array(piece.alive()))
            data = pa.RecordBatch.from_arrays(rows.columns[_OWN:], schema=self._schema)
            yield sort_by_start(Batch(data, ints(rows, START), ints(rows, END)))

    def meet(self, new: Batch, words: Words) -> Iterator[tuple[Pairs, list[pa.Array]]]:
        """Every pair of a new row of the other side and a row here with equal words and a common instant."""
        assert new.end is not None
        for _, rows, probes, places in self.find(words):
            starts = np.maximum(new.start[probes], ints(rows, START)[places])
            ends = np.minimum(new.end[probes], ints(rows, END)[places])
            common = starts < ends
            if common.any():
                probe, id = probes[common], places[common]
                signs = new.signs()[probe].astype(np.int64)
                yield Pairs(probe, id, starts[common], ends[common], signs), self._take(rows, id)

    def _take(self, rows: pa.RecordBatch, places: Ids) -> list[pa.Array]:
        """The columns of the rows at some places of a piece."""
        at = pa.array(places)
        return [column.take(at) for column in rows.columns[_OWN:]]

    def withdraw(self, negatives: Batch, words: Words) -> None:
        """Remove the rows that these withdraw, at most one for each."""
        ends = negatives.end
        assert ends is not None
        partner = np.full(len(negatives), EMPTY, np.int64)
        for piece, rows, probes, places in self.find(words):
            fits = (ints(rows, END)[places] == ends[probes]) & (partner[probes] == EMPTY)
            probes, places = probes[fits], places[fits]
            mine = [c.take(pa.array(probes)) for c in negatives.data.columns]
            same = equal_rows(mine, self._take(rows, places), len(probes))
            distinct, at = np.unique(places, return_inverse=True)
            here = np.full(len(negatives), EMPTY, np.int64)
            pair_off(np.ascontiguousarray(probes), at, same, here, np.zeros(len(distinct), np.bool_))
            found = here != EMPTY
            partner[found] = 0
            self._bury(piece, distinct[here[found]])
        self.tidy()

    def close(self, punctuation: Punctuation) -> None:
        """Remove the rows that could only match rows that will not come."""
        names = [self._schema.names[k] for k in self._keys]
        wanted = [punctuation.columns.get(name) for name in names]
        if wanted and all(isinstance(p, Constant) for p in wanted):
            values = [p.value for p in wanted if isinstance(p, Constant)]
            types = [self._schema.field(k).type for k in self._keys]
            self._close_key([pa.array([v], t) for v, t in zip(values, types, strict=True)])
        else:
            self._close_matching(punctuation)
        self.tidy()

    def _close_key(self, key: list[pa.Array]) -> None:
        """Take out the rows with exactly this key."""
        for piece, rows, probes, places in self.find(encode_keys(key, 1, self._null_safe).words):
            mine = [c.take(pa.array(probes)) for c in key]
            columns = self._take(rows, places)
            same = equal_rows(mine, [columns[k] for k in self._keys], len(places))
            self._bury(piece, places[same])

    def _close_matching(self, punctuation: Punctuation) -> None:
        """Remove the rows that match a punctuation; reads every row."""
        for piece in self:
            columns = piece.read().columns[_OWN:]
            rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
            speaks_of = punctuation.matches(np.full(rows.num_rows, MIN_TIME, np.int64), rows)
            self._bury(piece, np.flatnonzero(speaks_of & piece.alive()))

    @staticmethod
    def _bury(piece: Piece, places: Ids) -> None:
        if len(places):
            piece.bury(places)
