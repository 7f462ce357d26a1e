"""An entry of the function table: the number and types of arguments, and the kernel that computes.

A typing rule takes the function's name and its arguments, and returns the coerced arguments and the type of
the result.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ExpressionError, UserCodeError
from headrace.expressions.bound import Bound, Call, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type, to_common
from headrace.expressions.scope import Rule
from headrace.expressions.types import INSTANT, family, is_numeric, mismatch, sql_name, type_named, widens

Typed = tuple[tuple[Bound, ...], pa.DataType]
Typing = Callable[[str, tuple[Bound, ...]], Typed]
Parameter = Callable[[str, Bound], Bound]


def _accepts(to: pa.DataType, *families: str) -> Parameter:
    """A parameter that accepts these families, and NULL, and casts them to `to`."""

    def coerce(name: str, bound: Bound) -> Bound:
        if family(bound.type) not in (*families, "null"):
            raise mismatch(name, bound.type)
        return cast(bound, to)

    return coerce


def any_number(name: str, bound: Bound) -> Bound:
    """A number of any type; NULL is a double."""
    if pa.types.is_null(bound.type):
        return cast(bound, pa.float64())
    if not is_numeric(bound.type):
        raise mismatch(name, bound.type)
    return bound


def any_time(name: str, bound: Bound) -> Bound:
    """A timestamp in its own zone; dates become midnight, and strings are parsed."""
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
    """One parameter per argument, the last for all further ones; the result is `gives`, or as the first."""

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
    """Raise an error unless the function accepts this number of arguments."""
    if given >= least and (most is None or given <= most):
        return
    wanted = f"{least}" if least == most else f"{least} to {most}" if most else f"at least {least}"
    many = "" if wanted.endswith("1") and wanted != "0 to 1" else "s"
    raise ExpressionError(
        "HR-E003",
        f"{name} takes {wanted} argument{many}, not {given}",
        hint="check the commas and parentheses",
    )


@dataclass(frozen=True)
class FunctionRule:
    """A function that is implemented by one kernel."""

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
    """A function that is defined as an expression of other functions."""

    name: str
    rewrite: Callable[..., Bound]
    least: int
    most: int | None

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """The expression that defines it."""
        check_arity(self.name, self.least, self.most, len(args))
        return self.rewrite(*(in_canonical_type(each) for each in args))


# User-defined scalar functions: Python over Arrow arrays, registered in a function table by name.


ArrayFunction = Callable[..., pa.Array]


@dataclass(frozen=True)
class UserFunction:
    """A function over arrays of equal length; it must compute each row independently.

    It sees NULLs, and must return an array of the same length and of the declared type. `arguments` are the
    types of its arguments, where None accepts any type; without them, any arguments are accepted. With only
    constant arguments it is computed once.
    """

    name: str
    function: ArrayFunction
    returns: pa.DataType
    arguments: tuple[pa.DataType | None, ...] | None = None
    deterministic: bool = False
    """Equal arguments give equal values, and no call raises: then the planner may move it."""

    def __deepcopy__(self, memo: object) -> UserFunction:
        return self

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """A call with the arguments cast to the declared types."""
        least, most = (1, None) if self.arguments is None else (len(self.arguments),) * 2
        check_arity(self.name, least, most, len(args))
        if self.arguments is not None:
            args = tuple(map(self._coerced, args, self.arguments))
        return call(self._kernel(tuple(each.type for each in args)), args, self.returns)

    def _coerced(self, bound: Bound, wanted: pa.DataType | None) -> Bound:
        """An argument, widened to the declared type."""
        if wanted is None or bound.type == wanted:
            return bound
        if not widens(bound.type, wanted):
            takes = ", ".join("any" if each is None else sql_name(each) for each in self.arguments or ())
            message = f"{self.name} takes ({takes}), not {sql_name(bound.type)}"
            raise ExpressionError("HR-E004", message, hint="write an explicit CAST")
        return cast(bound, wanted)

    def _kernel(self, types: tuple[pa.DataType, ...]) -> Kernel:
        """The kernel for arguments of these types; one row is an array of length 1."""

        def naive(of: pa.DataType, *values: Any) -> Any:
            return self.run(*(pa.array([value], kind) for value, kind in zip(values, types, strict=True)))[
                0
            ].as_py()

        return Kernel(self.name, naive, self._lower, strict=False)

    def _lower(self, call: Call) -> Vector:
        """Call the function on whole arrays; constants are repeated."""

        def vector(*args: Datum) -> pa.Array:
            length = next(len(each) for each in args if isinstance(each, pa.Array))
            return self.run(
                *(pa.repeat(each, length) if isinstance(each, pa.Scalar) else each for each in args)
            )

        return vector

    def run(self, *arrays: pa.Array) -> pa.Array:
        """Call the function and check its result."""
        try:
            found = self.function(*arrays)
        except Exception as error:
            message = f"{self.name} raised {type(error).__name__}: {error}"
            hint = "see its traceback above"
            raise UserCodeError("HR-U001", message, place=self.name, hint=hint) from error
        kept = isinstance(found, pa.Array) and found.type == self.returns and len(found) == len(arrays[0])
        if not kept:
            wanted = f"{len(arrays[0])} values of type {sql_name(self.returns)}"
            raise ExpressionError(
                "HR-E013", f"{self.name} must return {wanted}, and did not", place=self.name
            )
        return found


@dataclass(frozen=True)
class RowByRow:
    """A function over the values of one row as a function over arrays: NULL if an argument is NULL."""

    function: Callable[..., Any]
    returns: pa.DataType

    def __call__(self, *arrays: pa.Array) -> pa.Array:
        rows = zip(*(each.to_pylist() for each in arrays), strict=True)
        values = [None if any(value is None for value in row) else self.function(*row) for row in rows]
        try:
            return pa.array(values, self.returns)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            wrong = next(value for value in values if not _is_valid(value, self.returns))
            raise TypeError(
                f"it returned {wrong!r}, a {type(wrong).__name__}, not {sql_name(self.returns)}"
            ) from None


def _is_valid(value: object, of: pa.DataType) -> bool:
    try:
        pa.scalar(value, of)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def user_function(
    name: str,
    function: ArrayFunction,
    returns: str | pa.DataType,
    *,
    arguments: Sequence[str | pa.DataType | None] | None = None,
    deterministic: bool = False,
    scalar: bool = False,
) -> UserFunction:
    """The function under a name, with its types parsed; `scalar`: it takes values of one row, not arrays."""
    takes = None if arguments is None else tuple(None if each is None else _type(each) for each in arguments)
    of = _type(returns)
    return UserFunction(
        name.lower(), RowByRow(function, of) if scalar else function, of, takes, deterministic
    )


def register_in(
    name: str,
    function: ArrayFunction,
    returns: str | pa.DataType,
    *,
    into: MutableMapping[str, Rule],
    replace: bool = False,
) -> None:
    """Register a function under `name`; an existing name is an error unless `replace`."""
    key = name.lower()
    if key in into and not replace:
        raise ExpressionError(
            "HR-E014", f"a function {name!r} already exists", hint="pass replace=True, or choose another name"
        )
    into[key] = user_function(name, function, returns)


def _type(of: str | pa.DataType) -> pa.DataType:
    return type_named(of) if isinstance(of, str) else of
