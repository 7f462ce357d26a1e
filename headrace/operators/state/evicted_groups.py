"""Groups of an aggregate on disk: those that have not changed for the longest time.

A group is evicted whole: its key and all its partial values, in one row. It is read back only when a row of
it comes. Groups with a pending end stay in memory, because they will change without a row; their ends can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.aggregates.instants.table import InstantValues
from headrace.arrays import Ids
from headrace.spill.indexed_rows import SpilledRows
from headrace.state.code_table import CodeTable
from headrace.state.key_index import GroupIndex
from headrace.state.keys import equal_rows, hash_rows
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

_OWN = 2
"""Columns of a piece before those of the key: word, end."""


class EvictedGroups(SpilledRows):
    """`idle` lists the groups that may be evicted, oldest first; `forget` drops them from the operator."""

    def __init__(
        self,
        groups: GroupIndex,
        values: InstantValues,
        newest: CodeTable,
        idle: Callable[[], Ids],
        forget: Callable[[Ids], None],
        held: Callable[[], int],
    ) -> None:
        super().__init__()
        self._groups, self._values, self._newest = groups, values, newest
        self._idle, self._forget, self._held = idle, forget, held

    # -------------------------------------------------------------------------------------------- going

    def spill(self, bytes: int) -> None:
        """Evict idle groups, the longest idle first."""
        if not self._values.movable or not len(self._groups.keys.schema):
            return
        idle, before = self._idle(), self._held()
        if not len(idle):
            return
        share = max(bytes, tuning.current.spill_file_bytes, before // 4) / before
        chosen = idle if share > 0.75 else idle[: max(1, int(share * len(self._groups)))]
        self._put_away(np.sort(chosen))
        self._forget(chosen)

    def _put_away(self, codes: Ids) -> None:
        """Write the keys and partial values of some groups to disk."""
        size = len(self._groups)
        keys = self._groups.keys.take(codes)
        self._newest.grow(size)
        columns = {"newest": pa.array(self._newest["arrival"][codes])}
        columns |= self._values.put_away(codes, size)
        names = [*(f"key:{i}" for i in range(len(keys))), *columns]
        words, ends = hash_rows(keys, len(codes)), np.full(len(codes), MAX_TIME, np.int64)
        self.put(words, ends, [*keys, *columns.values()], names)

    # ------------------------------------------------------------------------------------- coming back

    def bring_back(self, keys: Sequence[pa.Array], rows: int) -> None:
        """Read the groups of some rows back into memory."""
        for piece, found, probes, places in self.find(hash_rows(keys, rows)):
            theirs = [found.column(_OWN + i).take(pa.array(places)) for i in range(len(keys))]
            same = equal_rows([k.take(pa.array(probes)) for k in keys], theirs, len(places))
            wanted = np.unique(places[same])
            if len(wanted):
                self._take_back(found.take(pa.array(wanted)))
                piece.bury(wanted)
        self.tidy()

    def _take_back(self, found: pa.RecordBatch) -> None:
        """Put groups that were read from disk back into memory."""
        schema = self._groups.keys.schema
        codes = self._groups.codes(found.columns[_OWN : _OWN + len(schema)], found.num_rows)
        size = len(self._groups)
        self._newest.grow(size)
        self._newest["arrival"][codes] = found.column("newest").to_numpy()
        self._newest.touch(codes)
        self._values.take_back(codes, size, found)

    def close(self, punctuation: Punctuation) -> None:
        """Drop the groups that match a punctuation and never change again; this reads every key."""
        schema = self._groups.keys.schema
        for piece in self:
            columns = piece.read().columns[_OWN : _OWN + len(schema)]
            keys = pa.RecordBatch.from_arrays(columns, schema=schema)
            speaks_of = punctuation.matches(np.full(keys.num_rows, MIN_TIME, np.int64), keys)
            places = np.flatnonzero(speaks_of & piece.alive())
            if len(places):
                piece.bury(places)
        self.tidy()
