"""`headrace query` and `headrace control`: commands for a pipeline, whether or not it is running."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.control import (
    AddQuery,
    Command,
    Entry,
    Punctuate,
    SetBounds,
    in_force,
    log_of,
)
from headrace.control.commands import describe
from headrace.errors import ControlError
from headrace.pipeline import load
from headrace.runtimes import sending
from headrace.runtimes.sending import state_of


def send(file: Path, command: Command, as_json: bool = False) -> str:
    """Check a command, write it to the log, and say when it takes effect."""
    sent = sending.send(load(file), command)
    return json.dumps({**sent.entry.to_json(), "running": sent.running}) if as_json else str(sent)


# --- what people write ------------------------------------------------------------------------------------


def query_command(
    name: str,
    sql: str | None,
    sql_file: Path | None,
    sink: str,
    late: str | None,
    rejected: str | None,
    existing: str | None,
    time: str | None,
    importance: float | None = None,
) -> AddQuery:
    """The command that adds a query; its text is given, in a file, or on standard input (`-`)."""
    if (sql is None) == (sql_file is None):
        raise ControlError(
            "HR-L009", "a query needs a text", hint='write "SELECT …" after the name, or --sql-file query.sql'
        )
    if sql_file is not None:
        try:
            sql = sql_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ControlError("HR-L009", f"cannot read the query: {error}", place=str(sql_file)) from None
    text = sys.stdin.read() if sql == "-" else str(sql)
    more = {key: value for key, value in (("existing", existing), ("time", time)) if value is not None}
    sides = {key: value for key, value in more.items() if key == "existing"}
    return AddQuery(
        name,
        text,
        _sink(sink, more, "--sink"),
        None if late is None else _sink(late, sides, "--late"),
        None if rejected is None else _sink(rejected, sides, "--rejected"),
        importance,
    )


def _sink(written: str, more: dict[str, Any], place: str) -> str | dict[str, Any]:
    """A sink: a path, `stdout`, or an inline table as in the pipeline file."""
    if not written.lstrip().startswith("{"):
        return {"path": written, **more} if more and written != "stdout" else written
    try:
        table: dict[str, Any] = tomllib.loads(f"sink = {written}")["sink"]
    except tomllib.TOMLDecodeError as error:
        hint = 'write a path, or a table such as {type = "spark", format = "kafka"}'
        raise ControlError("HR-L009", f"the sink is not valid: {error}", place=place, hint=hint) from None
    return {**table, **more}


def bounds_command(stream: str, written: dict[str, str | None]) -> SetBounds:
    """The command that sets some bounds; `none` removes one."""
    named = {key: value for key, value in written.items() if value is not None}
    return SetBounds(stream, {key: None if value == "none" else value for key, value in named.items()})


def punctuate_command(stream: str, patterns: Sequence[str], until: str | None) -> Punctuate:
    """The command that punctuates: `auction=7`, `region=eu,us`, `price=10..20`, `price=..20`."""
    found: dict[str, Any] = {}
    for each in patterns:
        column, equals, value = each.partition("=")
        if not equals or not column or not value:
            hint = "write auction=7, region=eu,us or price=10..20"
            raise ControlError("HR-L009", f"{each!r} is not a pattern", place=stream, hint=hint)
        found[column.strip()] = _pattern(value.strip())
    return Punctuate(stream, found, until)


def _pattern(value: str) -> dict[str, Any]:
    """A pattern on one column. Text in double quotes is taken as it is."""
    if value.startswith('"'):
        try:
            return {"is": json.loads(value)}
        except ValueError:
            return {"is": value}
    low, dots, high = value.partition("..")
    if dots:
        return {key: end for key, end in (("from", low), ("to", high)) if end}
    values = [None if each == "null" else each for each in value.split(",")]
    return {"is": values[0]} if len(values) == 1 else {"in": values}


# --- what is in force -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Listed:
    """A query in a list: where its results go, since when it runs, and where its text comes from."""

    name: str
    sink: str
    since: str
    origin: str


def queries(file: Path, as_json: bool = False) -> str:
    """The queries in force, with those that are about to start."""
    pipeline = load(file)
    entries = log_of(pipeline).read()
    applied = sending.applied(pipeline)
    found = [_listed(query, entries, applied) for query in in_force(pipeline, entries).queries]
    if as_json:
        return json.dumps([asdict(each) for each in found])
    rows = [tuple(asdict(each).values()) for each in found]
    return _table(("query", "sink", "since", "from"), rows)


def _listed(query: Any, entries: Sequence[Entry], applied: int | None) -> Listed:
    sink = getattr(query.spec.sink, "path", None) or query.spec.sink.type
    since = "the start"
    if query.since:
        entry = entries[query.since - 1]
        waits = applied is not None and query.since > applied
        since = f"command {entry.number}, {'not applied yet' if waits else entry.written}"
    since += ", paused" if query.paused else ""
    return Listed(query.name, sink, since, f"the {query.origin}")


def history(file: Path, as_json: bool = False) -> str:
    """All commands of the log, and what became of them."""
    pipeline = load(file)
    entries = log_of(pipeline).read()
    applied = sending.applied(pipeline)
    if as_json:
        return json.dumps([{**entry.to_json(), "state": state_of(entry, applied)} for entry in entries])
    if not entries:
        return "there are no commands"
    rows = [(str(e.number), e.written, describe(e.command), state_of(e, applied)) for e in entries]
    return _table(("command", "written", "what", "state"), rows)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Rows as columns of text."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [
        "  ".join(each.ljust(width) for each, width in zip(row, widths, strict=True)) for row in [head, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)
