"""Casts in Spark's SQL: a table from (family, family).

Missing on purpose: text to anything (other blanks and spellings are read), floats and timestamps to text,
floats to decimals (Java's digits).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.expressions.bound import Call
from headrace.expressions.casts.temporal import FIRST, LAST, SECOND
from headrace.expressions.sparksql.spelling import (
    Translation,
    floor_divided,
    in_utc,
    long,
    stamped,
    type_name,
    where,
)

DAY: Final = 86_400 * SECOND
BIG: Final = "CAST('9223372036854775808' AS double)"


def _tried(call: Call, operand: str) -> str:
    return f"try_cast({operand} AS {type_name(call.type)})"


def _float_to_integer(call: Call, operand: str) -> str:
    """2^63 is no int64, though Spark takes it for the greatest."""
    cast = _tried(call, operand)
    return where(f"{operand} < {BIG}", cast) if call.type == pa.int64() else cast


def _decimal_to_float(call: Call, operand: str) -> str:
    """Float32 by way of a double."""
    return f"CAST(CAST({operand} AS double) AS {type_name(call.type)})"


def midnight(operand: str, of: pa.DataType) -> str:
    """A date as the timestamp of its beginning."""
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
    """Spark's own cast between the two kinds goes by the session's time zone."""
    same_kind = bool(call.args[0].type.tz) == bool(call.type.tz)
    return operand if same_kind else stamped(f"unix_micros({operand})", call.type)


def _seconds(call: Call, operand: str) -> str:
    return f"try_cast({floor_divided(f'unix_micros({operand})', SECOND)} AS {type_name(call.type)})"


def _fraction(call: Call, operand: str) -> str:
    double = f"try_divide(CAST(unix_micros({operand}) AS double), CAST('{SECOND}' AS double))"
    return f"CAST({double} AS {type_name(call.type)})"


def _integer_to_timestamp(call: Call, operand: str) -> str:
    return from_ticks(operand, SECOND, call.type)


CASTS: Final[dict[tuple[str, str], Translation]] = {
    **{("boolean", to): _tried for to in ("integer", "float", "decimal", "string")},
    **{("integer", to): _tried for to in ("boolean", "integer", "float", "decimal", "string")},
    **{("float", to): _tried for to in ("boolean", "float")},
    **{("decimal", to): _tried for to in ("boolean", "integer", "decimal")},
    ("float", "integer"): _float_to_integer,
    ("decimal", "float"): _decimal_to_float,
    ("date", "string"): _tried,
    ("date", "timestamp"): _date_to_timestamp,
    ("timestamp", "date"): _timestamp_to_date,
    ("timestamp", "timestamp"): _same_ticks,
    ("timestamp", "integer"): _seconds,
    ("timestamp", "float"): _fraction,
    ("integer", "timestamp"): _integer_to_timestamp,
}
