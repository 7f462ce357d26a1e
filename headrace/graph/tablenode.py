"""A table in the query graph: loaded once, read from the beginning by whoever comes."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from headrace.errors import GraphError, InputError
from headrace.flow.batch import Batch
from headrace.flow.kept import KeptArc
from headrace.graph.source import SourceNode
from headrace.plan.nodes import Source, Table
from headrace.schema import show_columns
from headrace.time.timestamp import BEGINNING, MAX_TIME

Rows: TypeAlias = pa.Table | pa.RecordBatch


class TableNode(SourceNode):
    """A source whose rows all come at once, and then nothing more.

    Until it is loaded it promises nothing, so what reads it waits; afterwards nothing ever waits for it.
    """

    def __init__(self, plan: Table) -> None:
        super().__init__(Source(plan.name, plan.columns))
        self.arc = KeptArc()

    @property
    def loaded(self) -> bool:
        """Whether its rows are in."""
        return self.ended

    def load(self, data: Rows) -> None:
        """Put the rows in, each valid from the beginning of time. A table once loaded is fixed."""
        batch = self._checked(data)
        if self.loaded:
            if not batch.equals(self._held()):
                raise GraphError(
                    "HR-G013",
                    "the table is loaded already, with other rows",
                    place=self.name,
                    hint="a table never changes; what changes is a stream",
                )
            return
        start = np.full(batch.num_rows, BEGINNING, np.int64)
        self.arc.append(Batch(batch, start, np.full_like(start, MAX_TIME)))
        self.admission.rows_in += batch.num_rows
        self.end()

    def _checked(self, data: Rows) -> pa.RecordBatch:
        """The rows in one batch, if their columns are the table's."""
        if data.schema.names != self.schema.names or data.schema.types != self.schema.types:
            raise InputError(
                "HR-I003",
                f"rows have ({show_columns(data.schema)}), the table has ({show_columns(self.schema)})",
                place=self.name,
                hint="names, types and order must be those declared; headrace.read_table(path, schema) casts",
            )
        return one_batch(data, self.schema)

    def _held(self) -> pa.RecordBatch:
        item = self.arc.item(0)
        return item.data if isinstance(item, Batch) else one_batch(self.schema.empty_table(), self.schema)

    def demand(self, now: int) -> bool:
        """A table that is not loaded cannot promise anything."""
        return False


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
