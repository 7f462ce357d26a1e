"""Aggregates that are another one with other arguments, or a definition of the library.

`count_if(c)` counts what `CASE WHEN c THEN 1 END` leaves, `bool_and` is the least truth value. A user's own
aggregate of one of these names comes first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pyarrow as pa
from sqlglot import exp

from headrace.aggregates import library
from headrace.expressions import Case, Cast, Expression, Literal
from headrace.expressions.types import family, sql_name
from headrace.plan.nodes.user_aggregates import UserAggregate
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.typed import expression, predicate, type_of
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail


class Asked(NamedTuple):
    """An aggregate over expressions. A NULL in argument number `nulled` hides a row from it."""

    function: str
    arguments: tuple[Expression, ...]
    definition: UserAggregate | None = None
    nulled: int = 0


MOST: Final = 100_000
"""The most values that topk collects."""
Read = Callable[[Resolver, exp.Anonymous], Asked]


def _count_if(inside: Resolver, node: exp.Anonymous) -> Asked:
    (condition,) = _given(node, 1)
    return Asked("count", (Case(((predicate(inside, condition), Literal(1)),)),))


def _truth(function: str) -> Read:
    """The least or greatest truth value."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        (given,) = _given(node, 1)
        found = expression(inside, given)
        of = type_of(inside, found, given)
        if family(of) not in ("boolean", "null"):
            hint = "write a condition, such as x > 0"
            fail(Code.TYPES, f"{node.name.lower()} takes a BOOLEAN, not {sql_name(of)}", given, hint)
        return Asked(function, (Cast(found, pa.bool_()) if family(of) == "null" else found,))

    return read


def _spelled(function: str) -> Read:
    """Another name for an aggregate of one argument; a second one, if allowed, is its accuracy."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        return Asked(function, (expression(inside, _given(node, 1, 2)[0]),))

    return read


def _of(definition: UserAggregate, nulled: int = 0) -> Read:
    """A definition of the library over its arguments."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        given = _given(node, len(definition.arguments))
        return Asked(definition.name, tuple(expression(inside, each) for each in given), definition, nulled)

    return read


def _percentile(definition_at: Callable[[float], UserAggregate], most: int) -> Read:
    """A percentile; a third argument, if allowed, is its accuracy."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        of, share, *_ = _given(node, 2, most)
        value = _constant(inside, share)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            hint = f"write {node.name.lower()}(x, 0.5), one call for each percentage"
            fail(Code.ARGUMENTS, "the percentage must be a number from 0 to 1", share, hint)
        definition = definition_at(float(value))
        return Asked(definition.name, (expression(inside, of),), definition)

    return read


def _topk(distinct: bool) -> Read:
    """The greatest values of a column."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        of, count = _given(node, 2)
        value = _constant(inside, count)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
            hint = f"write {node.name.lower()}(x, 3)"
            fail(Code.ARGUMENTS, f"the number of values must be from 1 to {MOST:,}", count, hint)
        definition = library.greatest(value, distinct)
        return Asked(definition.name, (expression(inside, of),), definition)

    return read


def _comoment(definition: UserAggregate) -> Read:
    """An aggregate over pairs of doubles."""

    def read(inside: Resolver, node: exp.Anonymous) -> Asked:
        found = [(each, expression(inside, each)) for each in _given(node, 2)]
        for place, each in found:
            if family(of := type_of(inside, each, place)) not in ("integer", "float", "decimal", "null"):
                hint = "cast it to DOUBLE first"
                fail(Code.TYPES, f"{node.name.lower()} takes numbers, not {sql_name(of)}", place, hint)
        cast = tuple(
            each if type_of(inside, each, place) == pa.float64() else Cast(each, pa.float64())
            for place, each in found
        )
        return Asked(definition.name, cast, definition)

    return read


def _listagg(inside: Resolver, node: exp.Anonymous) -> Asked:
    of, *rest = _given(node, 1, 2)
    delimiter = _constant(inside, rest[0]) if rest else ""
    if delimiter is not None and not isinstance(delimiter, str):
        fail(Code.ARGUMENTS, "the delimiter must be a quoted text", rest[0], "write listagg(x, ', ')")
    definition, found = library.listagg(delimiter or ""), expression(inside, of)
    text = found if type_of(inside, found, of) == pa.string() else Cast(found, pa.string())
    type_of(inside, text, of)
    return Asked(definition.name, (text,), definition)


def _constant(inside: Resolver, node: exp.Expr) -> Any:
    """The value of a constant; decimals as doubles."""
    found = expression(inside, node)
    if not isinstance(found, Literal):
        fail(Code.ARGUMENTS, "this argument must be a constant", node, "write a number or a quoted text")
    return float(found.value) if pa.types.is_decimal(found.of) else found.value


def _given(node: exp.Anonymous, least: int, most: int | None = None) -> list[exp.Expr]:
    """The arguments, if they are as many as the aggregate takes."""
    check_read(node)
    name, given = node.name.lower(), list(node.expressions)
    odd = next((each for each in given if isinstance(each, (exp.Star, exp.Distinct))), None)
    if odd is not None:
        hint = "name a column" if isinstance(odd, exp.Star) else "use a subquery with SELECT DISTINCT"
        fail(Code.AGGREGATE, f"{name} takes only columns and expressions", odd, hint)
    if not least <= len(given) <= (most or least):
        wanted = f"{least} to {most}" if most else f"{least}"
        few = "" if (most or least) == 1 else "s"
        fail(Code.ARGUMENTS, f"{name} takes {wanted} argument{few}, not {len(given)}", node)
    return given


MORE: Final[dict[str, Read]] = {
    "count_if": _count_if,
    "bool_and": _truth("min"),
    "every": _truth("min"),
    "bool_or": _truth("max"),
    "some": _truth("max"),
    "any": _truth("max"),
    "approx_count_distinct": _spelled("count_distinct"),
    "max_by": _of(library.MAX_BY, 1),
    "min_by": _of(library.MIN_BY, 1),
    "median": _of(library.MEDIAN),
    "percentile": _percentile(library.percentile, 2),
    "approx_percentile": _percentile(library.nearest_rank, 3),
    "percentile_approx": _percentile(library.nearest_rank, 3),
    "topk": _topk(False),
    "topkdistinct": _topk(True),
    "corr": _comoment(library.CORR),
    "covar_pop": _comoment(library.COVAR_POP),
    "covar_samp": _comoment(library.COVAR_SAMP),
    "bit_and": _of(library.BIT_AND),
    "bit_or": _of(library.BIT_OR),
    "bit_xor": _of(library.BIT_XOR),
    "collect_list": _of(library.COLLECT_LIST),
    "array_agg": _of(library.COLLECT_LIST),
    "collect_set": _of(library.COLLECT_SET),
    "listagg": _listagg,
    "string_agg": _listagg,
}
