"""Dates made, moved and named; texts parsed by a pattern; wall clocks of time zones."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Constant, Kernel, Vector, call
from headrace.expressions.casts import cast
from headrace.expressions.functions.dates import DATE, EPOCH, FIRST, LAST, any_date, to_timestamp
from headrace.expressions.functions.rule import TEXT, WHOLE, FunctionRule, Rewrite, any_time, takes
from headrace.expressions.functions.text import constants
from headrace.expressions.scope import Rule
from headrace.expressions.types import INSTANT

UTC: Final = ZoneInfo("UTC")
NAMES: Final = {
    name.upper(): day for day, full in enumerate(calendar.day_name) for name in (full, full[:3], full[:2])
}


def _made(of: pa.DataType, year: int, month: int, day: int) -> dt.date | None:
    try:
        return dt.date(year, month, day)
    except (ValueError, OverflowError):
        return None


def _next(of: pa.DataType, day: dt.date, name: str) -> dt.date | None:
    """The first day after one that has this name."""
    wanted = NAMES.get(name.strip().upper())
    if wanted is None:
        return None
    found = (day - EPOCH).days + 1 + (wanted - day.weekday() - 1) % 7
    return EPOCH + dt.timedelta(found) if found <= LAST else None


def _truncated(of: pa.DataType, day: dt.date, unit: str) -> dt.date | None:
    """The first day of the year, quarter, month or week."""
    word = unit.upper()
    if word in ("YEAR", "YYYY", "YY"):
        return day.replace(month=1, day=1)
    if word == "QUARTER":
        return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    if word in ("MONTH", "MON", "MM"):
        return day.replace(day=1)
    if word == "WEEK":
        found = (day - EPOCH).days - day.weekday()
        return EPOCH + dt.timedelta(found) if found >= FIRST else None
    return None


def _months(of: pa.DataType, later: dt.datetime, earlier: dt.datetime) -> float:
    """Whole months if both are the same day or the last of their months; else with 31st parts of one."""
    months = (later.year - earlier.year) * 12 + later.month - earlier.month
    ends = [each.day == calendar.monthrange(each.year, each.month)[1] for each in (later, earlier)]
    if later.day == earlier.day or all(ends):
        return float(months)

    def seconds(each: dt.datetime) -> int:
        return each.hour * 3600 + each.minute * 60 + each.second

    rest = (later.day - earlier.day) * 86400 + seconds(later) - seconds(earlier)
    return round(months + rest / (31 * 86400), 8)


# Texts parsed by a pattern.


FIELDS: Final = {
    "y": "year",
    "u": "year",
    "M": "month",
    "d": "day",
    "H": "hour",
    "m": "minute",
    "s": "second",
}
TOKEN: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|.", re.DOTALL)


@lru_cache(maxsize=256)
def _reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """A regular expression for a pattern of Java's, and its fields; raises ValueError if it is not known."""
    written, fields = [], []
    for token in TOKEN.finditer(pattern):
        text = token[0]
        if token[1] is not None:
            written.append(re.escape(token[1].replace("''", "'") or "'"))
        elif not token[2]:
            written.append(re.escape(text))
        elif token[2] == "S":
            written.append(rf"([0-9]{{{len(text)}}})")
            fields.append("fraction")
        elif token[2] in FIELDS and len(text) in ((4,) if token[2] in "yu" else (1, 2)):
            wide = len(text) > 1
            written.append(rf"([0-9]{{{len(text)}}})" if wide else "([0-9]{1,2})")
            fields.append(FIELDS[token[2]])
        else:
            raise ValueError(text)
    if len(set(fields)) < len(fields):
        raise ValueError(pattern)
    return re.compile("".join(written)), tuple(fields)


def _parsed(of: pa.DataType, text: str, pattern: str) -> Any:
    """The time that a text says; NULL if it does not follow the pattern, or says none."""
    try:
        expression, fields = _reader(pattern)
        found = expression.fullmatch(text)
        if found is None:
            return None
        parts = dict(zip(fields, found.groups(), strict=True))
        fraction = parts.pop("fraction", "0")
        values = {"year": 1970, "month": 1, "day": 1, **{name: int(part) for name, part in parts.items()}}
        stamp = dt.datetime(**values, microsecond=int((fraction + "000000")[:6]))  # type: ignore[arg-type]
    except ValueError:
        return None
    return stamp.date() if of == DATE else stamp.replace(tzinfo=UTC)


