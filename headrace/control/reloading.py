"""Tables that are reloaded: a command has the rows that were read when it was written."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from headrace.control.commands import Reload
from headrace.control.log import Entry, Log
from headrace.errors import ControlError
from headrace.pipeline.lookups import rows_now, to_bytes
from headrace.pipeline.pipeline import Pipeline


def check_table(pipeline: Pipeline, name: str) -> None:
    """An error if there is no such table, or if it is not declared to change."""
    tables = pipeline.spec.lookups
    if name not in tables:
        hint = f"tables: {', '.join(tables) or 'none'}"
        raise ControlError("HR-L013", f"there is no table {name!r}", hint=hint)
    if not tables[name].reload:
        raise ControlError(
            "HR-L013",
            f"the table {name!r} is not declared to change",
            hint=f"set reload = true under [tables.{name}], or a time such as "
            f'reload = "10 minutes"; or stop the run, and start it with --reload {name}',
        )


def with_rows(command: Reload, pipeline: Pipeline, log: Log) -> Reload:
    """The command with the rows that the table has now."""
    if command.rows is not None or command.content is not None:
        return command
    return replace(command, rows=log.keep(to_bytes(rows_now(pipeline, command.table))))


def rows_in(command: Reload, log: Log | None) -> pa.Table:
    """The rows of a command."""
    if command.content is not None:
        return _read(base64.b64decode(command.content))
    assert command.rows is not None
    assert log is not None
    return _read(log.kept(command.rows))


def inline(entry: Entry, log: Log) -> Entry:
    """The entry with its rows in it, for a record that must not depend on the log."""
    command = entry.command
    if not isinstance(command, Reload) or command.rows is None:
        return entry
    content = base64.b64encode(log.kept(command.rows)).decode()
    return replace(entry, command=replace(command, rows=None, content=content))


def _read(data: bytes) -> pa.Table:
    return pa.ipc.open_file(pa.py_buffer(data)).read_all()


def newest_reloads(entries: Iterable[Entry]) -> dict[str, Reload]:
    """By table, the last command that reloaded it."""
    return {
        entry.command.table: entry.command
        for entry in entries
        if isinstance(entry.command, Reload) and entry.refused is None
    }


def with_reloaded_rows(pipeline: Pipeline, entries: Iterable[Entry], log: Log) -> Pipeline:
    """The pipeline with the rows of the last reload of each table, for queries that begin to read it."""
    newest = {
        name: rows_in(command, log)
        for name, command in newest_reloads(entries).items()
        if name in pipeline.spec.tables and pipeline.spec.tables[name].reload
    }
    if not newest:
        return pipeline
    known = pipeline.catalog.tables
    tables = {name: replace(known[name.lower()], data=rows) for name, rows in newest.items()}
    pipeline.catalog.tables |= {name.lower(): table for name, table in tables.items()}
    queries = tuple(
        replace(
            each,
            query=replace(
                each.query, tables=tuple(tables.get(table.name, table) for table in each.query.tables)
            ),
        )
        for each in pipeline.queries
    )
    return replace(pipeline, queries=queries)
