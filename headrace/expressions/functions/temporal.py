"""Functions of time. Fields are those of the wall clock in the timestamp's own zone, if it has one."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Kernel, Vector, call
from headrace.expressions.casts.temporal import FIRST, LAST, from_micros, from_ticks, local, micros
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, any_time, takes
from headrace.expressions.scope import Rule
from headrace.expressions.types import INSTANT

Truncate = Callable[[dt.datetime], dt.datetime]


def _day(value: dt.datetime) -> dt.datetime:
    return value.replace(hour=0, minute=0, second=0, microsecond=0)


def _month(value: dt.datetime) -> dt.datetime:
    return _day(value.replace(day=1))


def _quarter(value: dt.datetime) -> dt.datetime:
    return _day(value.replace(month=value.month - (value.month - 1) % 3, day=1))


def _week(value: dt.datetime) -> dt.datetime:
    return _day(value) - dt.timedelta(days=value.weekday())


UNITS: Final[dict[str, Truncate]] = {
    "year": lambda value: _month(value.replace(day=1, month=1)),
    "quarter": _quarter,
    "month": _month,
    "week": _week,
    "day": _day,
    "hour": lambda value: value.replace(minute=0, second=0, microsecond=0),
    "minute": lambda value: value.replace(second=0, microsecond=0),
    "second": lambda value: value.replace(microsecond=0),
    "millisecond": lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000),
    "microsecond": lambda value: value,
}
SPELLINGS: Final = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month", "dd": "day"}
LETTERS: Final = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
PYTHON: Final[dict[str, Callable[[dt.datetime], str]]] = {
    "yyyy": lambda value: f"{value.year:04}",
    "MM": lambda value: f"{value.month:02}",
    "dd": lambda value: f"{value.day:02}",
    "HH": lambda value: f"{value.hour:02}",
    "mm": lambda value: f"{value.minute:02}",
    "ss": lambda value: f"{value.second:02}",
}
PIECE: Final = re.compile(r"([A-Za-z])\1*|'((?:[^']|'')*)'|[^A-Za-z']+")


def _unit(name: str) -> str | None:
    """The normal name of a unit; None if the unit is unknown."""
    lowered = name.lower()
    found = SPELLINGS.get(lowered, lowered)
    return found if found in UNITS else None


def _truncated(of: pa.DataType, unit: str, value: dt.datetime) -> dt.datetime | None:
    known = _unit(unit)
    return UNITS[known](value) if known else None


def _floor(call: Call) -> Vector:
    """Arrow's floor_temporal for a constant unit; an unknown unit gives NULL."""
    unit = call.args[0]
    if not isinstance(unit, Constant):
        return arrow.rowwise(call)
    known = _unit(unit.value)
    if known is None:
        nothing = pa.scalar(None, call.type)
        return lambda _, times: pa.repeat(nothing, len(times))
    floor = arrow.function("floor_temporal", pc.RoundTemporalOptions(1, known, week_starts_monday=True))
    return lambda _, times: floor(times)


def _field(name: str) -> FunctionRule:
    """A function that extracts a field such as `year`."""

    def lower(call: Call) -> Vector:
        extract, narrow = arrow.function(name), arrow.cast_to(pa.int32())
        return lambda times: narrow(extract(times))

    kernel = Kernel(name, lambda of, value: getattr(value, name), lower)
    return FunctionRule(name, takes(any_time, gives=pa.int32()), kernel)


def pieces(pattern: str) -> list[tuple[str, str]]:
    """The pattern as (letters, "") and ("", text); letters outside the supported subset are an error."""
    found = []
    for piece in PIECE.finditer(pattern):
        quoted, text = piece[2], piece[0]
        letters = text[0].isalpha()
        if letters and text not in LETTERS:
            raise ExpressionError(
                "HR-E012", f"the date pattern {text!r} is not supported", hint=f"letters: {' '.join(LETTERS)}"
            )
        plain = text if quoted is None else quoted.replace("''", "'") or "'"
        found.append((text, "") if letters else ("", plain))
    return found


def _formatted(of: pa.DataType, value: dt.datetime, pattern: str) -> str | None:
    try:
        return "".join(PYTHON[letters](value) if letters else text for letters, text in pieces(pattern))
    except ExpressionError:
        return None


