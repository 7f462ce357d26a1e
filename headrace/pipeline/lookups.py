"""The rows of `[tables.NAME]`, from a file or a database."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa

from headrace.connectors.lookups import read_query
from headrace.connectors.tables import digest, read_table
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.secrets import revealed
from headrace.pipeline.spec import TableSpec
from headrace.schema import Schema


def rows_of(name: str, spec: TableSpec, root: Path, schema: Schema | None) -> pa.Table:
    """The rows that a table has now, with the columns of `schema`."""
    if spec.path is not None:
        return read_table(root / spec.path, schema)
    assert spec.query is not None
    assert schema is not None
    place = f"tables.{name}"
    to = str(root / spec.database) if spec.database else revealed(str(spec.url), f"{place}.url")
    return read_query(spec.type, to, spec.query, schema, place)


def rows_now(pipeline: Pipeline, name: str) -> pa.Table:
    """The rows that a table of a pipeline has now, with the columns that its queries know."""
    schema = pipeline.catalog.tables[name.lower()].schema
    return rows_of(name, pipeline.spec.tables[name], pipeline.root, schema)


def digest_of(pipeline: Pipeline, name: str) -> str | None:
    """A fingerprint of the rows of a table that must not change; None if they cannot be read."""
    spec = pipeline.spec.tables[name]
    if spec.path is not None:
        return digest(pipeline.path(spec.path))
    rows = pipeline.catalog.tables[name.lower()].data
    assert rows is not None
    return hashlib.sha256(to_bytes(rows)).hexdigest()


def to_bytes(rows: pa.Table) -> bytes:
    """Rows as Arrow IPC; equal rows in equal order are equal bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, rows.schema.remove_metadata()) as writer:
        writer.write_table(rows.replace_schema_metadata(None).combine_chunks())
    return bytes(sink.getvalue())
