"""CREATE TABLE … PRIMARY KEY (k) FROM stream: a relation that a stream of inserts, updates and deletes makes.

The table holds the newest row of each key, unless that row deletes the key. All formats become the same plan:
rows that change nothing are filtered out, the rest gets a column that says what deletes, and a window keeps
the newest row of each key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from sqlglot import exp

from headrace.expressions import (
    And,
    Case,
    Cast,
    Coalesce,
    Column,
    Expression,
    Field,
    In,
    IsNull,
    Not,
    Or,
    lit,
)
from headrace.expressions.types import family, sql_name
from headrace.plan.nodes.core import Plan, Project, Select, Window
from headrace.plan.nodes.windows import Rows, Upserts
from headrace.schema import Schema
from headrace.sql.binder.environment import Environment, column_called
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, Scope, fresh
from headrace.sql.binder.translate import translate
from headrace.sql.binder.typed import predicate
from headrace.sql.binder.types import schema_of
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import ChangingTableDeclaration
from headrace.sql.place import Code, Place, fail, nearest


@dataclass(frozen=True)
class Format:
    """How a row says what it does to the table.

    `operation` is the usual name of the column with the operation; its values that put a row into the table
    and that delete one. Rows with another operation, such as the old image of an update, change nothing.
    `images`: the two structs that hold the row before and after the change. `tombstones`: a row with nothing
    but its key and its time deletes.
    """

    operation: str = ""
    puts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    images: tuple[str, str] | None = None
    tombstones: bool = False


FORMATS: Final[dict[str, Format]] = {
    "UPSERT": Format(),
    "KAFKA": Format(tombstones=True),
    "DEBEZIUM": Format("op", ("c", "r", "u"), ("d",), images=("before", "after")),
    "FLINK": Format("op", ("+I", "+U", "INSERT", "UPDATE_AFTER"), ("-D", "DELETE")),
    "STREAM": Format("op", ("+",), ("-",)),
}

KEYED: Final = "write CREATE TABLE t PRIMARY KEY (k) FROM s; a file needs quotes: FROM 'items.csv'"


@dataclass(frozen=True)
class Changes:
    """The stream of a table: its plan, its columns by name, and what its rows do."""

    stream: Relation
    format: Format
    operation: str | None
    place: Place

    @property
    def schema(self) -> Schema:
        return self.stream.plan.schema

    def done(self, values: tuple[str, ...]) -> Expression:
        """Whether the operation is one of these."""
        assert self.operation is not None
        return In(Column(self.operation), tuple(lit(each) for each in values))


def changing_table(env: Environment, declaration: ChangingTableDeclaration) -> Relation:
    """The relation that the declaration denotes."""
    if not declaration.keys:
        fail(Code.TABLE_CHANGES, "a table from a stream needs a PRIMARY KEY", declaration.stream, KEYED)
    stream = translate(env, declaration.stream)
    if not stream.is_stream:
        hint = "write FROM (ISTREAM(…)) for a stream of changes, or CREATE VIEW for a name of the relation"
        fail(
            Code.TABLE_CHANGES,
            "a table is made from a stream, and this is a relation",
            declaration.stream,
            hint,
        )
    changes = _changes(declaration, stream)
    columns = _columns(changes, declaration)
    keys = tuple(column_called(each, list(columns)) for each in declaration.keys)
    plan, deletes = _kept(changes, declaration), _deletes(changes, declaration, keys)
    return Relation(_newest(plan, columns, tuple(dict.fromkeys(keys)), deletes), stream.ticks_per_second)


def _changes(declaration: ChangingTableDeclaration, stream: Relation) -> Changes:
    """The format and its operation column; both must exist."""
    clause = declaration.format
    if clause is None:
        return Changes(stream, FORMATS["UPSERT"], None, declaration.stream)
    of = FORMATS.get(clause.name.name.upper())
    if of is None:
        hint = nearest(clause.name.name.upper(), FORMATS, f"formats: {', '.join(FORMATS)}")
        fail(Code.TABLE_CHANGES, f"the format {clause.name.name!r} is not known", clause.name, hint)
    if not of.operation:
        if clause.operation is not None:
            hint = "say what deletes: DELETE WHEN …"
            fail(Code.TABLE_CHANGES, f"{clause.name.name} has no operation column", clause.operation, hint)
        return Changes(stream, of, None, clause.name)
    named = clause.operation or exp.to_identifier(of.operation).update_positions(clause.name)
    schema = stream.plan.schema
    hint = f"name it: FORMAT {clause.name.name.upper()} (column)"
    operation = column_called(named, schema.names, "" if clause.operation else hint)
    if family(schema.field(operation).type) != "string":
        shown = sql_name(schema.field(operation).type)
        fail(Code.TABLE_CHANGES, f"the operation {operation!r} is {shown}, not STRING", named, hint)
    return Changes(stream, of, operation, clause.name)


# ----------------------------------------------------------------------------------- columns of the table


def _columns(changes: Changes, declaration: ChangingTableDeclaration) -> dict[str, Expression]:
    """The columns of the table: those listed, cast to their types, or all that are about the row."""
    offered = _images(changes) if changes.format.images else {}
    rest = {name: Column(name) for name in changes.schema.names if name != changes.operation}
    if not declaration.columns:
        return offered or dict(rest)
    known = {**rest, **offered}
    listed: dict[str, Expression] = {}
    wanted = schema_of(declaration.columns)
    for (name, _), field in zip(declaration.columns, wanted, strict=True):
        made = known[column_called(name, list(known))]
        listed[name.name] = made if made.type(changes.schema) == field.type else Cast(made, field.type)
    return listed


def _images(changes: Changes) -> dict[str, Expression]:
    """Each column of the row: of the new image, or of the old one if the row is deleted."""
    assert changes.format.images is not None
    before, after = (_image(changes, name) for name in changes.format.images)
    deleted = changes.done(changes.format.deletes)
    old = {each.name for each in changes.schema.field(before).type}
    columns: dict[str, Expression] = {}
    for field in changes.schema.field(after).type:
        new = Field(Column(after), field.name)
        both = Case(((deleted, Field(Column(before), field.name)),), new)
        columns[field.name] = both if field.name in old else new
    return columns


def _image(changes: Changes, name: str) -> str:
    """The struct of one image."""
    schema = changes.schema
    found = next((each for each in schema.names if each.lower() == name), None)
    if found is None or not pa.types.is_struct(schema.field(found).type):
        hint = "declare it: CREATE STREAM changes (before STRUCT<…>, after STRUCT<…>, op STRING, …)"
        message = f"the stream has no column {name!r} that is a STRUCT"
        fail(Code.TABLE_CHANGES, message, changes.place, hint)
    return str(found)


# -------------------------------------------------------------------------------------- what rows do


def _kept(changes: Changes, declaration: ChangingTableDeclaration) -> Plan:
    """The rows that change the table."""
    conditions: list[Expression] = []
    if changes.operation is not None:
        conditions.append(changes.done(changes.format.puts + changes.format.deletes))
    if declaration.ignore is not None:
        ignored = _condition(changes, declaration.ignore, "IGNORE WHEN")
        conditions.append(Not(Coalesce((ignored, lit(False)))))
    plan = changes.stream.plan
    if not conditions:
        return plan
    return Select(plan, conditions[0] if len(conditions) == 1 else And(tuple(conditions)))


def _deletes(
    changes: Changes, declaration: ChangingTableDeclaration, keys: tuple[str, ...]
) -> Expression | None:
    """Whether a row deletes; None if no row does."""
    conditions: list[Expression] = []
    if changes.operation is not None:
        conditions.append(changes.done(changes.format.deletes))
    if changes.format.tombstones:
        conditions.append(_tombstone(changes, keys))
    if declaration.delete is not None:
        conditions.append(_condition(changes, declaration.delete, "DELETE WHEN"))
    return Or(tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)


def _tombstone(changes: Changes, keys: tuple[str, ...]) -> Expression:
    """Whether a row has nothing but its key and its time."""
    known = {name.lower() for name in keys} | {(changes.stream.time_column or "").lower()}
    values = [name for name in changes.schema.names if name.lower() not in known]
    if not values:
        hint = "say what deletes: DELETE WHEN …"
        fail(
            Code.TABLE_CHANGES,
            "every column is a part of the key, so no row can be a tombstone",
            changes.place,
            hint,
        )
    empty = tuple(IsNull(Column(name)) for name in values)
    return empty[0] if len(empty) == 1 else And(empty)


def _condition(changes: Changes, node: exp.Expr, clause: str) -> Expression:
    """A condition on the rows of the stream."""
    scope = Scope((Item("", "", changes.stream, None),))
    return predicate(Resolver(scope, clause), node)


def _newest(
    plan: Plan, columns: dict[str, Expression], keys: tuple[str, ...], deletes: Expression | None
) -> Plan:
    """The newest row of each key."""
    listed = tuple(columns.items())
    if deletes is None:
        return Window(Project(plan, listed), Rows(1, keys))
    flag = fresh("deleted", {name.lower() for name in columns})
    window = Window(Project(plan, (*listed, (flag, deletes))), Upserts(1, keys, deletes=flag))
    return Project(window, tuple((name, Column(name)) for name in columns))
