"""Scalar expressions: a table from sqlglot's nodes to functions that build ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import (
    FUNCTIONS,
    And,
    Arithmetic,
    Between,
    Case,
    Cast,
    Comparison,
    Expression,
    Function,
    In,
    IsNotNull,
    IsNull,
    Like,
    Literal,
    Negate,
    Not,
    Or,
    UserFunctionCall,
)
from headrace.expressions.functions.registry import UserFunction
from headrace.sql.aggregate_names import AGGREGATES
from headrace.sql.clauses import GRANULARITY
from headrace.sql.codes import Code
from headrace.sql.definitions import USER, is_aggregate
from headrace.sql.intervals import moved
from headrace.sql.literals import literal
from headrace.sql.place import fail, nearest
from headrace.sql.quality import WORST, is_quality
from headrace.sql.reading import READ, check_read
from headrace.sql.resolver import Resolver
from headrace.sql.types import arrow_type

Build = Callable[[Resolver, Any], Expression]
TRUTH: Final = "IS takes NULL, TRUE, FALSE or DISTINCT FROM"


def build(resolver: Resolver, node: exp.Expr) -> Expression:
    """The expression that `node` means, remembered with its place."""
    rule = SCALARS.get(type(node))
    if rule is None:
        name, hint = REFUSED.get(type(node), (type(node).__name__.upper(), ""))
        fail(Code.NOT_CQL, f"{name} has no meaning in an expression here", node, hint)
    if type(node) in READ:
        check_read(node)
    return resolver.remember(rule(resolver, node), node)


def _binary(kind: Callable[[str, Expression, Expression], Expression], op: str) -> Build:
    return lambda resolver, node: kind(op, build(resolver, node.this), build(resolver, node.expression))


def _connective(kind: Callable[[tuple[Expression, ...]], Expression]) -> Build:
    """Chains are flat, so that a list of a thousand conditions is one node deep."""
    return lambda resolver, node: kind(tuple(build(resolver, each) for each in chain(node)))


def chain(node: exp.Expr) -> Iterator[exp.Expr]:
    """The operands of `a AND b AND c`, in order."""
    pending, kind = [node], type(node)
    while pending:
        each = pending.pop()
        if type(each) is kind:
            pending += [each.expression, each.this]
        else:
            yield each


def _is(resolver: Resolver, node: exp.Is) -> Expression:
    operand = build(resolver, node.this)
    if isinstance(node.expression, exp.Null):
        return IsNotNull(operand) if node.args.get("negate") else IsNull(operand)
    if isinstance(node.expression, exp.Boolean):
        return Comparison("<=>", operand, Literal(bool(node.expression.this)))
    fail(Code.SYNTAX, TRUTH, node.expression)


def _in(resolver: Resolver, node: exp.In) -> Expression:
    if not node.expressions:
        fail(Code.SYNTAX, "IN takes a list of values", node, "x IN (1, 2, 3)")
    return In(build(resolver, node.this), tuple(build(resolver, each) for each in node.expressions))


def _between(resolver: Resolver, node: exp.Between) -> Expression:
    return Between(*(build(resolver, node.args[part]) for part in ("this", "low", "high")))


def _like(resolver: Resolver, node: exp.Like, escape: str = "\\") -> Expression:
    found = Like(build(resolver, node.this), build(resolver, node.expression), escape)
    return Not(found) if node.args.get("negate") else found


def _ilike(resolver: Resolver, node: exp.ILike) -> Expression:
    text, pattern = (Function("lower", (build(resolver, each),)) for each in (node.this, node.expression))
    found = Like(text, pattern)
    return Not(found) if node.args.get("negate") else found


def _escape(resolver: Resolver, node: exp.Escape) -> Expression:
    if not isinstance(node.this, exp.Like) or len(node.expression.name) != 1:
        fail(Code.SYNTAX, "ESCAPE is one character after LIKE", node, "x LIKE '10!%' ESCAPE '!'")
    return _like(resolver, node.this, node.expression.name)


def _case(resolver: Resolver, node: exp.Case) -> Expression:
    if not node.args["ifs"]:
        fail(Code.SYNTAX, "CASE needs a WHEN", node)
    compared = build(resolver, node.this) if node.this else None
    default = node.args.get("default")
    branches = tuple(_branch(resolver, compared, each) for each in node.args["ifs"])
    return Case(branches, build(resolver, default) if default else Literal(None))


def _branch(resolver: Resolver, compared: Expression | None, when: exp.If) -> tuple[Expression, Expression]:
    condition = build(resolver, when.this)
    met = condition if compared is None else Comparison("=", compared, condition)
    return met, build(resolver, when.args["true"])


def _cast(resolver: Resolver, node: exp.Cast) -> Expression:
    return Cast(build(resolver, node.this), arrow_type(node.to))


def _adjacent(resolver: Resolver, node: exp.Concat) -> Expression:
    """`'a' 'b'`: texts that follow each other are one. The function concat is a call like others."""
    return Literal("".join(str(each.this) for each in node.expressions))


def _extract(resolver: Resolver, node: exp.Extract) -> Expression:
    return _named(resolver, node, node.this.name, [node.expression])


def _call(resolver: Resolver, node: exp.Anonymous) -> Expression:
    name = node.name.lower()
    if is_aggregate(node):
        return resolver.aggregate(node, None)
    if GRANULARITY in node.meta:
        hint = "write avg(x) [GRANULARITY 10 SECONDS]"
        fail(Code.GRANULARITY, f"{name} is no aggregate", node, hint)
    if is_quality(node):
        return resolver.quality(node)
    if name == "seq":
        fail(Code.SEQUENCE, "SEQ stands in FROM", node, "SELECT … FROM SEQ(a, b) RECENT")
    user = node.meta.get(USER)
    if isinstance(user, UserFunction):
        return UserFunctionCall(name, tuple(build(resolver, each) for each in node.expressions), user)
    return _named(resolver, node, name, node.expressions)


def _named(resolver: Resolver, node: exp.Expr, name: str, arguments: list[exp.Expr]) -> Expression:
    if name.lower() not in FUNCTIONS:
        hint = nearest(name, [*FUNCTIONS, *AGGREGATES, *WORST])
        fail(Code.UNKNOWN_FUNCTION, f"no function {name.lower()!r}", node, hint)
    return Function(name.lower(), tuple(build(resolver, each) for each in arguments))


def _filter(resolver: Resolver, node: exp.Filter) -> Expression:
    if not is_aggregate(node.this):
        fail(Code.AGGREGATE, "FILTER stands after an aggregate", node, "count(*) FILTER (WHERE v > 0)")
    return resolver.aggregate(node.this, node.expression.this)


SCALARS: Final[dict[type[exp.Expr], Build]] = {
    exp.Column: lambda resolver, node: resolver.column(node),
    exp.Literal: lambda resolver, node: literal(node),
    exp.RawString: lambda resolver, node: Literal(str(node.this)),
    exp.Null: lambda resolver, node: Literal(None),
    exp.Boolean: lambda resolver, node: Literal(bool(node.this)),
    exp.Paren: lambda resolver, node: build(resolver, node.this),
    exp.Add: moved("+", build),
    exp.Sub: moved("-", build),
    exp.Mul: _binary(Arithmetic, "*"),
    exp.Div: _binary(Arithmetic, "/"),
    exp.Mod: _binary(Arithmetic, "%"),
    exp.IntDiv: _binary(Arithmetic, "DIV"),
    exp.Neg: lambda resolver, node: Negate(build(resolver, node.this)),
    exp.EQ: _binary(Comparison, "="),
    exp.NEQ: _binary(Comparison, "<>"),
    exp.LT: _binary(Comparison, "<"),
    exp.LTE: _binary(Comparison, "<="),
    exp.GT: _binary(Comparison, ">"),
    exp.GTE: _binary(Comparison, ">="),
    exp.NullSafeEQ: _binary(Comparison, "<=>"),
    exp.NullSafeNEQ: lambda resolver, node: Not(_binary(Comparison, "<=>")(resolver, node)),
    exp.And: _connective(And),
    exp.Or: _connective(Or),
    exp.Not: lambda resolver, node: Not(build(resolver, node.this)),
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.Like: _like,
    exp.ILike: _ilike,
    exp.Escape: _escape,
    exp.Case: _case,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Extract: _extract,
    exp.DPipe: lambda resolver, node: _named(resolver, node, "concat", [node.this, node.expression]),
    exp.Concat: _adjacent,
    exp.Anonymous: _call,
    exp.Filter: _filter,
    exp.Window: lambda resolver, node: resolver.over(node),
}
REFUSED: Final[dict[type[exp.Expr], tuple[str, str]]] = {
    exp.Star: ("*", "name the columns, or write count(*)"),
    exp.Subquery: ("a query", "put it into FROM and join with it"),
    exp.Select: ("a query", "put it into FROM and join with it"),
    exp.Exists: ("EXISTS", "join with the other stream and take DISTINCT"),
    exp.Interval: ("INTERVAL", "it moves a time: ts - INTERVAL 10 SECONDS"),
    exp.Distinct: ("DISTINCT", "write it after SELECT, or inside count(DISTINCT x)"),
    exp.Alias: ("AS", "only columns of SELECT have a name"),
    exp.Tuple: ("a list of values", "x IN (1, 2) is the only place for one"),
    exp.RegexpLike: ("RLIKE", "LIKE, contains and starts_with match text"),
}
