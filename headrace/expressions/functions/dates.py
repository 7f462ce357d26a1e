"""Functions of dates. A timestamp counts as its day, and a string is parsed; beyond the year 9999 is NULL."""

from __future__ import annotations

import datetime as dt
from calendar import monthrange
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Kernel, Vector
from headrace.expressions.casts import cast
from headrace.expressions.functions.rule import WHOLE, FunctionRule, takes
from headrace.expressions.scope import Rule
from headrace.expressions.types import INSTANT, family, mismatch

DATE: Final = pa.date32()
EPOCH: Final = dt.date(1970, 1, 1)
FIRST: Final = (dt.date.min - EPOCH).days
LAST: Final = (dt.date.max - EPOCH).days

_days, _dates, _int32 = arrow.cast_to(pa.int32()), arrow.cast_to(DATE), arrow.cast_to(pa.int32())


def any_date(name: str, bound: Bound) -> Bound:
    """The day of a date, a timestamp or a string."""
    if family(bound.type) not in ("timestamp", "date", "string", "null"):
        raise mismatch(name, bound.type)
    return cast(bound, DATE)


def _shifted(sign: int) -> Callable[[pa.DataType, dt.date, int], dt.date | None]:
    def naive(of: pa.DataType, day: dt.date, count: int) -> dt.date | None:
        found = (day - EPOCH).days + sign * count
        return EPOCH + dt.timedelta(found) if FIRST <= found <= LAST else None

    return naive


def _shift(sign: int) -> Callable[[Call], Vector]:
    """Days as numbers; a count so large that it could overflow counts as out of range."""

    def run(days: Any, counts: Any) -> pa.Array:
        (day, known), (count, given) = arrow.operand(_days(days)), arrow.operand(counts)
        step = np.clip(count.astype(np.int64), -(2**40), 2**40)
        found = np.asarray(day.astype(np.int64) + sign * step)
        valid = np.broadcast_to(known & given, found.shape) & (found >= FIRST) & (found <= LAST)
        return _dates(arrow.from_numpy(pa.int32(), np.where(valid, found, 0).astype(np.int32), valid))

    return lambda call: run


def _between(call: Call) -> Vector:
    minus = arrow.function("subtract")
    return lambda end, start: minus(_days(end), _days(start))


def _field(name: str, naive: Callable[[dt.date], int], arrow_name: str, options: Any = None) -> FunctionRule:
    """A number that belongs to a day."""

    def lower(call: Call) -> Vector:
        extract = arrow.function(arrow_name, options)
        return lambda days: _int32(extract(days))

    kernel = Kernel(name, lambda of, day: naive(day), lower)
    return FunctionRule(name, takes(any_date, gives=pa.int32()), kernel)


def _last_day(of: pa.DataType, day: dt.date) -> dt.date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def _month_end(call: Call) -> Vector:
    def run(days: pa.Array) -> pa.Array:
        day, valid = arrow.operand(_days(days))
        valid = np.broadcast_to(valid, day.shape)
        months = np.where(valid, day, 0).astype("M8[D]").astype("M8[M]")
        last = (months + 1).astype("M8[D]").astype(np.int64) - 1
        return _dates(arrow.from_numpy(pa.int32(), last.astype(np.int32), valid))

    return run


def _add_months(of: pa.DataType, day: dt.date, count: int) -> dt.date | None:
    """The same day in another month, or its last day if the month is shorter."""
    year, month = divmod(day.year * 12 + day.month - 1 + count, 12)
    if not dt.MINYEAR <= year <= dt.MAXYEAR:
        return None
    return dt.date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def to_timestamp(value: Bound) -> Bound:
    """An instant; a string that is not one is NULL."""
    if family(value.type) not in ("timestamp", "date", "string", "null"):
        raise mismatch("to_timestamp", value.type)
    return cast(value, INSTANT)


ROWS: Final[tuple[Rule, ...]] = (
    FunctionRule(
        "date_add", takes(any_date, WHOLE, gives=DATE), Kernel("date_add", _shifted(1), _shift(1)), 2, 2
    ),
    FunctionRule(
        "date_sub", takes(any_date, WHOLE, gives=DATE), Kernel("date_sub", _shifted(-1), _shift(-1)), 2, 2
    ),
    FunctionRule(
        "datediff",
        takes(any_date, gives=pa.int32()),
        Kernel("datediff", lambda of, end, start: (end - start).days, _between),
        2,
        2,
    ),
    _field(
        "dayofweek",
        lambda day: day.isoweekday() % 7 + 1,
        "day_of_week",
        pc.DayOfWeekOptions(count_from_zero=False, week_start=7),
    ),
    _field("weekday", dt.date.weekday, "day_of_week", pc.DayOfWeekOptions()),
    _field("dayofyear", lambda day: day.timetuple().tm_yday, "day_of_year"),
    _field("weekofyear", lambda day: day.isocalendar().week, "iso_week"),
    _field("quarter", lambda day: (day.month + 2) // 3, "quarter"),
    FunctionRule("last_day", takes(any_date), Kernel("last_day", _last_day, _month_end)),
    FunctionRule("add_months", takes(any_date, WHOLE, gives=DATE), Kernel("add_months", _add_months), 2, 2),
)
