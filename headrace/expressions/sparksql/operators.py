"""Arithmetic, comparison, logic, choice, IN, LIKE and CAST in Spark's SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from headrace.expressions.arithmetic import SCALES
from headrace.expressions.bound import Call, Constant
from headrace.expressions.casts.temporal import FIRST, LAST, SECOND
from headrace.expressions.comparison import tokens
from headrace.expressions.sparksql.spelling import (
    Translation,
    floor_divided,
    in_utc,
    literal,
    long,
    stamped,
    type_name,
    where,
)
from headrace.expressions.types import MAX_PRECISION, family

# Casts in Spark's SQL: a table from (family, family).
#
# Missing on purpose: text to anything (Spark accepts other whitespace and spellings), floats and timestamps
# to text, floats to decimals (Java's digits).


DAY: Final = 86_400 * SECOND
BIG: Final = "CAST('9223372036854775808' AS double)"


def _try_cast(call: Call, operand: str) -> str:
    return f"try_cast({operand} AS {type_name(call.type)})"


def _float_to_integer(call: Call, operand: str) -> str:
    """NULL for 2^63, which is not an int64, although Spark casts it to the greatest one."""
    cast = _try_cast(call, operand)
    return where(f"{operand} < {BIG}", cast) if call.type == pa.int64() else cast


def _integer_to_float(call: Call, operand: str) -> str:
    """Rounded to a float32 even if a cast to a double follows: Spark would leave out the cast between."""
    cast = _try_cast(call, operand)
    return _kept(cast, call.type) if call.type == pa.float32() else cast


def _kept(text: str, of: pa.DataType) -> str:
    """A float inside a function that does not change its value; Spark's optimizer stops there."""
    return f"nanvl({text}, CAST('NaN' AS {type_name(of)}))"


def _decimal_to_float(call: Call, operand: str) -> str:
    """A cast to float32 goes through a double."""
    return f"CAST(CAST({operand} AS double) AS {type_name(call.type)})"


def midnight(operand: str, of: pa.DataType) -> str:
    """A date as the timestamp of its midnight."""
    return stamped(f"unix_date({operand}) * {DAY}L", of)


def day(operand: str) -> str:
    """The date of a timestamp."""
    return f"date_from_unix_date(CAST({floor_divided(f'unix_micros({operand})', DAY)} AS int))"


def from_ticks(operand: str, scale: int, of: pa.DataType) -> str:
    """Integers that count `scale` microseconds as timestamps, NULL outside the years 1 to 9999."""
    ticks = f"CAST({operand} AS bigint)"
    bounds = f"{ticks} BETWEEN {long(-(-FIRST // scale))} AND {long(LAST // scale)}"
    return where(bounds, stamped(f"try_multiply({ticks}, {scale}L)", of))


def _date_to_timestamp(call: Call, operand: str) -> str | None:
    return midnight(operand, call.type) if in_utc(call.type) else None


def _timestamp_to_date(call: Call, operand: str) -> str | None:
    return day(operand) if in_utc(call.args[0].type) else None


def _same_ticks(call: Call, operand: str) -> str:
    """Keep the microseconds; Spark's cast between the two kinds uses the session time zone."""
    same_kind = bool(call.args[0].type.tz) == bool(call.type.tz)
    return operand if same_kind else stamped(f"unix_micros({operand})", call.type)


def _seconds(call: Call, operand: str) -> str:
    """Whole seconds since the epoch."""
    return f"try_cast({floor_divided(f'unix_micros({operand})', SECOND)} AS {type_name(call.type)})"


def _fraction(call: Call, operand: str) -> str:
    """Seconds since the epoch, with a fraction."""
    double = f"try_divide(CAST(unix_micros({operand}) AS double), CAST('{SECOND}' AS double))"
    return f"CAST({double} AS {type_name(call.type)})"


def _integer_to_timestamp(call: Call, operand: str) -> str:
    return from_ticks(operand, SECOND, call.type)


