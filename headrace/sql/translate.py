"""Queries to plans: a row per kind of query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Cast, Column
from headrace.expressions.types import common_type, sql_name
from headrace.plan.nodes import Distinct, Except, Plan, Union, Window
from headrace.plan.windows import Session, Unbounded
from headrace.schema import DataType
from headrace.sql.catalog import Relation
from headrace.sql.clauses import ToStream
from headrace.sql.codes import Code
from headrace.sql.columns import projected
from headrace.sql.definitions import recognise
from headrace.sql.environment import Environment, one_domain, renamed
from headrace.sql.items import read_item
from headrace.sql.outputs import OUTPUTS
from headrace.sql.place import fail
from headrace.sql.reading import READ, check_read
from headrace.sql.select import select


def translate(env: Environment, node: exp.Expr) -> Relation:
    """What a query means, in whatever form it is written."""
    recognise(node, env.catalog.definitions)
    rule = QUERIES.get(type(node))
    if rule is None:
        name, hint = REFUSED.get(type(node), (type(node).__name__.upper(), ""))
        fail(Code.NOT_CQL, f"{name} is no query of CQL", node, hint or "a query starts with SELECT")
    if type(node) in READ:
        check_read(node)
    return rule(_with_queries(env, node), node)


def _with_queries(env: Environment, node: exp.Expr) -> Environment:
    """The environment with the WITH queries of `node`, each of which sees those before it."""
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
    return OUTPUTS[node.args["kind"]](translate(env, node.this), node)


def _item(env: Environment, node: exp.Table) -> Relation:
    """A name in parentheses where a query could be."""
    item = read_item(env, node, translate)
    if isinstance(item.window, Session):
        fail(Code.SESSION, "sessions are aggregated", node, "SELECT count(*) FROM s [SESSION 30 SECONDS]")
    return replace(item.input, plan=item.as_written)


def _union(env: Environment, node: exp.Union) -> Relation:
    """Streams stay a stream under UNION ALL; UNION and mixed branches are relations."""
    distinct = bool(node.args.get("distinct"))
    branches = [translate(env, each) for each in _branches(node)]
    if not (all(each.is_stream for each in branches) and not distinct):
        branches = [_as_relation(each) for each in branches]
    aligned = Union(tuple(_aligned(branches, node)))
    return _combined(branches, Distinct(aligned) if distinct else aligned, node)


def _branches(node: exp.Union) -> list[exp.Expr]:
    """`a UNION b UNION c` as three, where the same word joins them."""
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
    domain = branches[0].ticks_per_second
    for each in branches[1:]:
        domain = one_domain(domain, each.ticks_per_second, place)
    return Relation(plan, domain, any(each.implicit for each in branches))


def _aligned(branches: list[Relation], place: exp.Expr) -> list[Plan]:
    """All branches with the columns of the first, each in the type common to all."""
    schemas = [each.plan.schema for each in branches]
    counts = [len(each) for each in schemas]
    if len(set(counts)) > 1:
        hint = "all branches list the same number of columns"
        fail(Code.COLUMN_COUNT, f"branches of {' and '.join(map(str, counts))} columns", place, hint)
    types = [
        _common([s.field(i).type for s in schemas], schemas[0].names[i], place) for i in range(counts[0])
    ]
    return [_cast(each.plan, schemas[0].names, types) for each in branches]


def _common(types: list[DataType], name: str, place: exp.Expr) -> DataType:
    found = types[0]
    for each in types[1:]:
        common = found if found == each else common_type(found, each)
        if common is None:
            shown = f"{sql_name(found)} and {sql_name(each)}"
            fail(Code.TYPES, f"column {name!r} is {shown} in different branches", place, "write a CAST")
        found = common
    return found


def _cast(plan: Plan, names: list[str], types: list[DataType]) -> Plan:
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
    exp.Intersect: ("INTERSECT", "join the two on all columns and take DISTINCT"),
    exp.Values: ("VALUES", "push rows into a stream instead"),
}
