"""Calls of user-defined aggregates: what they are taken of, in the types that they want."""

from __future__ import annotations

from sqlglot import exp

from headrace.expressions import Cast, Expression
from headrace.expressions.types import widens
from headrace.plan.user_aggregates import UserAggregate
from headrace.schema import DataType
from headrace.sql.codes import Code
from headrace.sql.place import fail
from headrace.sql.reading import check_read
from headrace.sql.resolver import Resolver
from headrace.sql.typed import expression, type_of


def user_arguments(inside: Resolver, node: exp.Anonymous, user: UserAggregate) -> tuple[Expression, ...]:
    """What the aggregate is taken of; numbers of a narrower type are made wider."""
    check_read(node)
    wanted, given = user.arguments, node.expressions
    odd = next((each for each in given if isinstance(each, (exp.Star, exp.Distinct))), None)
    if odd is not None:
        hint = "name its columns" if isinstance(odd, exp.Star) else "aggregate a SELECT DISTINCT"
        fail(Code.AGGREGATE, f"{user.name} takes columns", odd, hint)
    if len(given) != len(wanted):
        some = f"{len(wanted)} argument{'' if len(wanted) == 1 else 's'}"
        fail(Code.ARGUMENTS, f"{user.name} takes {some}, not {len(given)}", node)
    return tuple(_argument(inside, each, of) for each, of in zip(given, wanted, strict=True))


def _argument(inside: Resolver, node: exp.Expr, wanted: DataType | None) -> Expression:
    found = expression(inside, node)
    of = type_of(inside, found, node)
    return found if wanted is None or of == wanted or not widens(of, wanted) else Cast(found, wanted)
