"""Casts among dates, timestamps, numbers and strings.

A timestamp as a number is seconds since the epoch, as in Spark. A timestamp without a zone is wall time in
UTC; text without a zone is wall time in the zone of the target. Years range from 1 to 9999; other values are
NULL.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Call, Kernel, Vector
from headrace.expressions.casts.numeric import guarded, unsafe
from headrace.expressions.casts.text import BLANKS, parsed
from headrace.expressions.literals import as_float, in_range

SECOND: Final = 1_000_000
EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICRO: Final = dt.timedelta(microseconds=1)
FIRST: Final = (dt.datetime(1, 1, 1, tzinfo=dt.UTC) - EPOCH) // MICRO
LAST: Final = (dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC) - EPOCH) // MICRO
DATE_TEXT: Final = re.compile(r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
TIME_TEXT: Final = re.compile(
    r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6})[0-9]*)?)?"
    r"(?: ?(Z|UTC|[+-][0-9]{1,2}(?::[0-9]{2})?))?)?)?)?"
)
COMMON_TIME: Final = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
COMMON_DATE: Final = r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}$"


def micros(value: dt.datetime) -> int:
    """Microseconds since the epoch; a value without a zone is in UTC."""
    return ((value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - EPOCH) // MICRO


def from_micros(of: pa.DataType, value: int) -> dt.datetime | None:
    """The timestamp in the zone of `of`; NULL if it is out of range."""
    if not FIRST <= value <= LAST:
        return None
    instant = EPOCH + value * MICRO
    return instant.astimezone(ZoneInfo(of.tz)) if of.tz else instant.replace(tzinfo=None)


def _local(value: dt.datetime) -> dt.datetime:
    """The wall-clock time, without the zone."""
    return value.replace(tzinfo=None)


def _in_zone(of: pa.DataType, wall: dt.datetime) -> dt.datetime:
    """A wall-clock time in the zone of `of`, if it has one."""
    return wall.replace(tzinfo=ZoneInfo(of.tz)) if of.tz else wall


def _date_to_timestamp(of: pa.DataType, value: dt.date) -> dt.datetime:
    return _in_zone(of, dt.datetime.combine(value, dt.time()))


def _float_to_timestamp(of: pa.DataType, value: float) -> dt.datetime | None:
    scaled = value * SECOND
    return from_micros(of, math.trunc(scaled)) if math.isfinite(scaled) else None


def _offset(text: str) -> dt.timezone:
    """The UTC offset in a text such as `Z`, `UTC` or `+02:00`."""
    if text in ("Z", "UTC"):
        return dt.UTC
    hours, _, minutes = text[1:].partition(":")
    away = dt.timedelta(hours=int(hours), minutes=int(minutes or 0))
    return dt.timezone(-away if text[0] == "-" else away)


def _read_timestamp(of: pa.DataType, text: str) -> dt.datetime | None:
    """Parse a timestamp; NULL if the text is not one."""
    found = TIME_TEXT.fullmatch(text.strip(BLANKS))
    if found is None:
        return None
    *parts, fraction, zone = found.groups()
    numbers = [int(part or default) for part, default in zip(parts, (0, 1, 1, 0, 0, 0), strict=True)]
    try:
        year, month, day, hour, minute, second = numbers
        wall = dt.datetime(year, month, day, hour, minute, second, int((fraction or "").ljust(6, "0")))
        return from_micros(of, micros(wall.replace(tzinfo=_offset(zone)))) if zone else _in_zone(of, wall)
    except (ValueError, OverflowError):
        return None


def _read_date(of: pa.DataType, text: str) -> dt.date | None:
    """Parse a date; NULL if the text is not one."""
    found = DATE_TEXT.fullmatch(text.strip(BLANKS))
    if found is None:
        return None
    year, month, day = (int(part or 1) for part in found.groups())
    try:
        return dt.date(year, month, day)
    except ValueError:
        return None


def timestamp_text(value: dt.datetime) -> str:
    """`2020-01-31 12:00:00.5`: without trailing zeros in the fraction."""
    text = _local(value).isoformat(" ")
    return text.rstrip("0") if "." in text else text


def local(source: pa.DataType) -> Vector:
    """Wall time in the timestamp's own zone."""
    return arrow.function("local_timestamp") if source.tz else lambda array: array


