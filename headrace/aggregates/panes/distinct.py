"""How many distinct values a window has: entries of (group, value) pairs, in the same panes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.aggregates.panes.log import Closing, PaneLog
from headrace.aggregates.panes.values import PaneValue, Rowset
from headrace.aggregates.specs import Distinct
from headrace.arrays import Ints, Mask
from headrace.kernels.aggregate_panes import count_pairs
from headrace.kernels.hashing import EMPTY
from headrace.schema import Schema
from headrace.spill.store import SpillStore
from headrace.state.columns import Buffer
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part


class DistinctCounts(PaneValue):
    """A pair is in a window while one of its entries is; pairs without entries are forgotten."""

    def __init__(self, spec: Distinct, log: PaneLog, below: Schema) -> None:
        super().__init__(spec, log)
        self._column, self._outer = spec.column, log
        self._schema = pa.schema([("group", pa.int64()), below.field(spec.column).with_name("value")])
        self._pairs = GroupIndex(self._schema)
        self._log = PaneLog(log.spec)
        self._roomy = self._peak = 0
        self._forget_derived()

    def _forget_derived(self) -> None:
        """Reset what is derived from the entries; the next `close` computes it again."""
        self._entered = self._left = 0
        self._group, self._live, self._counts = Buffer(np.int64), Buffer(np.int64), Buffer(np.int64)

    def add(self, rows: Rowset) -> None:
        values, _ = rows.known(self._column)
        kept = rows.known_rows(self._column)
        codes, times = (rows.codes, rows.times) if kept is None else (rows.codes[kept], rows.times[kept])
        pairs = self._pairs.codes([pa.array(codes), values], len(codes))
        self._log.take(times, pairs, len(self._pairs))

    def close(self, closing: Closing) -> Ints:
        self._grow()
        out = np.empty(len(closing.codes), np.int64)
        state = np.array([self._log.panes, self._entered, self._left], np.int64)
        self._entered, self._left = count_pairs(
            self._log.entries["code"],
            self._log.numbers(),
            self._log.bounds(),
            np.asarray(self._group.view, np.int64),
            closing.windows,
            closing.rows,
            state,
            closing.codes,
            self._live.view,
            self._counts.view,
            out,
        )
        return out

    def _grow(self) -> None:
        """Make room for every pair and group."""
        old, pairs = len(self._group), len(self._pairs)
        if old < pairs:
            groups = self._pairs.keys.take(np.arange(old, pairs))[0].to_numpy()
            self._group.append(groups)
            self._live.extend(pairs - old)[:] = 0
        size = self._outer.groups
        if len(self._counts) < size:
            self._counts.extend(size - len(self._counts))[:] = 0

    def drop(self) -> None:
        self._log.drop_panes(self._left)
        self._entered, self._left = self._entered - self._left, 0
        entries = len(self._log.entries)
        self._peak = max(self._peak, entries)
        most = self._roomy + max(tuning.current.idle_keys, entries // 16)
        if len(self._pairs) > most or 2 * entries < self._peak:
            self._rebuild(None)
            self._peak = entries

    def remap(self, new: Ints, keep: Mask) -> None:
        self._rebuild(new)

    def _rebuild(self, new: Ints | None) -> None:
        """Keep the pairs that have entries; `new` maps the codes of their groups."""
        held = self._log.held()
        kept = np.flatnonzero(held)
        group, values = self._pairs.keys.take(kept)
        groups = group if new is None else pa.array(new[group.to_numpy()])
        moved = np.full(len(held), EMPTY, np.int64)
        moved[kept] = np.arange(len(kept))
        self._pairs.compact(np.zeros(len(self._pairs), np.bool_))
        self._pairs.keys.append(pa.RecordBatch.from_arrays([groups, values], schema=self._schema))
        self._pairs.compact(np.ones(len(kept), np.bool_))
        self._log.remap(moved, held)
        self._forget_derived()
        self._roomy = 2 * len(kept)

    def state(self) -> dict[str, Part]:
        return {"pairs": self._pairs, "pair_panes": _PairPanes(self)}


class _PairPanes:
    """The entries of pairs as a part of the state; derived counts are rebuilt after a restore."""

    def __init__(self, owner: DistinctCounts) -> None:
        self._owner = owner
        self._log = owner._log

    def bytes(self) -> int:
        return self._log.bytes()

    def move_to_disk(self, spill_store: SpillStore) -> None:
        self._log.move_to_disk(spill_store)

    def mapped_bytes(self) -> int:
        return self._log.mapped_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self._log.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._log.apply(chunk)
        self._owner._forget_derived()
