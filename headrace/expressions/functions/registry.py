"""User-defined scalar functions: Python over Arrow arrays, entered in a function table by name."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound, Call, Datum, Kernel, Vector, call
from headrace.expressions.functions.rule import check_arity
from headrace.expressions.scope import Rule
from headrace.expressions.types import sql_name, type_named

ArrayFunction = Callable[..., pa.Array]


@dataclass(frozen=True)
class UserFunction:
    """A function of arrays of one length, deterministic and row by row: rows do not see each other.

    It sees NULLs, and must give an array of the same length and of the type that was declared.
    """

    name: str
    function: ArrayFunction
    returns: pa.DataType
    least: int = 1
    most: int | None = None

    def bind(self, args: tuple[Bound, ...]) -> Bound:
        """A call with the arguments as they are."""
        check_arity(self.name, self.least, self.most, len(args))
        return call(self._kernel(tuple(each.type for each in args)), args, self.returns)

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
        found = self.function(*arrays)
        kept = isinstance(found, pa.Array) and found.type == self.returns and len(found) == len(arrays[0])
        if not kept:
            wanted = f"{len(arrays[0])} values of type {sql_name(self.returns)}"
            raise ExpressionError("HR-E013", f"{self.name} did not give {wanted}", place=self.name)
        return found


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
    into[key] = UserFunction(key, function, type_named(returns) if isinstance(returns, str) else returns)
