"""User-defined scalar functions: Python over Arrow arrays, entered in a function table by name."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import ExpressionError, UserCodeError
from headrace.expressions.bound import Bound, Call, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast
from headrace.expressions.functions.rule import check_arity
from headrace.expressions.scope import Rule
from headrace.expressions.types import sql_name, type_named, widens

ArrayFunction = Callable[..., pa.Array]


@dataclass(frozen=True)
class UserFunction:
    """A function of arrays of one length, row by row: rows do not see each other.

    It sees NULLs, and must give an array of the same length and of the type that was declared. `arguments`
    are the types that it takes, None among them any; without them it takes what it is given. Of constants
    alone it is computed once.
    """

    name: str
    function: ArrayFunction
    returns: pa.DataType
    arguments: tuple[pa.DataType | None, ...] | None = None
    deterministic: bool = False
    """Equal arguments give equal values, and none raises: then the planner may move it."""

    def __deepcopy__(self, memo: object) -> UserFunction:
        return self

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """A call with the arguments in the types that it takes."""
        least, most = (1, None) if self.arguments is None else (len(self.arguments),) * 2
        check_arity(self.name, least, most, len(args))
        if self.arguments is not None:
            args = tuple(map(self._coerced, args, self.arguments))
        return call(self._kernel(tuple(each.type for each in args)), args, self.returns)

    def _coerced(self, bound: Bound, wanted: pa.DataType | None) -> Bound:
        if wanted is None or bound.type == wanted:
            return bound
        if not widens(bound.type, wanted):
            takes = ", ".join("any" if each is None else sql_name(each) for each in self.arguments or ())
            message = f"{self.name} takes ({takes}), not {sql_name(bound.type)}"
            raise ExpressionError("HR-E004", message, hint="write an explicit CAST")
        return cast(bound, wanted)

    def _kernel(self, types: tuple[pa.DataType, ...]) -> Kernel:
        def naive(of: pa.DataType, *values: Any) -> Any:
            return self.run(*(pa.array([value], kind) for value, kind in zip(values, types, strict=True)))[
                0
            ].as_py()

        return Kernel(self.name, naive, self._lower, strict=False)

    def _lower(self, call: Call) -> Vector:
        def vector(*args: Datum) -> pa.Array:
            length = next(len(each) for each in args if isinstance(each, pa.Array))
            return self.run(
                *(pa.repeat(each, length) if isinstance(each, pa.Scalar) else each for each in args)
            )

        return vector

    def run(self, *arrays: pa.Array) -> pa.Array:
        """The function's answer, checked."""
        try:
            found = self.function(*arrays)
        except Exception as error:
            message = f"{self.name} raised {type(error).__name__}: {error}"
            hint = "its own traceback stands above this one"
            raise UserCodeError("HR-U001", message, place=self.name, hint=hint) from error
        kept = isinstance(found, pa.Array) and found.type == self.returns and len(found) == len(arrays[0])
        if not kept:
            wanted = f"{len(arrays[0])} values of type {sql_name(self.returns)}"
            raise ExpressionError("HR-E013", f"{self.name} did not give {wanted}", place=self.name)
        return found


def user_function(
    name: str,
    function: ArrayFunction,
    returns: str | pa.DataType,
    *,
    arguments: Sequence[str | pa.DataType | None] | None = None,
    deterministic: bool = False,
) -> UserFunction:
    """The function under a name, its types read."""
    takes = None if arguments is None else tuple(None if each is None else _type(each) for each in arguments)
    return UserFunction(name.lower(), function, _type(returns), takes, deterministic)


def register(
    name: str,
    function: ArrayFunction,
    returns: str | pa.DataType,
    *,
    into: MutableMapping[str, Rule],
    replace: bool = False,
) -> None:
    """Enter a function under `name`; a name that is taken is an error unless it is to be replaced."""
    key = name.lower()
    if key in into and not replace:
        raise ExpressionError("HR-E014", f"there is a function {name!r} already", hint="pass replace=True")
    into[key] = user_function(name, function, returns)


def _type(of: str | pa.DataType) -> pa.DataType:
    return type_named(of) if isinstance(of, str) else of
