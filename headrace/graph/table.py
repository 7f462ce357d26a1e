"""A table in the query graph: every reader starts at the beginning; its rows may change at an instant."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.arrays import Codes, Ints
from headrace.errors import GraphError, InputError
from headrace.flow.arc import Arc, Item, Reader
from headrace.flow.batch import Batch
from headrace.graph.source import SourceNode
from headrace.plan.nodes.core import Source, Table
from headrace.schema import show_columns
from headrace.state.key_index import GroupIndex
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import BEGINNING, MAX_TIME

Rows: TypeAlias = pa.Table | pa.RecordBatch


class TableNode(SourceNode):
    """A source whose rows all come at once, and then nothing more.

    Until it is loaded it promises nothing, so its readers wait; afterwards nothing ever waits for it.
    """

    def __init__(self, plan: Table) -> None:
        super().__init__(Source(plan.name, plan.columns))
        self.arc = ReplayArc()
        self.changes = plan.changes

    @property
    def loaded(self) -> bool:
        """Whether its rows are in."""
        return self.ended

    def load(self, data: Rows) -> None:
        """Load the rows, each valid from the beginning of time. Loading other rows later is an error."""
        batch = self._checked(data)
        if self.loaded:
            if self.changes:
                return  # it has the rows of its last reload
            if not batch.equals(self._held()):
                raise GraphError(
                    "HR-G013",
                    "the table is loaded already, with other rows",
                    place=self.name,
                    hint="a table does not change by itself: Engine.reload gives it other rows",
                )
            return
        self.arc.append(_always(batch))
        self.admission.rows_in += batch.num_rows
        self.end()

    def changed(self, data: Rows) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Which rows leave and which rows come if the table gets these rows in place of all others."""
        return _difference(self._content(), self._checked(data))

    def change(self, gone: pa.RecordBatch, come: pa.RecordBatch, at: int) -> None:
        """From the instant `at` on, the table is without some rows and has others."""
        rows = one_batch(pa.Table.from_batches([gone, come], self.schema), self.schema)
        start = np.full(rows.num_rows, at, np.int64)
        signs = np.repeat(np.array([-1, 1], np.int8), [gone.num_rows, come.num_rows])
        self.admission.rows_in += come.num_rows
        self.arc.append(Batch(rows, start, np.full_like(start, MAX_TIME), signs if gone.num_rows else None))

    @property
    def last_change(self) -> int:
        """The instant of its last change, or of its beginning."""
        return max((batch.last for batch in self.arc.batches()), default=BEGINNING)

    def compact(self) -> bool:
        """Replace changes that all readers have seen by the rows that are left; true if that was due.

        It is due when the changes have as many rows as the table, so its cost follows the changes.
        """
        batches = self.arc.batches()
        changes = sum(len(each) for each in batches[1:])
        if changes <= len(batches[0]) if batches else True:
            return False
        if any(not reader.empty for reader in self.arc.readers):
            return False
        self.fill(_always(self._content()))
        return True

    def _content(self) -> pa.RecordBatch:
        """The rows after all changes."""
        batches = self.arc.batches()
        if len(batches) <= 1 and all(batch.sign is None for batch in batches):
            return self._held()
        rows = pa.Table.from_batches([batch.data for batch in batches], self.schema)
        signs = np.concatenate([batch.signs() for batch in batches])
        every = one_batch(rows, self.schema)
        gone, come = every.filter(pa.array(signs < 0)), every.filter(pa.array(signs > 0))
        return _difference(gone, come)[1]

    def _empty(self) -> pa.RecordBatch:
        return one_batch(self.schema.empty_table(), self.schema)

    def exchanged(self, data: Rows) -> Batch | None:
        """Other rows than the loaded ones, valid from the beginning of time; None if they are the same."""
        batch = self._checked(data)
        return None if batch.equals(self._held()) else _always(batch)

    def fill(self, batch: Batch) -> None:
        """Hold other rows, which all present readers have seen."""
        self.admission.rows_in += len(batch)
        items: list[Item] = [batch] if len(batch) else []
        self.arc.reload(True, 0, items, [[len(items), 0] for _ in self.arc.readers])

    def _checked(self, data: Rows) -> pa.RecordBatch:
        """The rows in one batch; raises an error if their columns are not those of the table."""
        if data.schema.names != self.schema.names or data.schema.types != self.schema.types:
            raise InputError(
                "HR-I003",
                f"rows have ({show_columns(data.schema)}), the table has ({show_columns(self.schema)})",
                place=self.name,
                hint="names, types and order must be those declared; headrace.read_table(path, schema) casts",
            )
        return one_batch(data, self.schema)

    def _held(self) -> pa.RecordBatch:
        """The rows that were loaded."""
        item = self.arc.item(0)
        return item.data if isinstance(item, Batch) else self._empty()

    def demand(self, now: int) -> bool:
        """A table that is not loaded cannot promise anything."""
        return False


def _always(data: pa.RecordBatch) -> Batch:
    """Rows that are valid at every instant."""
    start = np.full(data.num_rows, BEGINNING, np.int64)
    return Batch(data, start, np.full_like(start, MAX_TIME))


def _difference(old: pa.RecordBatch, new: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that are only in the old ones, and those that are only in the new ones, as bags."""
    index = GroupIndex(old.schema)
    before, after = index.codes(old.columns, old.num_rows), index.codes(new.columns, new.num_rows)
    counts = [np.bincount(codes, minlength=len(index)) for codes in (before, after)]
    more = counts[1] - counts[0]
    return old.filter(_last_copies(before, -more)), new.filter(_last_copies(after, more))


def _last_copies(codes: Codes, wanted: Ints) -> pa.Array:
    """Of each code, the last rows: as many as wanted."""
    order = np.argsort(codes, kind="stable")
    of = codes[order]
    last = np.searchsorted(of, of, side="right")
    chosen = np.zeros(len(codes), bool)
    chosen[order] = last - np.arange(len(codes)) <= wanted[of]
    return pa.array(chosen)


def rows_of(table: str, data: object) -> Rows:
    """`data`, if it is rows."""
    if isinstance(data, (pa.Table, pa.RecordBatch)):
        return data
    raise InputError(
        "HR-I009",
        f"the rows of a table come as an Arrow Table or RecordBatch, not as {type(data).__name__}",
        place=table,
        hint="of a file: headrace.read_table(path)",
    )


def one_batch(data: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Rows in one batch, under exactly this schema."""
    if isinstance(data, pa.RecordBatch):
        return pa.RecordBatch.from_arrays(data.columns, schema=schema)
    chunks = [column.combine_chunks() for column in data.columns]
    arrays = [c.combine_chunks() if isinstance(c, pa.ChunkedArray) else c for c in chunks]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# An arc that keeps its content: every reader starts at the beginning, whenever it is added.


class ReplayArc(Arc):
    """One buffer for all readers, future ones too; nothing ever leaves it."""

    __slots__ = ()

    def reader(self) -> Reader:
        """A new cursor, at the head."""
        reader = super().reader()
        reader.position = self.base
        reader.rows = sum(len(item) for item in self._items if isinstance(item, Batch))
        reader.punctuations = sum(not isinstance(item, Batch) for item in self._items)
        return reader

    def append(self, batch: Batch) -> None:
        super().append(batch)
        if not self._readers and len(batch):
            self._items.append(batch)

    def punctuate(self, punctuation: Punctuation) -> None:
        super().punctuate(punctuation)
        if not self._readers:
            self._items.append(punctuation)

    def trim(self) -> None:
        """Does nothing: rows stay for later readers."""
