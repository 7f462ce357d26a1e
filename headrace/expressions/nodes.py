"""The nodes of an expression tree: frozen, hashable, picklable, each one a line of SQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.expressions import literals, logic
from headrace.expressions.arithmetic import arithmetic, negate
from headrace.expressions.bound import Bound, Constant
from headrace.expressions.casts import cast
from headrace.expressions.choice import case
from headrace.expressions.choice import coalesce as first_known
from headrace.expressions.comparison import between, comparison, in_list, like
from headrace.expressions.expression import Expression, as_expression, node
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.functions.nested import field as field_of
from headrace.expressions.functions.nested import item
from headrace.expressions.functions.rule import UserFunction
from headrace.expressions.scope import Scope
from headrace.expressions.types import sql_name, type_named


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
    """A value of a type; by default, of the type that Spark would infer.

    Two literals are equal if they have the same type and the same text, so NaN equals itself and -0.0 is not
    0.0: expressions that are shared because they are equal compute the same value.
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
    """Logical negation; NULL stays NULL."""

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
    """CAST with the semantics of Spark's `try_cast`: NULL if the value cannot be represented."""

    operand: Expression
    to: pa.DataType

    def _bind(self, scope: Scope) -> Bound:
        return cast(self.operand.bind(scope), self.to)

    def __str__(self) -> str:
        return f"CAST({self.operand} AS {sql_name(self.to)})"


@node
@dataclass(frozen=True)
class Function(Expression):
    """A function of the function table, by name."""

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
    """A user's function; the call carries its definition, so no table has to contain it."""

    definition: UserFunction

    def _bind(self, scope: Scope) -> Bound:
        return self.definition.bind(tuple(each.bind(scope) for each in self.arguments))

    __str__ = Function.__str__


@node
@dataclass(frozen=True)
class Field(Expression):
    """A field of a struct."""

    operand: Expression
    name: str

    def _bind(self, scope: Scope) -> Bound:
        return field_of(self.operand.bind(scope), self.name)

    def __str__(self) -> str:
        return f"{nested(self.operand)}.{self.name}"


@node
@dataclass(frozen=True)
class Element(Expression):
    """An element of an array, counted from 0, or the value of a map under a key."""

    operand: Expression
    key: Expression

    def _bind(self, scope: Scope) -> Bound:
        return item(self.operand.bind(scope), self.key.bind(scope))

    def __str__(self) -> str:
        return f"{nested(self.operand)}[{self.key}]"


ATOMS = frozenset(
    {"Column", "Literal", "Cast", "Function", "UserFunctionCall", "Coalesce", "Case", "Field", "Element"}
)


def nested(operand: Expression) -> str:
    """The operand's text, in parentheses unless it is one word or one call."""
    return str(operand) if type(operand).__name__ in ATOMS else f"({operand})"


# The nodes that choose and test: IN, BETWEEN, LIKE, CASE, COALESCE.


NULL: Final = Literal(None)


@node
@dataclass(frozen=True)
class In(Expression):
    """True if the operand equals an option; NULL if it or, otherwise, an option is NULL.

    IN of an empty list is false, even for NULL, as in Spark.
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
    """Both bounds are included."""

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
    """Searched CASE; write `CASE x WHEN v` with the condition `x = v`."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression = NULL

    def _bind(self, scope: Scope) -> Bound:
        branches = [(condition.bind(scope), value.bind(scope)) for condition, value in self.branches]
        return case(branches, self.default.bind(scope))

    def __str__(self) -> str:
        branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in self.branches)
        return f"CASE {branches} ELSE {self.default} END"

    def when(self, condition: object, value: object) -> Case:
        """The CASE with one more branch."""
        return Case((*self.branches, (as_expression(condition), as_expression(value))), self.default)

    def otherwise(self, value: object) -> Case:
        """The CASE with a value for rows where no condition is true."""
        return Case(self.branches, as_expression(value))


@node
@dataclass(frozen=True)
class Coalesce(Expression):
    """The first operand that is not NULL."""

    operands: tuple[Expression, ...]

    def _bind(self, scope: Scope) -> Bound:
        return first_known(*(each.bind(scope) for each in self.operands))

    def __str__(self) -> str:
        return f"COALESCE({', '.join(map(str, self.operands))})"


# Functions to write expressions in Python: `col("v") > 3`, `lit(1)`, `fn("upper", col("x"))`.


def col(name: str) -> Column:
    """The column called `name`."""
    return Column(name)


def lit(value: object, of: str | pa.DataType | None = None) -> Literal:
    """A literal, of the type that Spark would infer unless `of` names another."""
    return Literal(value, type_named(of) if isinstance(of, str) else of)


def fn(name: str, *arguments: object) -> Function:
    """A call of the function `name`."""
    given, rule = tuple(as_expression(each) for each in arguments), FUNCTIONS.get(name.lower())
    return UserFunctionCall(name, given, rule) if isinstance(rule, UserFunction) else Function(name, given)


def when(condition: object, value: object) -> Case:
    """The first branch of a CASE; continue with `.when(…)` and `.otherwise(…)`."""
    return Case(((as_expression(condition), as_expression(value)),))


def coalesce(*operands: object) -> Coalesce:
    """The first value that is not NULL."""
    return Coalesce(tuple(as_expression(each) for each in operands))
