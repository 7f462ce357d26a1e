"""Expressions with checked types; errors are shown at the innermost place."""

from __future__ import annotations

from sqlglot import exp

from headrace.errors import ExpressionError
from headrace.expressions import And, Expression
from headrace.expressions.types import family, sql_name
from headrace.schema import DataType
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scalars import build, chain
from headrace.sql.place import Code, fail, fail_as


def expression(resolver: Resolver, node: exp.Expr) -> Expression:
    """Build the expression for `node` and check its type."""
    found = build(resolver, node)
    type_of(resolver, found, node)
    return found


def type_of(resolver: Resolver, found: Expression, node: exp.Expr) -> DataType:
    """The type of an expression built by `resolver`."""
    try:
        return found.type(resolver.schema)
    except ExpressionError as error:
        _blame(resolver)
        fail_as(error, node)


def _blame(resolver: Resolver) -> None:
    """Raise the error at its origin.

    Parts are built before the whole, so the first without a type is wrong.
    """
    for made, origin in resolver.origins:
        try:
            made.type(resolver.schema)
        except ExpressionError as error:
            fail_as(error, origin)


def predicate(resolver: Resolver, node: exp.Expr) -> Expression:
    """A condition: boolean, or null."""
    found = build(resolver, node)
    of = type_of(resolver, found, node)
    if family(of) not in ("boolean", "null"):
        fail(
            Code.NOT_BOOLEAN,
            f"a condition must be boolean, and this is {sql_name(of)}",
            node,
            "write a comparison, such as x > 0",
        )
    return found


def conjuncts(resolver: Resolver, node: exp.Expr | None) -> list[Expression]:
    """The conditions joined by AND, as a list."""
    if node is None:
        return []
    if isinstance(node, exp.Paren):
        return conjuncts(resolver, node.this)
    if not isinstance(node, exp.And):
        return [predicate(resolver, node)]
    return [found for each in chain(node) for found in conjuncts(resolver, each)]


def conjunction(conditions: list[Expression]) -> Expression | None:
    """All conditions as one; None if there are none."""
    return conditions[0] if len(conditions) == 1 else And(tuple(conditions)) if conditions else None
