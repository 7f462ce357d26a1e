"""Groups of an aggregate that are on a shelf: those that nothing has changed for longest.

A group goes whole: its key and all its partial values, in one row. It comes back when a row of it comes, and
only then. Groups with an end still to come stay, for they will change without a row; their ends can go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.groups import GroupIndex
from headrace.flow.keys import equal_rows, hash_rows
from headrace.flow.shelved import Shelved
from headrace.flow.tables import CodeTable
from headrace.operators.accumulators.instant_table import InstantValues
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME

Ids = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_OWN = 2
"""Columns of a piece before those of the key: word, end."""
_WORTH = 1 << 20
"""Bytes below which a file is not worth while."""


class ColdGroups(Shelved):
    """`idle` says which groups may go, oldest first; `forget` makes the operator do without them."""

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
        """Put idle groups away, those that were longest idle first."""
        if not self._values.movable or not len(self._groups.keys.schema):
            return
        idle, before = self._idle(), self._held()
        if not len(idle):
            return
        share = max(bytes, _WORTH, before // 4) / before
        chosen = idle if share > 0.75 else idle[: max(1, int(share * len(self._groups)))]
        self._put_away(np.sort(chosen))
        self._forget(chosen)

    def _put_away(self, codes: Ids) -> None:
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
        """Have the groups of some rows in memory."""
        for piece, found, probes, places in self.find(hash_rows(keys, rows)):
            theirs = [found.column(_OWN + i).take(pa.array(places)) for i in range(len(keys))]
            same = equal_rows([k.take(pa.array(probes)) for k in keys], theirs, len(places))
            wanted = np.unique(places[same])
            if len(wanted):
                self._take_back(found.take(pa.array(wanted)))
                piece.bury(wanted)
        self.tidy()

    def _take_back(self, found: pa.RecordBatch) -> None:
        schema = self._groups.keys.schema
        codes = self._groups.codes(found.columns[_OWN : _OWN + len(schema)], found.num_rows)
        size = len(self._groups)
        self._newest.grow(size)
        self._newest["arrival"][codes] = found.column("newest").to_numpy()
        self._newest.touch(codes)
        self._values.take_back(codes, size, found)

    def close(self, punctuation: Punctuation) -> None:
        """Forget the groups that a punctuation speaks of, which never change again: a look at every key."""
        schema = self._groups.keys.schema
        for piece in self:
            columns = piece.read().columns[_OWN : _OWN + len(schema)]
            keys = pa.RecordBatch.from_arrays(columns, schema=schema)
            speaks_of = punctuation.matches(np.full(keys.num_rows, MIN_TIME, np.int64), keys)
            places = np.flatnonzero(speaks_of & piece.alive())
            if len(places):
                piece.bury(places)
        self.tidy()
