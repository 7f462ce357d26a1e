"""CREATE STREAM and CREATE VIEW: names added to the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from headrace.plan.nodes import TimeKind
from headrace.schema import DataType
from headrace.sql.catalog import MICROSECONDS, StreamDef
from headrace.sql.clauses import Declaration, StreamDeclaration, ViewDeclaration
from headrace.sql.codes import Code
from headrace.sql.environment import Environment, renamed
from headrace.sql.place import fail, nearest
from headrace.sql.translate import translate
from headrace.sql.types import arrow_type

KINDS: Final = {"internal": TimeKind.INTERNAL, "latent": TimeKind.LATENT}


def declare_in(env: Environment, declaration: Declaration) -> None:
    """Add what is declared to the catalog."""
    name = declaration.name
    if name.name in env.catalog and not declaration.replace:
        hint = "write CREATE OR REPLACE, or choose another name"
        fail(Code.NAME_TAKEN, f"there is a stream or view {name.name!r} already", name, hint)
    DECLARATIONS[type(declaration)](env, declaration)


def _stream(env: Environment, declaration: StreamDeclaration) -> None:
    seen: set[str] = set()
    for column, _ in declaration.columns:
        if column.name.lower() in seen:
            fail(Code.SAME_COLUMN, f"two columns are called {column.name!r}", column)
        seen.add(column.name.lower())
    schema = pa.schema([pa.field(column.name, arrow_type(of)) for column, of in declaration.columns])
    env.catalog.add(_timed(env, declaration, schema), replace=True)


def _timed(env: Environment, declaration: StreamDeclaration, schema: pa.Schema) -> StreamDef:
    """The stream with its time: a column, or a kind of time, or whatever is pushed with the rows."""
    name, default = declaration.name.name, env.catalog.ticks_per_second
    if declaration.time is None:
        return StreamDef(name, schema, ticks_per_second=default)
    word = declaration.time.name
    column = next((each for each in schema.names if each.lower() == word.lower()), None)
    if column is None and word.lower() in KINDS:
        return StreamDef(name, schema, KINDS[word.lower()], ticks_per_second=default)
    if column is None:
        hint = nearest(word, schema.names, "or TIME INTERNAL, TIME LATENT")
        fail(Code.TIME_COLUMN, f"no column {word!r} to take the time from", declaration.time, hint)
    return StreamDef(
        name, schema, TimeKind.EXTERNAL, column, _domain(schema.field(column).type, declaration.time, default)
    )


def _domain(of: DataType, place: exp.Expr, default: int | None) -> int | None:
    if pt.is_timestamp(of):
        return MICROSECONDS
    if pt.is_integer(of):
        return default
    fail(Code.TIME_COLUMN, f"a column of {of} is no time", place, "TIMESTAMP, or BIGINT for ticks")


def _view(env: Environment, declaration: ViewDeclaration) -> None:
    relation = translate(env, declaration.query)
    if declaration.columns:
        relation = renamed(relation, [each.name for each in declaration.columns], declaration.columns[0])
    env.catalog.add_view(declaration.name.name, relation, replace=True)


DECLARATIONS: Final[dict[type[Any], Callable[[Environment, Any], None]]] = {
    StreamDeclaration: _stream,
    ViewDeclaration: _view,
}
