"""Expressions as data: frozen, hashable, picklable trees.

`==` is **structural equality**, because equal sub-plans are shared; SQL equality is `.eq(x)` and `.ne(x)`. All
other comparison and arithmetic operators build expressions: `(col("v") * 2 < 95) & ~col("k").is_null()`.
Python values beside an expression become literals.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NoReturn

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions import arithmetic, comparison, literals, logic
from headrace.expressions.bound import Bound, Constant
from headrace.expressions.casts import cast
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.scope import Scope
from headrace.expressions.types import sql_name, type_named


class Expression(ABC):
    """A value computed from one row."""

    @abstractmethod
    def _bind(self, scope: Scope) -> Bound: ...

    @abstractmethod
    def _text(self) -> str: ...

    def bind(self, scope: Scope) -> Bound:
        """The typed form over `scope`; an error names the innermost expression that is wrong."""
        try:
            return self._bind(scope)
        except ExpressionError as error:
            if error.place:
                raise
            raise ExpressionError(error.code, error.message, place=str(self), hint=error.hint) from None

    def type(self, schema: pa.Schema) -> pa.DataType:
        """The type of the value over rows of `schema`."""
        return self.bind(Scope(schema, FUNCTIONS)).type

    def children(self) -> tuple[Expression, ...]:
        """The expressions directly below, in order."""
        return tuple(_expressions(getattr(self, each.name) for each in fields(self)))  # type: ignore[arg-type]

    def columns(self) -> frozenset[str]:
        """The names of the columns that are read."""
        return frozenset().union(*(each.columns() for each in self.children()))

    def rename(self, mapping: Mapping[str, str]) -> Expression:
        """The same expression over columns renamed by `mapping`; names that it lacks stay."""
        changed = {each.name: _renamed(getattr(self, each.name), mapping) for each in fields(self)}  # type: ignore[arg-type]
        return replace(self, **changed)  # type: ignore[type-var]

    def __str__(self) -> str:
        return self._text()

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "HR-E010", "an expression is neither true nor false", place=str(self), hint="combine with & | ~"
        )

    def eq(self, other: object) -> Comparison:
        return Comparison("=", self, as_expression(other))

    def ne(self, other: object) -> Comparison:
        return Comparison("<>", self, as_expression(other))

    def eq_null_safe(self, other: object) -> Comparison:
        return Comparison("<=>", self, as_expression(other))

    def __lt__(self, other: object) -> Comparison:
        return Comparison("<", self, as_expression(other))

    def __le__(self, other: object) -> Comparison:
        return Comparison("<=", self, as_expression(other))

    def __gt__(self, other: object) -> Comparison:
        return Comparison(">", self, as_expression(other))

    def __ge__(self, other: object) -> Comparison:
        return Comparison(">=", self, as_expression(other))

    def __add__(self, other: object) -> Arithmetic:
        return Arithmetic("+", self, as_expression(other))

    def __radd__(self, other: object) -> Arithmetic:
        return Arithmetic("+", as_expression(other), self)

    def __sub__(self, other: object) -> Arithmetic:
        return Arithmetic("-", self, as_expression(other))

    def __rsub__(self, other: object) -> Arithmetic:
        return Arithmetic("-", as_expression(other), self)

    def __mul__(self, other: object) -> Arithmetic:
        return Arithmetic("*", self, as_expression(other))

    def __rmul__(self, other: object) -> Arithmetic:
        return Arithmetic("*", as_expression(other), self)

    def __truediv__(self, other: object) -> Arithmetic:
        return Arithmetic("/", self, as_expression(other))

    def __rtruediv__(self, other: object) -> Arithmetic:
        return Arithmetic("/", as_expression(other), self)

    def __mod__(self, other: object) -> Arithmetic:
        return Arithmetic("%", self, as_expression(other))

    def __rmod__(self, other: object) -> Arithmetic:
        return Arithmetic("%", as_expression(other), self)

    def __neg__(self) -> Negate:
        return Negate(self)

    def __and__(self, other: object) -> And:
        return And((*_operands(And, self), *_operands(And, as_expression(other))))

    def __or__(self, other: object) -> Or:
        return Or((*_operands(Or, self), *_operands(Or, as_expression(other))))

    def __invert__(self) -> Not:
        return Not(self)

    def is_null(self) -> IsNull:
        return IsNull(self)

    def is_not_null(self) -> IsNotNull:
        return IsNotNull(self)

    def cast(self, to: str | pa.DataType) -> Cast:
        return Cast(self, type_named(to) if isinstance(to, str) else to)
