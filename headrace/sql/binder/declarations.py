"""CREATE STREAM, CREATE TABLE, CREATE VIEW and CREATE AGGREGATE: names added to the catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from headrace.connectors.tables import read_table
from headrace.errors import InputError
from headrace.plan.nodes.core import TimeKind
from headrace.schema import DataType
from headrace.sql.binder.changing_tables import changing_table
from headrace.sql.binder.environment import Environment, renamed
from headrace.sql.binder.sql_aggregates import declare_aggregate
from headrace.sql.binder.translate import translate
from headrace.sql.binder.types import schema_of
from headrace.sql.catalog import MICROSECONDS, StreamDef, TableDef
from headrace.sql.parser.clauses import (
    AggregateDeclaration,
    ChangingTableDeclaration,
    Declaration,
    StreamDeclaration,
    TableDeclaration,
    ViewDeclaration,
)
from headrace.sql.place import Code, fail, nearest

KINDS: Final = {"internal": TimeKind.INTERNAL, "latent": TimeKind.LATENT}


def declare_in(env: Environment, declaration: Declaration) -> None:
    """Add a declaration to the catalog."""
    name = declaration.name
    is_relation = not isinstance(declaration, AggregateDeclaration)
    if is_relation and name.name in env.catalog and not declaration.replace:
        hint = "write CREATE OR REPLACE, or choose another name"
        fail(Code.NAME_TAKEN, f"a stream, table or view {name.name!r} already exists", name, hint)
    DECLARATIONS[type(declaration)](env, declaration)


def _stream(env: Environment, declaration: StreamDeclaration) -> None:
    env.catalog.add(_timed(env, declaration, schema_of(declaration.columns)), replace=True)


def _table(env: Environment, declaration: TableDeclaration) -> None:
    """Read the file of a table, once; errors in the file point to its name in the text."""
    path, schema = declaration.path.name, schema_of(declaration.columns) if declaration.columns else None
    try:
        data = read_table(path, schema)
    except InputError as error:
        code = FILE_ERRORS.get(error.code, Code.TABLE_FILE)
        fail(code, f"{path}: {error.message}", declaration.path, error.hint)
    env.catalog.add_table(TableDef(declaration.name.name, data.schema, data, path), replace=True)


FILE_ERRORS: Final = {"HR-I020": Code.TABLE_FORMAT, "HR-I023": Code.TABLE_COLUMNS}


def _timed(env: Environment, declaration: StreamDeclaration, schema: pa.Schema) -> StreamDef:
    """The stream with its time: a column, a kind of time, or the times pushed with the rows."""
    name, default = declaration.name.name, env.catalog.ticks_per_second
    if declaration.time is None:
        return StreamDef(name, schema, ticks_per_second=default)
    word = declaration.time.name
    column = next((each for each in schema.names if each.lower() == word.lower()), None)
    if column is None and word.lower() in KINDS:
        return StreamDef(name, schema, KINDS[word.lower()], ticks_per_second=default)
    if column is None:
        hint = nearest(word, schema.names, "name a column, or write TIME INTERNAL or TIME LATENT")
        fail(Code.TIME_COLUMN, f"the time column {word!r} does not exist", declaration.time, hint)
    return StreamDef(
        name, schema, TimeKind.EXTERNAL, column, _domain(schema.field(column).type, declaration.time, default)
    )


def _domain(of: DataType, place: exp.Expr, default: int | None) -> int | None:
    """Ticks per second of a time column."""
    if pt.is_timestamp(of):
        return MICROSECONDS
    if pt.is_integer(of):
        return default
    fail(
        Code.TIME_COLUMN, f"the time column is {of}, not a time", place, "use TIMESTAMP, or BIGINT for ticks"
    )


def _changing_table(env: Environment, declaration: ChangingTableDeclaration) -> None:
    env.catalog.add_view(declaration.name.name, changing_table(env, declaration), replace=True)


def _view(env: Environment, declaration: ViewDeclaration) -> None:
    relation = translate(env, declaration.query)
    if declaration.columns:
        relation = renamed(relation, [each.name for each in declaration.columns], declaration.columns[0])
    env.catalog.add_view(declaration.name.name, relation, replace=True)


DECLARATIONS: Final[dict[type[Any], Callable[[Environment, Any], None]]] = {
    StreamDeclaration: _stream,
    TableDeclaration: _table,
    ChangingTableDeclaration: _changing_table,
    ViewDeclaration: _view,
    AggregateDeclaration: declare_aggregate,
}
