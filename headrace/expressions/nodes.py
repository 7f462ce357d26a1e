"""The nodes of an expression tree: frozen, hashable, picklable, each one a line of SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.expressions import literals, logic
from headrace.expressions.arithmetic import arithmetic, negate
from headrace.expressions.bound import Bound, Constant
from headrace.expressions.casts import cast
from headrace.expressions.comparison import comparison
from headrace.expressions.expression import Expression, node
from headrace.expressions.functions.registry import UserFunction
from headrace.expressions.scope import Scope
from headrace.expressions.types import sql_name


@node
@dataclass(frozen=True)
class Column(Expression):
    """A column of the row."""

    name: str

    def _bind(self, scope: Scope) -> Bound:
        return scope.column(self.name)

    def __str__(self) -> str:
        return self.name

    def columns(self) -> frozenset[str]:
        return frozenset((self.name,))

    def rename(self, mapping: Mapping[str, str]) -> Column:
        return Column(mapping.get(self.name, self.name))


@node
@dataclass(frozen=True, eq=False)
class Literal(Expression):
    """A value of a type; without one, of the type that Spark would infer.

    Two literals are equal if they have the same type and are written the same, so that NaN equals itself
    and -0.0 is not 0.0: what is shared computes the same.
    """

    value: Any
    of: pa.DataType = None

    def __post_init__(self) -> None:
        of = literals.infer(self.value) if self.of is None else self.of
        object.__setattr__(self, "of", of)
        object.__setattr__(self, "value", literals.normal(self.value, of))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.of == other.of and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((self.of, repr(self.value)))

    def _bind(self, scope: Scope) -> Bound:
        return Constant(self.value, self.of)

    def __str__(self) -> str:
        return literals.text(self.value)

    def children(self) -> tuple[Expression, ...]:
        return ()

    def rename(self, mapping: Mapping[str, str]) -> Literal:
        return self


@node
@dataclass(frozen=True)
class Arithmetic(Expression):
    """`+ - * / % DIV`."""

    op: str
    left: Expression
    right: Expression

    def _bind(self, scope: Scope) -> Bound:
        return arithmetic(self.op, self.left.bind(scope), self.right.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.left)} {self.op} {nested(self.right)}"


@node
@dataclass(frozen=True)
class Negate(Expression):
    """Unary minus."""

    operand: Expression

    def _bind(self, scope: Scope) -> Bound:
        return negate(self.operand.bind(scope))

    def __str__(self) -> str:
        return f"- {nested(self.operand)}"


@node
@dataclass(frozen=True)
class Comparison(Expression):
    """`= <> < <= > >= <=>`."""

    op: str
    left: Expression
    right: Expression

    def _bind(self, scope: Scope) -> Bound:
        return comparison(self.op, self.left.bind(scope), self.right.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.left)} {self.op} {nested(self.right)}"


@node
@dataclass(frozen=True)
class And(Expression):
    """True if all operands are, false if one is false, else NULL."""

    operands: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        return logic.connective(logic.AND, *(each.bind(scope) for each in self.operands))

    def __str__(self) -> str:
        return " AND ".join(nested(each) for each in self.operands)


@node
@dataclass(frozen=True)
class Or(Expression):
    """False if all operands are, true if one is true, else NULL."""

    operands: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        return logic.connective(logic.OR, *(each.bind(scope) for each in self.operands))

    def __str__(self) -> str:
        return " OR ".join(nested(each) for each in self.operands)


@node
@dataclass(frozen=True)
class Not(Expression):
    """NULL stays NULL."""

    operand: Expression

    def _bind(self, scope: Scope) -> Bound:
        return logic.connective(logic.NOT, self.operand.bind(scope))

    def __str__(self) -> str:
        return f"NOT {nested(self.operand)}"


@node
@dataclass(frozen=True)
class IsNull(Expression):
    """Never NULL itself."""

    operand: Expression

    def _bind(self, scope: Scope) -> Bound:
        return logic.null_test(logic.IS_NULL, self.operand.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.operand)} IS NULL"


@node
@dataclass(frozen=True)
class IsNotNull(Expression):
    """Never NULL itself."""

    operand: Expression

    def _bind(self, scope: Scope) -> Bound:
        return logic.null_test(logic.IS_NOT_NULL, self.operand.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.operand)} IS NOT NULL"


@node
@dataclass(frozen=True)
class Cast(Expression):
    """CAST as Spark's `try_cast`: NULL where there is no such value."""

    operand: Expression
    to: pa.DataType

    def _bind(self, scope: Scope) -> Bound:
        return cast(self.operand.bind(scope), self.to)

    def __str__(self) -> str:
        return f"CAST({self.operand} AS {sql_name(self.to)})"


@node
@dataclass(frozen=True)
class Function(Expression):
    """A function of the table, by name."""

    name: str
    arguments: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        rule = scope.function(self.name)
        return rule.bind(tuple(each.bind(scope) for each in self.arguments))

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.arguments))})"


@node
@dataclass(frozen=True)
class UserFunctionCall(Function):
    """A user's function, which comes with the call: no table needs to know it."""

    definition: UserFunction

    def _bind(self, scope: Scope) -> Bound:
        return self.definition.bind(tuple(each.bind(scope) for each in self.arguments))

    __str__ = Function.__str__


ATOMS = frozenset({"Column", "Literal", "Cast", "Function", "UserFunctionCall", "Coalesce", "Case"})


def nested(operand: Expression) -> str:
    """The operand's text, in parentheses unless it is one word or one call."""
    return str(operand) if type(operand).__name__ in ATOMS else f"({operand})"
