"""A relation as a stream of its changes: an operation and a row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Codes, Times
from headrace.flow.batch import Batch
from headrace.operators.state.net_changes import Change
from headrace.operators.streams import DStreamOperator
from headrace.plan.nodes.changelog import DELETE, INSERT, UPDATE, Changelog
from headrace.state.key_index import GroupIndex


class ChangelogOperator(DStreamOperator):
    """The rows that went and those that came, deletions first at each instant.

    A punctuation passes when no matching row has a pending end, as in DSTREAM.
    """

    def __init__(self, plan: Changelog) -> None:
        super().__init__(plan)
        below = plan.input.schema
        self._keys = pa.schema([below.field(name) for name in plan.keys]) if plan.keys else None
        self._schema = plan.schema

    def report(self, change: Change) -> Batch | None:
        rows = self.changes.rows(change.codes)
        deltas = change.deltas[:, 0]
        comes = deltas > 0
        names = np.where(comes, INSERT, DELETE)
        copies = np.abs(deltas)
        if self._keys is not None:
            key = self._same_change(change.times, rows)
            goes = np.bincount(key, ~comes) > 0
            names[comes & goes[key]] = UPDATE
            copies[~comes & (np.bincount(key, comes) > 0)[key]] = 0
        order = np.lexsort((comes, change.times))
        chosen = np.repeat(order, copies[order])
        if len(chosen) == 0:
            return None
        columns = [*rows.take(pa.array(chosen)).columns, pa.array(names[chosen], pa.string())]
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self._schema), change.times[chosen])

    def _same_change(self, times: Times, rows: pa.RecordBatch) -> Codes:
        """A number for each row: equal for rows of one key at one instant."""
        assert self._keys is not None
        groups = GroupIndex(self._keys)
        codes = groups.codes([rows.column(name) for name in self._keys.names], len(times))
        instants = np.cumsum(np.diff(times, prepend=times[0]) != 0)
        numbers: Codes = np.unique(instants * len(groups) + codes, return_inverse=True)[1]
        return numbers
