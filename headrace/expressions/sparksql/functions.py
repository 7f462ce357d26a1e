"""Functions in Spark's SQL: only those whose results are identical to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from headrace.expressions.bound import Call, Constant
from headrace.expressions.casts.temporal import FIRST, LAST, SECOND
from headrace.expressions.sparksql.operators import DAY, day, from_ticks, midnight
from headrace.expressions.sparksql.spelling import (
    Translation,
    constants,
    floor_divided,
    in_utc,
    literal,
    long,
    stamped,
    type_name,
)
from headrace.expressions.types import family

WIDEST: Final = 2**31 - 1
"""Positions and widths are ints in Spark."""

WHOLE: Final = 2.0**52
"""From here on every double is an integer."""


def _abs(call: Call, operand: str) -> str:
    """Absolute value; NULL for the smallest integer, whose negation overflows."""
    if family(call.type) != "integer":
        return f"abs({operand})"
    zero = literal(0, call.type)
    return f"CASE WHEN {operand} < {zero} THEN try_subtract({zero}, {operand}) ELSE {operand} END"


def _towards(name: str) -> Translation:
    """Spark's floor and ceil give int64; larger values are integers already."""

    def write(call: Call, operand: str) -> str | None:
        if family(call.type) != "float":
            return None
        whole = f"CAST({name}({operand}) AS {type_name(call.type)})"
        limit = literal(WHOLE, call.type)
        return f"CASE WHEN abs({operand}) < {limit} THEN {whole} ELSE {operand} END"

    return write


def _extreme(name: str) -> Translation:
    """Floats are not translated: 0.0 and -0.0 are equal, so either may be returned."""

    def write(call: Call, *operands: str) -> str | None:
        return None if family(call.type) == "float" else f"{name}({', '.join(operands)})"

    return write


def _called(name: str) -> Translation:
    return lambda call, *operands: f"{name}({', '.join(operands)})"


def _with(name: str, fits: Callable[..., bool]) -> Translation:
    """A call whose other arguments are constants that both treat alike; integers are written as int."""

    def write(call: Call, text: str, *_: str) -> str | None:
        known = constants(call)
        if known is None or not fits(*known):
            return None
        return f"{name}({', '.join([text, *(_argument(value) for value in known)])})"

    return write


def _argument(value: Any) -> str:
    if isinstance(value, int):
        return f"CAST('{value}' AS int)"
    return str(literal(value, pa.string()))


def _is_int(value: int) -> bool:
    return abs(value) < WIDEST


def _trimmed(side: str) -> Translation:
    """Trims spaces unless characters are given."""

    def write(call: Call, text: str, *_: str) -> str | None:
        characters = (constants(call) or [None])[0] if len(call.args) > 1 else " "
        return f"TRIM({side} {_argument(characters)} FROM {text})" if characters else None

    return write


def _field(name: str) -> Translation:
    """A field of the date."""
    return lambda call, time: f"{name}({day(time)})" if in_utc(call.args[0].type) else None


def _clock(unit: int, around: int) -> Translation:
    """A field of the time of day: `unit`s since the last full `around`."""

    def write(call: Call, time: str) -> str | None:
        if not in_utc(call.args[0].type):
            return None
        return f"CAST({floor_divided(f'pmod(unix_micros({time}), {around}L)', unit)} AS int)"

    return write


def _since_epoch(scale: int) -> Translation:
    return lambda call, time: floor_divided(f"unix_micros({time})", scale)


def _from_epoch(scale: int) -> Translation:
    return lambda call, number: from_ticks(number, scale, call.type)


UNITS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": 60 * SECOND,
    "hour": 3_600 * SECOND,
    "day": DAY,
    "dd": DAY,
}
CALENDAR: Final = {
    "week": "WEEK",
    **dict.fromkeys(("month", "mon", "mm"), "MONTH"),
    "quarter": "QUARTER",
    **dict.fromkeys(("year", "yyyy", "yy"), "YEAR"),
}


def _truncated(call: Call, _: str, time: str) -> str | None:
    """date_trunc with a constant unit, in UTC."""
    unit = call.args[0]
    if not isinstance(unit, Constant) or not in_utc(call.type):
        return None
    name = unit.value.lower()
    if name in UNITS:
        ticks = f"unix_micros({time})"
        return stamped(f"{ticks} - pmod({ticks}, {UNITS[name]}L)", call.type)
    return midnight(f"trunc({day(time)}, '{CALENDAR[name]}')", call.type) if name in CALENDAR else None


def _shifted(call: Call, time: str, ticks: str) -> str | None:
    """A time shifted by a constant."""
    by = call.args[1]
    if not isinstance(by, Constant) or abs(by.value) > LAST - FIRST:
        return None
    return from_ticks(f"(unix_micros({time}) + {long(by.value)})", 1, call.type)


ROWS: Final[dict[str, Translation]] = {
    "abs": _abs,
    "sqrt": _called("sqrt"),
    "floor": _towards("floor"),
    "ceil": _towards("ceil"),
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "length": _called("char_length"),
    "reverse": _called("reverse"),
    "concat": _called("concat"),
    "substring": _with("substring", lambda position, length=0: _is_int(position) and _is_int(length)),
    "trim": _trimmed("BOTH"),
    "ltrim": _trimmed("LEADING"),
    "rtrim": _trimmed("TRAILING"),
    "replace": _with("replace", lambda search, replacement="": bool(search)),
    "starts_with": _called("startswith"),
    "ends_with": _called("endswith"),
    "contains": _called("contains"),
    "lpad": _with("lpad", lambda width, pad=" ": _is_int(width) and bool(pad)),
    "rpad": _with("rpad", lambda width, pad=" ": _is_int(width) and bool(pad)),
    "split_part": _with("split_part", lambda by, number: bool(by) and number != 0 and _is_int(number)),
    "year": _field("year"),
    "month": _field("month"),
    "day": _field("day"),
    "hour": _clock(3_600 * SECOND, DAY),
    "minute": _clock(60 * SECOND, 3_600 * SECOND),
    "second": _clock(SECOND, 60 * SECOND),
    "unix_micros": _called("unix_micros"),
    "unix_millis": _since_epoch(1_000),
    "unix_seconds": _since_epoch(SECOND),
    "timestamp_micros": _from_epoch(1),
    "timestamp_millis": _from_epoch(1_000),
    "timestamp_seconds": _from_epoch(SECOND),
    "date_trunc": _truncated,
    "plus_micros": _shifted,
}