def _format(call: Call) -> Vector:
    """Format with Arrow's strftime for a constant pattern, else row by row."""
    pattern = call.args[1]
    if not isinstance(pattern, Constant):
        return arrow.rowwise(call)
    parts = pieces(pattern.value)
    directives = "".join(LETTERS[letters] if letters else text.replace("%", "%%") for letters, text in parts)
    wall, floor = (
        local(call.args[0].type),
        arrow.function("floor_temporal", pc.RoundTemporalOptions(1, "second")),
    )
    seconds, write = (
        arrow.cast_to(pa.timestamp("s")),
        arrow.function("strftime", pc.StrftimeOptions(directives, "C")),
    )
    return lambda times, _: write(seconds(floor(wall(times))))


def _date_format(time: Bound, pattern: Bound) -> Bound:
    """Bind `date_format`; a constant pattern is checked now."""
    if isinstance(pattern, Constant) and isinstance(pattern.value, str):
        pieces(pattern.value)
    args, of = takes(any_time, TEXT, gives=pa.string())("date_format", (time, pattern))
    return call(FORMAT, args, of)


FORMAT: Final = Kernel("date_format", _formatted, _format)


def _date_trunc(unit: Bound, time: Bound) -> Bound:
    unit, time = TEXT("date_trunc", unit), any_time("date_trunc", time)
    return call(TRUNCATE, (unit, time), time.type)


TRUNCATE: Final = Kernel("date_trunc", _truncated, _floor)


def _since_epoch(name: str, scale: int) -> FunctionRule:
    """A function that counts units of `scale` microseconds since the epoch."""

    def lower(call: Call) -> Vector:
        ticks, divide = arrow.cast_to(pa.int64()), _floor_divide(scale)
        return lambda times: divide(ticks(times))

    kernel = Kernel(name, lambda of, value: micros(value) // scale, lower)
    return FunctionRule(name, takes(any_time, gives=pa.int64()), kernel)


def _floor_divide(scale: int) -> Vector:
    if scale == 1:
        return lambda ticks: ticks
    return lambda ticks: arrow.from_numpy(pa.int64(), arrow.values(ticks) // scale, arrow.validity(ticks))


def _from_epoch(name: str, scale: int) -> FunctionRule:
    """A function from units of `scale` microseconds since the epoch to a timestamp."""

    def naive(of: pa.DataType, value: Any) -> dt.datetime | None:
        return from_micros(of, value * scale)

    kernel = Kernel(name, naive, lambda call: from_ticks(call.type, scale))
    return FunctionRule(name, takes(WHOLE, gives=INSTANT), kernel)


def _shifted(of: pa.DataType, value: dt.datetime, ticks: int) -> dt.datetime | None:
    return from_micros(of, micros(value) + ticks)


def _shift(call: Call) -> Vector:
    """Shift by a constant that cannot overflow int64; results outside the calendar are NULL."""
    ticks = call.args[1]
    if not isinstance(ticks, Constant) or abs(ticks.value) > LAST - FIRST:
        return arrow.rowwise(call)
    count, stamp, by = arrow.cast_to(pa.int64()), from_ticks(call.type, 1), ticks.value
    return lambda times, _: stamp(
        arrow.from_numpy(pa.int64(), arrow.values(count(times)) + by, arrow.validity(times))
    )


def _plus_micros(time: Bound, ticks: Bound) -> Bound:
    time = any_time("plus_micros", time)
    return call(SHIFT, (time, WHOLE("plus_micros", ticks)), time.type)


SHIFT: Final = Kernel("plus_micros", _shifted, _shift)


ROWS: Final[tuple[Rule, ...]] = (
    *(_field(name) for name in ("year", "month", "day", "hour", "minute", "second")),
    *(
        _since_epoch(f"unix_{name}", scale)
        for name, scale in (("micros", 1), ("millis", 1000), ("seconds", 10**6))
    ),
    *(
        _from_epoch(f"timestamp_{name}", scale)
        for name, scale in (("micros", 1), ("millis", 1000), ("seconds", 10**6))
    ),
    Rewrite("date_trunc", _date_trunc, 2, 2),
    Rewrite("date_format", _date_format, 2, 2),
    Rewrite("plus_micros", _plus_micros, 2, 2),
)
