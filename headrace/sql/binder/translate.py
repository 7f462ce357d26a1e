"""Queries to plans: a table with one entry per kind of query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Cast, Column
from headrace.expressions.types import common_type, sql_name
from headrace.plan.nodes.core import Distinct, Except, Plan, Union, Window
from headrace.plan.nodes.windows import Session, Unbounded
from headrace.schema import DataType
from headrace.sql.binder.environment import Environment, one_domain, renamed
from headrace.sql.binder.from_clause import read_item
from headrace.sql.binder.select import select
from headrace.sql.binder.select_list import projected
from headrace.sql.binder.to_stream import OUTPUTS
from headrace.sql.catalog import Relation
from headrace.sql.definitions import recognise
from headrace.sql.parser.clauses import ToStream
from headrace.sql.parser.parse import READ, check_read
from headrace.sql.place import Code, fail

UNORDERED: Final = "UNORDERED"


def translate(env: Environment, node: exp.Expr) -> Relation:
    """The relation or stream that a query of any kind denotes."""
    recognise(node, env.catalog.definitions)
    rule = QUERIES.get(type(node))
    if rule is None:
        name, hint = REFUSED.get(type(node), ("this kind of query", ""))
        fail(Code.NOT_CQL, f"CQL does not support {name}", node, hint or "a query starts with SELECT")
    if type(node) in READ:
        check_read(node)
    return rule(_with_queries(env, node), node)


def _with_queries(env: Environment, node: exp.Expr) -> Environment:
    """The environment with the WITH queries of `node`; each of them sees those before it."""
    clause = node.args.get("with_")
    if clause is None:
        return env
    check_read(clause)
    for query in clause.expressions:
        check_read(query)
        check_read(query.args["alias"])
        columns = [each.name for each in query.args["alias"].args.get("columns") or ()]
        found = translate(env, query.this)
        env = env.with_query(query.alias, renamed(found, columns, query.args["alias"]) if columns else found)
    return env


def _output(env: Environment, node: ToStream) -> Relation:
    """ISTREAM, DSTREAM, RSTREAM or CHANGELOG around a query."""
    if node.args["kind"] == UNORDERED:
        hint = "write UNORDERED(SELECT …) around the whole query"
        fail(Code.MEANINGLESS_OUTPUT, "UNORDERED around a part of a query", node, hint)
    return OUTPUTS[node.args["kind"]](translate(env, node.this), node)


def outermost(node: exp.Expr) -> tuple[exp.Expr, bool]:
    """A query without the UNORDERED around it, and whether there was one."""
    if not isinstance(node, ToStream) or node.args["kind"] != UNORDERED:
        return node, False
    inside = node.this
    if node.args.get("with_") is not None:
        if inside.args.get("with_") is not None:
            fail(
                Code.NOT_CQL,
                "CQL does not support WITH both around UNORDERED and in it",
                node,
                "write one WITH",
            )
        inside.set("with_", node.args["with_"])
    return inside, True


def _item(env: Environment, node: exp.Table) -> Relation:
    """A name in parentheses where a query could be."""
    item = read_item(env, node, translate)
    if isinstance(item.window, Session):
        fail(
            Code.SESSION,
            "rows of a SESSION window can only be aggregated",
            node,
            "SELECT count(*) FROM s [SESSION 30 SECONDS]",
        )
    return replace(item.input, plan=item.as_written)


def _union(env: Environment, node: exp.Union) -> Relation:
    """UNION ALL of streams is a stream; UNION and mixed branches give a relation."""
    distinct = bool(node.args.get("distinct"))
    branches = [translate(env, each) for each in _branches(node)]
    if not (all(each.is_stream for each in branches) and not distinct):
        branches = [_as_relation(each) for each in branches]
    aligned = Union(tuple(_aligned(branches, node)))
    return _combined(branches, Distinct(aligned) if distinct else aligned, node)


def _branches(node: exp.Union) -> list[exp.Expr]:
    """The branches of `a UNION b UNION c` as one list, if the same operator joins them."""
    found: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is exp.Union and bool(left.args.get("distinct")) == bool(node.args.get("distinct")):
        if left is not node and left.args.get("with_"):
            break
        check_read(left)
        found.append(left.expression)
        left = left.this
    return [left, *reversed(found)]


def _except(env: Environment, node: exp.Except) -> Relation:
    branches = [_as_relation(translate(env, each)) for each in (node.this, node.expression)]
    left, right = _aligned(branches, node)
    return _combined(branches, Except(left, right, all=not node.args.get("distinct")), node)


def _as_relation(relation: Relation) -> Relation:
    """A stream without a window counts as UNBOUNDED."""
    if not relation.is_stream:
        return relation
    return replace(relation, plan=Window(relation.plan, Unbounded()), implicit=True)


def _combined(branches: list[Relation], plan: Plan, place: exp.Expr) -> Relation:
    """The relation of a set operation; all branches must have the same domain of time."""
    domain = branches[0].ticks_per_second
    for each in branches[1:]:
        domain = one_domain(domain, each.ticks_per_second, place)
    return Relation(plan, domain, any(each.implicit for each in branches))


def _aligned(branches: list[Relation], place: exp.Expr) -> list[Plan]:
    """All branches with the column names of the first, and each column cast to the common type."""
    schemas = [each.plan.schema for each in branches]
    counts = [len(each) for each in schemas]
    if len(set(counts)) > 1:
        hint = "all branches must have the same number of columns"
        fail(Code.COLUMN_COUNT, f"the branches have {' and '.join(map(str, counts))} columns", place, hint)
    types = [
        _common([s.field(i).type for s in schemas], schemas[0].names[i], place) for i in range(counts[0])
    ]
    return [_cast(each.plan, schemas[0].names, types) for each in branches]


def _common(types: list[DataType], name: str, place: exp.Expr) -> DataType:
    """The common type of a column in all branches."""
    found = types[0]
    for each in types[1:]:
        common = found if found == each else common_type(found, each)
        if common is None:
            shown = f"{sql_name(found)} and {sql_name(each)}"
            fail(
                Code.TYPES,
                f"column {name!r} is {shown} in different branches",
                place,
                "write a CAST in one of them",
            )
        found = common
    return found


def _cast(plan: Plan, names: list[str], types: list[DataType]) -> Plan:
    """Rename the columns of a plan and cast them where necessary."""
    made = [
        Column(field.name) if field.type == of else Cast(Column(field.name), of)
        for field, of in zip(plan.schema, types, strict=True)
    ]
    return projected(plan, list(zip(names, made, strict=True)))


QUERIES: Final[dict[type[exp.Expr], Callable[[Environment, Any], Relation]]] = {
    exp.Select: lambda env, node: select(env, node, translate),
    exp.Union: _union,
    exp.Except: _except,
    exp.Subquery: lambda env, node: translate(env, node.this),
    exp.Paren: lambda env, node: translate(env, node.this),
    exp.Table: _item,
    ToStream: _output,
}
REFUSED: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.Intersect: ("INTERSECT", "join the two on all columns and use DISTINCT"),
    exp.Values: ("VALUES", "push rows into a stream instead"),
}
