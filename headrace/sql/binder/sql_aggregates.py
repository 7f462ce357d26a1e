"""`CREATE AGGREGATE`: the statements of its blocks, with names resolved and types checked.

The tables of the state and the arguments are the FROM items of a statement, so errors are those of queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NoReturn

import pyarrow as pa
import pyarrow.types as pt
from sqlglot import exp

from headrace.aggregates.sql_aggregate import FOLDS, Block, Called, SqlAggregate, Terminate
from headrace.aggregates.statements import Delete, Exists, Insert, Statement, StateTable, Update, internal
from headrace.errors import PlanError, SqlError
from headrace.expressions import Column, Expression, Literal
from headrace.expressions.types import family, sql_name
from headrace.plan.nodes.aggregates import result_type
from headrace.plan.nodes.core import AggregateCall, Table
from headrace.plan.nodes.user_aggregates import user_aggregate
from headrace.schema import DataType, Schema
from headrace.sql.binder.aggregate_names import AGGREGATES
from headrace.sql.binder.environment import Environment, column_called
from headrace.sql.binder.folded_aggregates import folds_of
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scalars import chain
from headrace.sql.binder.scope import Item, Scope
from headrace.sql.binder.typed import expression, predicate, type_of
from headrace.sql.binder.types import arrow_type, schema_of
from headrace.sql.catalog import ANY_TIME, Relation
from headrace.sql.parser.clauses import (
    WINDOW,
    AggregateDeclaration,
    DeleteClause,
    InsertClause,
    StatementClause,
    UpdateClause,
)
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, Place, fail, nearest

NUMBERS: Final = frozenset({"integer", "float", "decimal"})
CLAUSES: Final = ("expressions", "from_", "where", "order", "limit")
"""The clauses of a SELECT inside an aggregate; ORDER BY and LIMIT 1 only in TERMINATE."""


def declare_aggregate(env: Environment, declaration: AggregateDeclaration) -> None:
    """Add the aggregate to the definitions that queries of this text can call."""
    name = declaration.name
    made = user_aggregate(name.name, _definition(declaration))
    try:
        env.catalog.definitions.add(made, replace=declaration.replace)
    except SqlError as error:
        hint = "write CREATE OR REPLACE AGGREGATE, or choose another name"
        fail(
            Code(error.code),
            error.message,
            name,
            hint if made.name in env.catalog.definitions else error.hint,
        )


def _definition(declaration: AggregateDeclaration) -> SqlAggregate:
    tables = tuple(StateTable(name.name, schema_of(columns)) for name, columns in declaration.tables)
    arguments = schema_of(declaration.arguments)
    _check_names(declaration)
    names = StateNames(declaration.name.name, {each.name: each.schema for each in tables}, arguments)
    blocks: dict[str, Block] = {
        word: tuple(names.statement(each, word) for each in block)
        for word, block in declaration.blocks.items()
        if word != "TERMINATE"
    }
    result = arrow_type(declaration.result)
    if pt.is_nested(result):
        fail(
            Code.UNKNOWN_TYPE,
            "an aggregate in SQL gives one value",
            declaration.result,
            "return a number or text",
        )
    made = SqlAggregate(
        declaration.name.name.lower(),
        names.arguments.schema,
        result,
        tables,
        blocks["INITIALIZE"],
        blocks["ITERATE"],
        names.terminate(declaration.blocks["TERMINATE"], result, declaration.name),
        blocks.get("EXPIRE"),
    )
    return replace(made, folds=folds_of(made))


def _check_names(declaration: AggregateDeclaration) -> None:
    """Each table has a name of its own, and the aggregate another one."""
    seen = {declaration.name.name.lower()}
    for name, _ in declaration.tables:
        if name.name.lower() in seen:
            hint = "the aggregate and each of its tables have different names"
            fail(Code.NAME_TAKEN, f"the name {name.name!r} is taken", name, hint)
        seen.add(name.name.lower())


class StatementScope(Scope):
    """The table of a statement and the arguments; every name has its owner in front."""

    def _internal(self, item: Item, column: str, taken: set[str]) -> str:
        return internal(item.name, column)


class StatementResolver(Resolver):
    """Resolves names in a statement. In TERMINATE it collects the aggregates."""

    def __init__(self, scope: Scope, block: str) -> None:
        super().__init__(scope, block)
        self.calls: list[Called] = []

    @property
    def schema(self) -> Schema:
        return pa.schema([*self.scope.schema, *(pa.field(each.name, each.type) for each in self.calls)])

    def aggregate(self, node: exp.Anonymous, condition: exp.Expr | None) -> Expression:
        function = AGGREGATES.get(node.name.lower(), node.name.lower())
        if self.clause != "TERMINATE" or function not in FOLDS or condition is not None:
            hint = f"TERMINATE takes {', '.join(FOLDS)} over a table; keep other values in a table"
            fail(Code.MISPLACED_AGGREGATE, f"{node.name.lower()} is not allowed in {self.clause}", node, hint)
        check_read(node)
        if len(node.expressions) != 1:
            fail(Code.ARGUMENTS, f"{function} takes 1 argument, not {len(node.expressions)}", node)
        (given,) = node.expressions
        whole = function == "count" and isinstance(given, exp.Star)
        of = None if whole else expression(Resolver(self.scope, "an aggregate"), given)
        called = Called(f"#{len(self.calls)}", function, of, self._type(function, of, node))
        self.calls.append(called)
        return Column(called.name)

    def _type(self, function: str, of: Expression | None, node: exp.Expr) -> DataType:
        call = AggregateCall("x", function, None if of is None else "x")
        below = pa.schema([] if of is None else [pa.field("x", of.type(self.scope.schema))])
        try:
            return result_type(call, below)
        except PlanError as error:
            fail(Code.TYPES, error.message, node, error.hint)


@dataclass(frozen=True)
class StateNames:
    """The tables and the arguments of an aggregate."""

    name: str
    tables: Mapping[str, Schema]
    own: Schema

    @cached_property
    def arguments(self) -> Scope:
        """The arguments alone."""
        return StatementScope([_item(self.name, self.own)])

    def resolver(self, table: str | None, block: str) -> StatementResolver:
        """Resolves names over a table, if there is one, and the arguments, if there is a row."""
        items = [_item(table, self.tables[table])] if table is not None else []
        if block != "TERMINATE":
            items.append(_item(self.name, self.own))
        return StatementResolver(StatementScope(items), block)

    def table(self, name: exp.Identifier | exp.Expr) -> str:
        """The table that a name means."""
        found = next((each for each in self.tables if each.lower() == name.name.lower()), None)
        if found is None:
            listed = f"its tables: {', '.join(self.tables)}" if self.tables else "declare it: TABLE t(x INT);"
            hint = nearest(name.name, self.tables, listed)
            fail(Code.UNKNOWN_STREAM, f"the aggregate {self.name} has no table {name.name!r}", name, hint)
        return found

    # --------------------------------------------------------------------------------- statements

    def statement(self, clause: StatementClause, block: str) -> Statement:
        """A statement of any block but TERMINATE."""
        if isinstance(clause, InsertClause):
            return self._insert(clause, block)
        table = self.table(clause.table)
        resolver = self.resolver(table, block)
        where, exists = self._where(resolver, clause.where, block)
        if isinstance(clause, DeleteClause):
            return Delete(table, where, exists)
        return Update(table, self._assigned(clause, table, resolver), where, exists)

    def _assigned(
        self, clause: UpdateClause, table: str, resolver: Resolver
    ) -> tuple[tuple[str, Expression], ...]:
        schema, found = self.tables[table], {}
        for name, node in clause.values:
            column = column_called(name, schema.names)
            if column in found:
                fail(Code.SAME_COLUMN, f"{column} is set twice", name)
            found[column] = _fitting(resolver, expression(resolver, node), schema.field(column), node)
        return tuple(found.items())

    def _insert(self, clause: InsertClause, block: str) -> Insert:
        if clause.table is None:
            hint = "an aggregate has one value, which TERMINATE returns"
            fail(Code.NOT_CQL, f"{block} cannot return a value", clause.span, hint)
        table = self.table(clause.table)
        schema = self.tables[table]
        columns = [column_called(each, schema.names) for each in clause.columns] or schema.names
        select, source = self._select(clause.query, block) if clause.query is not None else (None, None)
        nodes = [each.unalias() for each in select.expressions] if select is not None else clause.values
        if len(nodes) != len(columns) or len(set(columns)) < len(columns):
            message = f"{len(nodes)} values for {len(columns)} columns: {', '.join(columns)}"
            fail(Code.COLUMN_COUNT, message, clause.span)
        resolver = self.resolver(source, block)
        given = {
            column: _fitting(resolver, expression(resolver, node), schema.field(column), node)
            for column, node in zip(columns, nodes, strict=True)
        }
        values = tuple(given.get(each.name, Literal(None, each.type)) for each in schema)
        where = select.args.get("where") if select is not None else None
        return Insert(table, values, source, *self._where(resolver, where and where.this, block))

    def _select(self, query: exp.Expr, block: str) -> tuple[exp.Select, str | None]:
        """A SELECT from one table or none; anything more is an error."""
        if not isinstance(query, exp.Select):
            fail(Code.NOT_CQL, f"{block} takes a SELECT from one of its tables", query)
        check_read(query)
        odd = next((v for k, v in query.args.items() if v and k not in CLAUSES), None)
        if odd is None and block != "TERMINATE":
            odd = query.args.get("order") or query.args.get("limit")
        if odd is not None:
            first = odd[0] if isinstance(odd, list) else odd
            hint = "inside an aggregate write SELECT … FROM table WHERE …"
            fail(
                Code.NOT_CQL,
                f"{block} does not take this clause",
                first if isinstance(first, exp.Expr) else query,
                hint,
            )
        source = query.args.get("from_")
        if source is None:
            return query, None
        item = source.this
        if not isinstance(item, exp.Table) or item.alias or WINDOW in item.meta:
            fail(
                Code.NOT_CQL,
                "FROM is one of the tables of the aggregate",
                item,
                "leave windows and aliases out",
            )
        return query, self.table(item)

    def _where(
        self, resolver: Resolver, node: exp.Expr | None, block: str
    ) -> tuple[tuple[Expression, ...], tuple[Exists, ...]]:
        """The conditions of WHERE: on the row, and on what is in other tables."""
        where: list[Expression] = []
        exists: list[Exists] = []
        for each in _parts(node):
            inner, negated = each, False
            while isinstance(inner, (exp.Not, exp.Paren)):
                negated ^= isinstance(inner, exp.Not)
                inner = inner.this
            if isinstance(inner, exp.Exists) and block != "TERMINATE":
                exists.append(self._exists(inner, negated, block))
            else:
                where.append(predicate(resolver, each))
        return tuple(where), tuple(exists)

    def _exists(self, node: exp.Exists, negated: bool, block: str) -> Exists:
        """EXISTS reads one table and the arguments, not the table of the statement around it."""
        query = node.this.this if isinstance(node.this, exp.Subquery) else node.this
        select, table = self._select(query, block)
        if table is None:
            fail(Code.NOT_CQL, "EXISTS needs a table", node, "write EXISTS (SELECT 1 FROM table WHERE …)")
        inner = self.resolver(table, block)
        where = select.args.get("where")
        return Exists(table, tuple(predicate(inner, each) for each in _parts(where and where.this)), negated)

    # ---------------------------------------------------------------------------------- TERMINATE

    def terminate(
        self, block: Sequence[StatementClause], result: DataType, name: exp.Identifier
    ) -> Terminate:
        """The one statement of TERMINATE: `INSERT INTO RETURN SELECT value FROM table …`."""
        hint = "write TERMINATE: { INSERT INTO RETURN SELECT value FROM table; }"
        if len(block) != 1:
            fail(Code.DEFINITION, "TERMINATE has one statement, which returns the value", name, hint)
        (clause,) = block
        if not isinstance(clause, InsertClause) or clause.table is not None or clause.query is None:
            fail(Code.DEFINITION, "TERMINATE returns a value from a table", clause.span, hint)
        select, source = self._select(clause.query, "TERMINATE")
        if source is None or len(select.expressions) != 1:
            fail(Code.DEFINITION, "TERMINATE selects one value from one table", clause.span, hint)
        resolver = self.resolver(source, "TERMINATE")
        where = select.args.get("where")
        conditions, _ = self._where(resolver, where and where.this, "TERMINATE")
        (node,) = (each.unalias() for each in select.expressions)
        value = _fitting(resolver, expression(resolver, node), pa.field("the value", result), node)
        order = self._order(resolver, select, bool(resolver.calls))
        if resolver.calls:
            self._check_grouped(resolver, value, node)
        return Terminate(value, source, conditions, order, tuple(resolver.calls))

    def _order(
        self, resolver: Resolver, select: exp.Select, grouped: bool
    ) -> tuple[tuple[Expression, bool], ...]:
        order, limit = select.args.get("order"), select.args.get("limit")
        if limit is not None and (order is None or limit.expression.name != "1"):
            fail(Code.ORDER_LIMIT, "TERMINATE returns one value", limit, "write ORDER BY … LIMIT 1")
        if order is None:
            return ()
        if grouped or limit is None:
            fail(
                Code.ORDER_LIMIT,
                "ORDER BY chooses the first row",
                order,
                "write ORDER BY … LIMIT 1, without aggregates",
            )
        for each in order.expressions:
            check_read(each)
        return tuple(
            (expression(resolver, each.this), bool(each.args.get("desc"))) for each in order.expressions
        )

    def _check_grouped(self, resolver: StatementResolver, value: Expression, node: exp.Expr) -> None:
        """Beside aggregates, no column of single rows."""
        known = {each.name for each in resolver.calls}
        odd = next((each for each in value.columns() if each not in known), None)
        if odd is not None:
            fail(Code.NOT_GROUPED, f"{odd} is not aggregated", node, "aggregate it: max(…), min(…)")


def _item(name: str, schema: Schema) -> Item:
    return Item(name, name, Relation(Table(name, schema), ANY_TIME), None)


def _parts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions joined by AND."""
    while isinstance(node, exp.Paren):
        node = node.this
    if node is None:
        return []
    return [node] if not isinstance(node, exp.And) else [p for each in chain(node) for p in _parts(each)]


def _fitting(resolver: Resolver, found: Expression, into: pa.Field, node: exp.Expr) -> Expression:
    """An expression that a column can take: numbers of any type, and otherwise the column's type."""
    of = type_of(resolver, found, node)
    if of == into.type or pt.is_null(of) or {family(of), family(into.type)} <= NUMBERS:
        return found
    _refuse(f"{into.name} is a {sql_name(into.type).upper()}, and this is {sql_name(of)}", node)


def _refuse(message: str, node: Place) -> NoReturn:
    fail(Code.TYPES, message, node, "write an explicit CAST")
