"""The nodes that choose and test: IN, BETWEEN, LIKE, CASE, COALESCE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.expressions import literals
from headrace.expressions.bound import Bound
from headrace.expressions.conditional import case, coalesce
from headrace.expressions.expression import Expression, as_expression, node
from headrace.expressions.like import like
from headrace.expressions.membership import between, in_list
from headrace.expressions.nodes import Literal, nested
from headrace.expressions.scope import Scope

NULL: Final = Literal(None)


@node
@dataclass(frozen=True)
class In(Expression):
    """True if the operand equals an option; NULL if it or, failing that, an option is NULL.

    Nothing is in an empty list, not even NULL: false, as in Spark.
    """

    operand: Expression
    options: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        return in_list(self.operand.bind(scope), [each.bind(scope) for each in self.options])

    def __str__(self) -> str:
        return f"{nested(self.operand)} IN ({', '.join(map(str, self.options))})"


@node
@dataclass(frozen=True)
class Between(Expression):
    """Both ends count."""

    operand: Expression
    low: Expression
    high: Expression

    def _bind(self, scope: Scope) -> Bound:
        return between(self.operand.bind(scope), self.low.bind(scope), self.high.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.operand)} BETWEEN {nested(self.low)} AND {nested(self.high)}"


@node
@dataclass(frozen=True)
class Like(Expression):
    """The whole text matches a pattern of `%` and `_`."""

    operand: Expression
    pattern: Expression
    escape: str = "\\"

    def _bind(self, scope: Scope) -> Bound:
        return like(self.operand.bind(scope), self.pattern.bind(scope), self.escape)

    def __str__(self) -> str:
        escape = "" if self.escape == "\\" else f" ESCAPE {literals.text(self.escape)}"
        return f"{nested(self.operand)} LIKE {nested(self.pattern)}{escape}"


@node
@dataclass(frozen=True)
class Case(Expression):
    """Searched CASE; of `CASE x WHEN v` write the condition `x = v`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression = NULL

    def _bind(self, scope: Scope) -> Bound:
        branches = [(condition.bind(scope), value.bind(scope)) for condition, value in self.branches]
        return case(branches, self.default.bind(scope))

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {branches} ELSE {self.default} END"

    def when(self, condition: object, value: object) -> Case:
        """The same with one more branch."""
        return Case((*self.branches, (as_expression(condition), as_expression(value))), self.default)

    def otherwise(self, value: object) -> Case:
        """The same with a value where no condition is true."""
        return Case(self.branches, as_expression(value))


@node
@dataclass(frozen=True)
class Coalesce(Expression):
    """The first operand that is not NULL."""

    operands: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        return coalesce(*(each.bind(scope) for each in self.operands))

    def __str__(self) -> str:
        return f"COALESCE({', '.join(map(str, self.operands))})"
