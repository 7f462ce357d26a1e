"""The base class of expressions, and the operators that build larger ones.

Operators build expressions, and Python operands become literals: `(col("v") * 2 < 95) & (col("k") == "a")`.
Between two expressions `==` and `!=` are **structural equality** in Python, because equal sub-plans are
shared and expressions are keys of dicts and sets; SQL equality of two expressions is `.eq(x)` and `.ne(x)`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import date
from decimal import Decimal
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.scope import Scope
from headrace.expressions.types import type_named

NODES: Final[dict[str, Callable[..., Expression]]] = {}
"""The node classes by name: the operators below build nodes that are defined after them."""

Node = TypeVar("Node", bound="type[Expression]")


def node(of: Node) -> Node:
    """Add a node class to the table."""
    NODES[of.__name__] = of
    return comparing(of)


VALUES: Final = (bool, int, float, str, bytes, Decimal, date)
"""Python values that an expression is compared with by `==` and `!=`; a datetime is a date too."""


def comparing(of: Node) -> Node:
    """Let `==` with a Python value build a comparison; with an expression, nothing changes."""
    same = of.__eq__

    def __eq__(self: Expression, other: object) -> Any:
        return self.eq(other) if isinstance(other, VALUES) else same(self, other)

    of.__eq__ = __eq__  # type: ignore[method-assign, assignment]
    return of


def as_expression(value: object) -> Expression:
    """`value` itself if it is an expression, else a literal."""
    return value if isinstance(value, Expression) else NODES["Literal"](value)


def _make(name: str, op: str, left: object, right: object) -> Expression:
    return NODES[name](op, as_expression(left), as_expression(right))


def _join(name: str, *operands: object) -> Expression:
    """AND and OR are flat: `a & b & c` has three operands."""
    parts = (as_expression(each) for each in operands)
    flat = (part.children() if type(part).__name__ == name else (part,) for part in parts)
    return NODES[name](tuple(chain.from_iterable(flat)))


@dataclass(frozen=True)
class Expression:
    """A value computed from one row."""

    @abstractmethod
    def _bind(self, scope: Scope) -> Bound:
        """The typed form; `bind` adds the place to errors."""

    @abstractmethod
    def __str__(self) -> str:
        """Readable SQL."""

    def bind(self, scope: Scope) -> Bound:
        """The typed form over `scope`; an error names the innermost expression that is wrong."""
        try:
            return self._bind(scope)
        except ExpressionError as error:
            if error.place:
                raise
            raise ExpressionError(error.code, error.message, place=str(self), hint=error.hint) from None

    def type(self, schema: pa.Schema, functions: Mapping[str, Any] = FUNCTIONS) -> pa.DataType:
        """The type of the value over rows of `schema`."""
        return self.bind(Scope(schema, functions)).type

    def children(self) -> tuple[Expression, ...]:
        """The expressions directly below, in order."""
        return tuple(_expressions(getattr(self, each.name) for each in fields(self)))

    def columns(self) -> frozenset[str]:
        """The names of the columns that are read; cached, because plan rewriting asks for it often."""
        found: frozenset[str] | None = self.__dict__.get("_columns")
        if found is None:
            found = frozenset(name for each in self.children() for name in each.columns())
            self.__dict__["_columns"] = found
        return found

    def rename(self, mapping: Mapping[str, str]) -> Expression:
        """The same expression with columns renamed by `mapping`; other names are unchanged."""
        names = [each.name for each in fields(self)]
        return replace(self, **{name: _renamed(getattr(self, name), mapping) for name in names})

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "HR-E010",
            "an expression has no truth value in Python",
            place=str(self),
            hint="combine conditions with & | ~ instead of and, or, not",
        )

    def __ne__(self, other: object) -> Any:
        return self.ne(other) if isinstance(other, VALUES) else not self == other

    def eq(self, other: object) -> Expression:
        """SQL `=`."""
        return _make("Comparison", "=", self, other)

    def ne(self, other: object) -> Expression:
        """SQL `<>`."""
        return _make("Comparison", "<>", self, other)

    def eq_null_safe(self, other: object) -> Expression:
        """SQL `<=>`: NULL equals NULL, and the result is never NULL."""
        return _make("Comparison", "<=>", self, other)

    def __lt__(self, other: object) -> Expression:
        return _make("Comparison", "<", self, other)

    def __le__(self, other: object) -> Expression:
        return _make("Comparison", "<=", self, other)

    def __gt__(self, other: object) -> Expression:
        return _make("Comparison", ">", self, other)

    def __ge__(self, other: object) -> Expression:
        return _make("Comparison", ">=", self, other)

    def __add__(self, other: object) -> Expression:
        return _make("Arithmetic", "+", self, other)

    def __radd__(self, other: object) -> Expression:
        return _make("Arithmetic", "+", other, self)

    def __sub__(self, other: object) -> Expression:
        return _make("Arithmetic", "-", self, other)

    def __rsub__(self, other: object) -> Expression:
        return _make("Arithmetic", "-", other, self)

    def __mul__(self, other: object) -> Expression:
        return _make("Arithmetic", "*", self, other)

    def __rmul__(self, other: object) -> Expression:
        return _make("Arithmetic", "*", other, self)

    def __truediv__(self, other: object) -> Expression:
        return _make("Arithmetic", "/", self, other)

    def __rtruediv__(self, other: object) -> Expression:
        return _make("Arithmetic", "/", other, self)

    def __mod__(self, other: object) -> Expression:
        return _make("Arithmetic", "%", self, other)

    def __rmod__(self, other: object) -> Expression:
        return _make("Arithmetic", "%", other, self)

    def __neg__(self) -> Expression:
        return NODES["Negate"](self)

    def __and__(self, other: object) -> Expression:
        return _join("And", self, other)

    def __rand__(self, other: object) -> Expression:
        return _join("And", other, self)

    def __or__(self, other: object) -> Expression:
        return _join("Or", self, other)

    def __ror__(self, other: object) -> Expression:
        return _join("Or", other, self)

    def __invert__(self) -> Expression:
        return NODES["Not"](self)

    def is_null(self) -> Expression:
        return NODES["IsNull"](self)

    def is_not_null(self) -> Expression:
        return NODES["IsNotNull"](self)

    def isin(self, options: Iterable[object]) -> Expression:
        return NODES["In"](self, tuple(as_expression(each) for each in options))

    def between(self, low: object, high: object) -> Expression:
        """`low <= self <= high`."""
        return NODES["Between"](self, as_expression(low), as_expression(high))

    def like(self, pattern: object, escape: str = "\\") -> Expression:
        """`%` is any text, `_` any one character."""
        return NODES["Like"](self, as_expression(pattern), escape)

    def field(self, name: str) -> Expression:
        """A field of a struct."""
        return NODES["Field"](self, name)

    def item(self, key: object) -> Expression:
        """An element of an array, counted from 0, or the value of a map under a key."""
        return NODES["Element"](self, as_expression(key))

    def cast(self, to: str | pa.DataType) -> Expression:
        return NODES["Cast"](self, type_named(to) if isinstance(to, str) else to)


def _expressions(values: Iterable[object]) -> Iterator[Expression]:
    """The expressions among field values, including those in tuples."""
    for value in values:
        if isinstance(value, Expression):
            yield value
        elif isinstance(value, tuple):
            yield from _expressions(value)


def _renamed(value: Any, mapping: Mapping[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(each, mapping) for each in value)
    return value.rename(mapping) if isinstance(value, Expression) else value
