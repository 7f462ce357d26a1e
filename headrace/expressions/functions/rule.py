"""A row of the function table: how many arguments, of which types, and the kernel that computes.

A typing rule takes the function's name and its arguments and gives them coerced, with the type of the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound, Kernel, call
from headrace.expressions.casts import cast, in_canonical_type, to_common
from headrace.expressions.types import INSTANT, family, is_numeric, mismatch

Typed = tuple[tuple[Bound, ...], pa.DataType]
Typing = Callable[[str, tuple[Bound, ...]], Typed]
Parameter = Callable[[str, Bound], Bound]


def _accepts(to: pa.DataType, *families: str) -> Parameter:
    """A parameter that takes these families, and NULL, as a `to`."""

    def coerce(name: str, bound: Bound) -> Bound:
        if family(bound.type) not in (*families, "null"):
            raise mismatch(name, bound.type)
        return cast(bound, to)

    return coerce


def any_number(name: str, bound: Bound) -> Bound:
    """A number of whatever type; NULL is a double."""
    if pa.types.is_null(bound.type):
        return cast(bound, pa.float64())
    if not is_numeric(bound.type):
        raise mismatch(name, bound.type)
    return bound


def any_time(name: str, bound: Bound) -> Bound:
    """A timestamp in its own zone; dates are midnights, and strings are read."""
    if family(bound.type) not in ("timestamp", "date", "string", "null"):
        raise mismatch(name, bound.type)
    return bound if family(bound.type) == "timestamp" else cast(bound, INSTANT)


def as_text(name: str, bound: Bound) -> Bound:
    """Anything that can be written as a string."""
    return cast(bound, pa.string())


TEXT: Final = _accepts(pa.string(), "string")
WHOLE: Final = _accepts(pa.int64(), "integer")
REAL: Final = _accepts(pa.float64(), "integer", "float", "decimal")


def takes(*parameters: Parameter, gives: pa.DataType | None = None) -> Typing:
    """One parameter each, the last for all further arguments; the result is `gives`, or as the first one."""

    def typing(name: str, args: tuple[Bound, ...]) -> Typed:
        wanted = (*parameters, *(parameters[-1:] * len(args)))
        coerced = tuple(want(name, each) for want, each in zip(wanted, args, strict=False))
        return coerced, coerced[0].type if gives is None else gives

    return typing


def in_common(name: str, args: tuple[Bound, ...]) -> Typed:
    """All arguments and the result in their common type."""
    coerced, of = to_common(name, *args)
    if family(of) == "other":
        raise mismatch(name, *(each.type for each in args))
    return coerced, of


def check_arity(name: str, least: int, most: int | None, given: int) -> None:
    """An error unless the number of arguments is one that the function takes."""
    if given >= least and (most is None or given <= most):
        return
    wanted = f"{least}" if least == most else f"{least} to {most}" if most else f"at least {least}"
    raise ExpressionError("HR-E003", f"{name} takes {wanted} arguments, not {given}", hint="count the commas")


@dataclass(frozen=True)
class FunctionRule:
    """A function that is one kernel."""

    name: str
    typing: Typing
    kernel: Kernel
    least: int = 1
    most: int | None = 1

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """The call with its arguments coerced."""
        check_arity(self.name, self.least, self.most, len(args))
        coerced, of = self.typing(self.name, tuple(in_canonical_type(each) for each in args))
        return call(self.kernel, coerced, of)


@dataclass(frozen=True)
class Rewrite:
    """A function that stands for an expression of others."""

    name: str
    rewrite: Callable[..., Bound]
    least: int
    most: int | None

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """The expression that it stands for."""
        check_arity(self.name, self.least, self.most, len(args))
        return self.rewrite(*(in_canonical_type(each) for each in args))