CASTS: Final[dict[tuple[str, str], Translation]] = {
    **{("boolean", to): _try_cast for to in ("integer", "float", "decimal", "string")},
    **{("integer", to): _try_cast for to in ("boolean", "integer", "decimal", "string")},
    **{("float", to): _try_cast for to in ("boolean", "float")},
    **{("decimal", to): _try_cast for to in ("boolean", "integer", "decimal")},
    ("integer", "float"): _integer_to_float,
    ("float", "integer"): _float_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("date", "string"): _try_cast,
    ("date", "timestamp"): _date_to_timestamp,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "timestamp"): _same_ticks,
    ("timestamp", "integer"): _seconds,
    ("timestamp", "float"): _fraction,
    ("integer", "timestamp"): _integer_to_timestamp,
}


def _tried(name: str, sign: str) -> Translation:
    """Floats never overflow.

    Integers and decimals overflow to NULL; decimals that are rounded are not translated.
    """

    def write(call: Call, left: str, right: str) -> str | None:
        if family(call.type) == "float":
            return f"({left} {sign} {right})"
        if family(call.type) == "decimal" and not _is_exact(call):
            return None
        return f"CAST(try_{name}({left}, {right}) AS {type_name(call.type)})"

    return write


def _is_exact(call: Call) -> bool:
    """Whether the result of a decimal operation needs no rounding."""
    precision, _ = SCALES[call.kernel.name](*(each.type for each in call.args))
    return precision <= MAX_PRECISION


def _divided(name: str) -> Translation:
    """Division by zero is NULL, for floats too."""

    def write(call: Call, left: str, right: str) -> str | None:
        return None if family(call.type) == "decimal" else f"try_{name}({left}, {right})"

    return write


def _negated(call: Call, operand: str) -> str:
    """Negation; NULL for the smallest integer."""
    if family(call.type) != "integer":
        return f"(- {operand})"
    return f"try_subtract({literal(0, call.type)}, {operand})"


def _compared(sign: str) -> Translation:
    return lambda call, left, right: f"({_shielded(call, 0, left)} {sign} {_shielded(call, 1, right)})"


def _shielded(call: Call, at: int, text: str) -> str:
    """A float whose comparison stays in Spark's own operators.

    NaN is the greatest number here and in Spark, but not in file statistics: if a condition on floats were
    pushed down to the source, it would skip blocks that contain a NaN.
    """
    operand = call.args[at]
    if family(operand.type) != "float" or isinstance(operand, Constant):
        return text
    return _kept(text, operand.type)


def _joined(word: str) -> Translation:
    return lambda call, *operands: f"({f' {word} '.join(operands)})"


def _case(call: Call, *parts: str) -> str:
    pairs = zip(parts[:-1:2], parts[1::2], strict=True)
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
    return f"CASE {branches} ELSE {parts[-1]} END"


def _in(call: Call, operand: str) -> str | None:
    """IN with a list of constants; floats are compared one by one."""
    of = call.args[0].type
    options = [literal(each, of) for each in call.kernel.given]
    if not options:
        return None
    if family(of) == "float":
        operand = _shielded(call, 0, operand)
        return f"({' OR '.join(f'{operand} = {each}' for each in options)})"
    return f"({operand} IN ({', '.join(map(str, options))}))"


def _like(call: Call, text: str, _: str) -> str | None:
    """Rewrite the pattern, because Spark allows an escape only before a wildcard."""
    pattern = call.args[1]
    if not isinstance(pattern, Constant):
        return None
    found = tokens(pattern.value, call.kernel.given)
    spelled = "".join(sign or (f"\\{one}" if one in "%_\\" else one) for sign, one in found)
    return f"({text} LIKE {literal(spelled, pa.string())})"


def _cast(call: Call, operand: str) -> str | None:
    """A cast, if the table has a translation."""
    row = CASTS.get((family(call.args[0].type), family(call.type)))
    return None if row is None else row(call, operand)


WRITTEN: Final[tuple[str, ...]] = ("=", "<>", "<", "<=", ">", ">=", "<=>")
POSTFIX: Final[dict[str, Callable[[str], str]]] = {
    "NOT": lambda operand: f"(NOT {operand})",
    "IS NULL": lambda operand: f"({operand} IS NULL)",
    "IS NOT NULL": lambda operand: f"({operand} IS NOT NULL)",
}


def _around(write: Callable[[str], str]) -> Translation:
    """A translation that only needs the operand."""
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
