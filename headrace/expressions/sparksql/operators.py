"""Arithmetic, comparison, logic, choice, IN, LIKE and CAST in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headrace.expressions.arithmetic import SCALES
from headrace.expressions.bound import Call, Constant
from headrace.expressions.like import tokens
from headrace.expressions.sparksql.casts import CASTS
from headrace.expressions.sparksql.spelling import Translation, literal, type_name
from headrace.expressions.types import MAX_PRECISION, family


def _tried(name: str, sign: str) -> Translation:
    """Floats never overflow; integers and decimals do, to NULL; decimals that must be rounded stay away."""

    def write(call: Call, left: str, right: str) -> str | None:
        if family(call.type) == "float":
            return f"({left} {sign} {right})"
        if family(call.type) == "decimal" and not _is_exact(call):
            return None
        return f"CAST(try_{name}({left}, {right}) AS {type_name(call.type)})"

    return write


def _is_exact(call: Call) -> bool:
    precision, _ = SCALES[call.kernel.name](*(each.type for each in call.args))
    return precision <= MAX_PRECISION


def _divided(name: str) -> Translation:
    """By zero NULL, floats too."""

    def write(call: Call, left: str, right: str) -> str | None:
        return None if family(call.type) == "decimal" else f"try_{name}({left}, {right})"

    return write


def _negated(call: Call, operand: str) -> str:
    if family(call.type) != "integer":
        return f"(- {operand})"
    return f"try_subtract({literal(0, call.type)}, {operand})"


def _compared(sign: str) -> Translation:
    return lambda call, left, right: f"({_shielded(call, 0, left)} {sign} {_shielded(call, 1, right)})"


def _shielded(call: Call, at: int, text: str) -> str:
    """A float behind a function that leaves it as it is.

    NaN is the greatest number here and in Spark, but in no statistics of a file: a condition on floats that
    reached the source would skip blocks in which a NaN lies.
    """
    operand = call.args[at]
    if family(operand.type) != "float" or isinstance(operand, Constant):
        return text
    return f"nanvl({text}, CAST('NaN' AS {type_name(operand.type)}))"


def _joined(word: str) -> Translation:
    return lambda call, *operands: f"({f' {word} '.join(operands)})"


def _case(call: Call, *parts: str) -> str:
    pairs = zip(parts[:-1:2], parts[1::2], strict=True)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    return f"CASE {branches} ELSE {parts[-1]} END"


def _in(call: Call, operand: str) -> str | None:
    of = call.args[0].type
    options = [literal(each, of) for each in call.kernel.given]
    if not options:
        return None
    if family(of) == "float":
        operand = _shielded(call, 0, operand)
        return f"({' OR '.join(f'{operand} = {each}' for each in options)})"
    return f"({operand} IN ({', '.join(map(str, options))}))"


def _like(call: Call, text: str, _: str) -> str | None:
    """Spark refuses an escape before anything but a wildcard: the pattern is written anew."""
    pattern = call.args[1]
    if not isinstance(pattern, Constant):
        return None
    found = tokens(pattern.value, call.kernel.given)
    spelled = "".join(sign or (f"\\{one}" if one in "%_\\" else one) for sign, one in found)
    return f"({text} LIKE {literal(spelled, pa.string())})"


def _cast(call: Call, operand: str) -> str | None:
    row = CASTS.get((family(call.args[0].type), family(call.type)))
    return None if row is None else row(call, operand)


WRITTEN: Final[tuple[str, ...]] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
POSTFIX: Final[dict[str, Callable[[str], str]]] = {
    "NOT": lambda operand: f"(NOT {operand})",
    "IS NULL": lambda operand: f"({operand} IS NULL)",
    "IS NOT NULL": lambda operand: f"({operand} IS NOT NULL)",
}


def _around(write: Callable[[str], str]) -> Translation:
    return lambda call, operand: write(operand)


ROWS: Final[dict[str, Translation]] = {
    "add": _tried("add", "+"),
    "subtract": _tried("subtract", "-"),
    "multiply": _tried("multiply", "*"),
    "divide": _divided("divide"),
    "modulo": _divided("mod"),
    "-": _negated,
    **{sign: _compared(sign) for sign in WRITTEN},
    "AND": _joined("AND"),
    "OR": _joined("OR"),
    **{name: _around(write) for name, write in POSTFIX.items()},
    "CASE": _case,
    "COALESCE": lambda call, *operands: f"coalesce({', '.join(operands)})",
    "IN": _in,
    "LIKE": _like,
    "cast": _cast,
}
