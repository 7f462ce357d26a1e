"""`headrace.stream(…)` and `headrace.table(…)`: where composing a query begins."""

from __future__ import annotations

import pyarrow as pa

from headrace.builder.builder import Builder
from headrace.builder.statement import Item, Select
from headrace.errors import SqlError
from headrace.plan.nodes import Source, Table, TimeKind
from headrace.schema import Schema
from headrace.sql import MICROSECONDS, Catalog, Query, StreamDef, TableDef
from headrace.sql.catalog import Relation, Streams
from headrace.sql.codes import Code


def stream(
    of: str | StreamDef | TableDef | Source | Table | Query,
    streams: Schema | Streams | Catalog = (),
    *,
    time: TimeKind = TimeKind.EXTERNAL,
    time_column: str | None = None,
    ticks_per_second: int | None = MICROSECONDS,
) -> Builder:
    """The rows of a stream, from which a query is composed call by call.

    `of` is the definition of a stream, a query whose answer is read further, or a name: that of a stream
    with the Arrow schema `streams`, or of one among `streams`. `time`, `time_column` and `ticks_per_second`
    are those of a stream that does not say its own.
    """
    if isinstance(of, Query):
        catalog, name = Catalog(), of.name
        catalog.add_view(name, Relation(of.plan, of.ticks_per_second))
        for each in of.tables:
            catalog.add_table(each)
    elif isinstance(of, str) and isinstance(streams, pa.Schema):
        catalog, name = Catalog([StreamDef(of, streams, time, time_column, ticks_per_second)]), of
    elif isinstance(of, str):
        known = (
            streams if isinstance(streams, Catalog) else Catalog(streams, ticks_per_second=ticks_per_second)
        )
        catalog, name = known.copy(), of
    else:
        catalog = Catalog([of], ticks_per_second=ticks_per_second)
        name = catalog.names[0]
    return Builder(catalog, Select(Item(name)), name)


def table(of: str | TableDef | Table, rows: pa.Table | Schema | None = None) -> Builder:
    """A static table, to join streams with: a definition, or a name with its rows.

    A schema instead of rows says that `engine.load` will bring them.
    """
    if isinstance(of, str):
        data = rows if isinstance(rows, pa.Table) else None
        if not isinstance(rows, (pa.Table, pa.Schema)):
            hint = "give a pyarrow.Table, or a schema; headrace.read_table(path) reads a file"
            raise SqlError(Code.STREAMS, f"table {of!r} has no columns", hint=hint)
        of = TableDef(of, rows if data is None else data.schema, data)
    return stream(of)