def _text_vector(call: Call) -> Vector:
    """Timestamps as text, without trailing zeros in the fraction."""
    wall, write = local(call.args[0].type), arrow.cast_to(pa.string())
    ending = pc.ReplaceSubstringOptions(r"(\.[0-9]*[1-9])0+$|\.0+$", r"\1")
    trim = arrow.function("replace_substring_regex", ending)
    return lambda array: trim(write(wall(array)))


def _date_vector(call: Call) -> Vector:
    """The date on the wall clock."""
    wall, convert = local(call.args[0].type), unsafe(call)
    return lambda array: convert(wall(array))


def _midnight_vector(call: Call) -> Vector:
    """The midnight of a date; zones other than UTC go row by row."""
    return unsafe(call) if call.type.tz in (None, "UTC") else arrow.rowwise(call)


def _same_ticks(call: Call) -> Vector:
    """Keep the microseconds; Arrow's cast from a zone to none would use the wall clock."""
    ticks, stamp = arrow.cast_to(pa.int64()), arrow.cast_to(call.type)
    return lambda array: stamp(ticks(array))


def _seconds_vector(call: Call) -> Vector:
    """Whole seconds; a batch with values that do not fit the integer type goes row by row."""
    ticks, convert = arrow.cast_to(pa.int64()), arrow.function("cast", pc.CastOptions.safe(call.type))

    def run(array: pa.Array) -> pa.Array:
        whole = ticks(array)
        seconds = arrow.values(whole) // SECOND
        return convert(arrow.from_numpy(pa.int64(), seconds, arrow.validity(whole)))

    return run


def from_ticks(of: pa.DataType, scale: int) -> Vector:
    """Integers that count `scale` microseconds, as timestamps, NULL outside the years 1 to 9999."""
    first, last = -(-FIRST // scale), LAST // scale

    def run(array: pa.Array) -> pa.Array:
        ticks = arrow.values(array).astype(np.int64)
        valid = (ticks >= first) & (ticks <= last) & arrow.validity(array)
        return arrow.from_numpy(pa.int64(), np.where(valid, ticks, 0) * scale, valid).view(of)

    return run


def _fraction_vector(call: Call) -> Vector:
    """Seconds with a fraction."""
    ticks, divide, convert = arrow.cast_to(pa.int64()), arrow.function("divide"), unsafe(call)
    to_double, million = arrow.cast_to(pa.float64()), pa.scalar(float(SECOND))
    return lambda array: convert(divide(to_double(ticks(array)), million))


def _naive_seconds(of: pa.DataType, value: dt.datetime) -> int | None:
    return in_range(of, micros(value) // SECOND)


ROWS: Final[dict[tuple[str, str], Kernel]] = {
    ("date", "timestamp"): Kernel("cast", _date_to_timestamp, _midnight_vector),
    ("timestamp", "date"): Kernel("cast", lambda of, value: _local(value).date(), _date_vector),
    ("timestamp", "timestamp"): Kernel("cast", lambda of, value: from_micros(of, micros(value)), _same_ticks),
    ("timestamp", "integer"): Kernel("cast", _naive_seconds, guarded(_seconds_vector)),
    ("timestamp", "float"): Kernel(
        "cast", lambda of, value: as_float(of, micros(value) / SECOND), _fraction_vector
    ),
    ("integer", "timestamp"): Kernel(
        "cast", lambda of, value: from_micros(of, value * SECOND), lambda call: from_ticks(call.type, SECOND)
    ),
    ("float", "timestamp"): Kernel("cast", _float_to_timestamp),
    ("date", "string"): Kernel("cast", lambda of, value: value.isoformat(), unsafe),
    ("timestamp", "string"): Kernel("cast", lambda of, value: timestamp_text(value), _text_vector),
    ("string", "date"): Kernel("cast", _read_date, parsed(COMMON_DATE)),
    ("string", "timestamp"): Kernel("cast", _read_timestamp, parsed(COMMON_TIME)),
}
