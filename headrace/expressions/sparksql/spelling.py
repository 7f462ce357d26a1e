"""Names, types and constants in Spark's SQL, independent of the session's settings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headrace.expressions.bound import Bound, Call, Constant
from headrace.expressions.casts.temporal import micros
from headrace.expressions.types import family, sql_name

Translation = Callable[..., str | None]
"""From a call and its arguments as text to the text of the call; None if Spark has no equivalent."""

EPOCH: Final = dt.date(1970, 1, 1)
WALL_EPOCH: Final = "timestamp_ntz'1970-01-01 00:00:00'"
PLAIN: Final = frozenset(map(chr, range(32, 127))) - set("'\\")


def quoted(name: str) -> str:
    """A column name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def type_name(of: pa.DataType) -> str:
    """The Spark name of a type; a timestamp with any zone is an instant in Spark."""
    if family(of) != "timestamp":
        return sql_name(of)
    return "timestamp" if of.tz else "timestamp_ntz"


def stamped(ticks: str, of: pa.DataType) -> str:
    """The timestamp of this many microseconds, of the kind of `of`, in any session time zone."""
    return f"timestamp_micros({ticks})" if of.tz else f"timestampadd(MICROSECOND, {ticks}, {WALL_EPOCH})"


def long(value: int) -> str:
    """A bigint literal; a minus sign is not part of a literal."""
    return f"CAST('{value}' AS bigint)" if value < 0 else f"{value}L"


def _string(value: str, of: pa.DataType) -> str:
    """A string as bytes: the meaning of backslashes depends on a session setting."""
    plain = PLAIN.issuperset(value)
    return f"'{value}'" if plain else f"CAST(X'{value.encode().hex()}' AS string)"


def _float(value: float, of: pa.DataType) -> str:
    double = f"CAST('{value!r}' AS double)"
    return double if of == pa.float64() else f"CAST({double} AS float)"


SPELLED: Final[dict[str, Callable[[Any, pa.DataType], str]]] = {
    "boolean": lambda value, of: "true" if value else "false",
    "integer": lambda value, of: f"CAST('{value}' AS {type_name(of)})",
    "float": _float,
    "decimal": lambda value, of: f"CAST('{Decimal(value):f}' AS {type_name(of)})",
    "string": _string,
    "date": lambda value, of: f"date_from_unix_date({(value - EPOCH).days})",
    "timestamp": lambda value, of: stamped(long(micros(value)), of),
}


def literal(value: Any, of: pa.DataType) -> str | None:
    """A constant; Spark folds the casts around it."""
    spell = SPELLED.get(family(of))
    if spell is None:
        return None
    return f"CAST(NULL AS {type_name(of)})" if value is None else spell(value, of)


def in_utc(of: pa.DataType) -> bool:
    """Whether the wall clock of a time is in UTC."""
    return family(of) == "timestamp" and of.tz in (None, "UTC")


def constants(call: Call) -> list[Any] | None:
    """The arguments after the first, if they are all constants."""
    rest = call.args[1:]
    return [each.value for each in rest if isinstance(each, Constant)] if all(map(_known, rest)) else None


def _known(bound: Bound) -> bool:
    return isinstance(bound, Constant)


def floor_divided(number: str, by: int) -> str:
    """Integer division rounded down; Spark's rounds towards zero."""
    return f"(({number} - pmod({number}, {by}L)) DIV {by}L)"


def where(condition: str, value: str) -> str:
    """The value, or NULL where the condition is not true."""
    return f"CASE WHEN {condition} THEN {value} END"