def _parser(name: str, of: pa.DataType, plain: Any) -> Rewrite:
    """`to_date(text)` and `to_date(text, pattern)`, and the same for timestamps."""
    kernel = Kernel(name, _parsed)

    def rewrite(value: Bound, pattern: Bound | None = None) -> Bound:
        if pattern is None:
            found: Bound = plain(value)
            return found
        if isinstance(pattern, Constant) and isinstance(pattern.value, str):
            try:
                _reader(pattern.value)
            except ValueError as error:
                hint = "use yyyy, MM, dd, HH, mm, ss, S, and texts in quotes"
                raise ExpressionError(
                    "HR-E012", f"{str(error)!r} is not known in a pattern for {name}", hint=hint
                ) from None
        return call(kernel, (TEXT(name, value), TEXT(name, pattern)), of)

    return Rewrite(name, rewrite, 1, 2)


# Wall clocks.


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _from_utc(of: pa.DataType, time: dt.datetime, name: str) -> dt.datetime | None:
    """What clocks in a zone show at an instant, as if it were UTC."""
    zone = _zone(name)
    if zone is None:
        return None
    try:
        return time.astimezone(zone).replace(tzinfo=UTC)
    except (OverflowError, ValueError):
        return None


def _to_utc(of: pa.DataType, time: dt.datetime, name: str) -> dt.datetime | None:
    """The instant at which clocks in a zone show a time; of two, the earlier one."""
    zone = _zone(name)
    if zone is None:
        return None
    try:
        return time.astimezone(UTC).replace(tzinfo=zone, fold=0).astimezone(UTC)
    except (OverflowError, ValueError):
        return None


def _shown_in(name: str) -> Vector | None:
    """`from_utc_timestamp` for whole arrays."""
    if _zone(name) is None:
        return lambda times: pa.nulls(len(times), INSTANT)
    return lambda times: pc.assume_timezone(
        pc.local_timestamp(pc.cast(times, pa.timestamp("us", name))), timezone="UTC"
    )


def _instant(name: str, bound: Bound) -> Bound:
    """An instant in UTC."""
    return cast(any_time(name, bound), INSTANT)


_days = arrow.cast_to(pa.int32())

ROWS: Final[tuple[Rule, ...]] = (
    _parser("to_date", DATE, lambda value: any_date("to_date", value)),
    _parser("to_timestamp", INSTANT, to_timestamp),
    FunctionRule("make_date", takes(WHOLE, gives=DATE), Kernel("make_date", _made), 3, 3),
    FunctionRule("next_day", takes(any_date, TEXT, gives=DATE), Kernel("next_day", _next), 2, 2),
    FunctionRule("trunc", takes(any_date, TEXT, gives=DATE), Kernel("trunc", _truncated), 2, 2),
    FunctionRule(
        "months_between",
        takes(_instant, gives=pa.float64()),
        Kernel("months_between", _months),
        2,
        2,
    ),
    FunctionRule(
        "dayname",
        takes(any_date, gives=pa.string()),
        Kernel("dayname", lambda of, day: calendar.day_abbr[day.weekday()]),
    ),
    FunctionRule(
        "monthname",
        takes(any_date, gives=pa.string()),
        Kernel("monthname", lambda of, day: calendar.month_abbr[day.month]),
    ),
    FunctionRule(
        "unix_date",
        takes(any_date, gives=pa.int32()),
        Kernel("unix_date", lambda of, day: (day - EPOCH).days, lambda call: _days),
    ),
    FunctionRule(
        "date_from_unix_date",
        takes(WHOLE, gives=DATE),
        Kernel(
            "date_from_unix_date",
            lambda of, days: EPOCH + dt.timedelta(days) if FIRST <= days <= LAST else None,
        ),
    ),
    FunctionRule(
        "from_utc_timestamp",
        takes(_instant, TEXT, gives=INSTANT),
        Kernel("from_utc_timestamp", _from_utc, constants(_shown_in)),
        2,
        2,
    ),
    FunctionRule(
        "to_utc_timestamp",
        takes(_instant, TEXT, gives=INSTANT),
        Kernel("to_utc_timestamp", _to_utc),
        2,
        2,
    ),
)
