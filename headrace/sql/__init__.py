"""CQL: SQL over streams, read with sqlglot into `headrace.plan`.

`query(text, streams)` gives a `Query` whose plan the engine runs. A `Catalog` holds streams, tables and
views that several queries share; `declare` fills it from text.
"""

from __future__ import annotations

from headrace.sql.catalog import MICROSECONDS, Catalog, StreamDef, TableDef
from headrace.sql.place import Code
from headrace.sql.query import Query, declare, query

__all__ = ["MICROSECONDS", "Catalog", "Code", "Query", "StreamDef", "TableDef", "declare", "query"]
