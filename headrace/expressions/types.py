"""The SQL types, as Arrow types, and the common type of two of them.

Families: null, boolean, integer, float, decimal, string, date, timestamp; anything else (arrays, maps,
structs, bytes) is `other`: it can be passed on, tested for null, chosen between, and taken apart by functions
of its kind. Laws of `common_type`: commutative, idempotent, null is its unit. Where Spark's legacy and ANSI
rules differ, the lossless one is used (the common type of integer and float32 is float64).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Final

import pyarrow as pa

from headrace.errors import ExpressionError

MAX_PRECISION: Final = 38
MICROS: Final = pa.timestamp("us")
"""TIMESTAMP_NTZ: a wall-clock time."""
INSTANT: Final = pa.timestamp("us", "UTC")
"""TIMESTAMP: an instant. Its fields (hour, day, …) are those in UTC, in both runtimes and in any session."""

NAMES: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "void": pa.null(),
    "bool": pa.bool_(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "tinyint": pa.int8(),
    "int8": pa.int8(),
    "short": pa.int16(),
    "smallint": pa.int16(),
    "int16": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "int32": pa.int32(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "decimal": pa.decimal128(10, 0),
    "string": pa.string(),
    "varchar": pa.string(),
    "date": pa.date32(),
    "date32": pa.date32(),
    "timestamp": INSTANT,
    "timestamp_ltz": INSTANT,
    "timestamp_ntz": MICROS,
}

SQL_NAMES: Final[dict[pa.DataType, str]] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.date32(): "date",
    MICROS: "timestamp_ntz",
    INSTANT: "timestamp",
}

INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FAMILIES: Final[tuple[tuple[str, Callable[[pa.DataType], bool]], ...]] = (
    ("null", pa.types.is_null),
    ("boolean", pa.types.is_boolean),
    ("integer", pa.types.is_signed_integer),
    ("float", pa.types.is_floating),
    ("decimal", pa.types.is_decimal128),
    ("string", pa.types.is_string),
    ("date", pa.types.is_date32),
    ("timestamp", pa.types.is_timestamp),
)
NUMERIC: Final = frozenset({"integer", "float", "decimal"})
INTEGER_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
CANONICAL: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.date64(): pa.date32(),
}
LISTS: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)
_DECIMAL: Final = re.compile(r"(?:decimal|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)", re.IGNORECASE)
_NESTED: Final = re.compile(r"(array|map|struct)\s*<(.*)>", re.IGNORECASE | re.DOTALL)
_FIELD: Final = re.compile(r"(?:`([^`]+)`|(\w+))\s*(?::|\s)\s*(.+)", re.DOTALL)


def family(of: pa.DataType) -> str:
    """The name of the family that `of` belongs to."""
    return next((name for name, holds in FAMILIES if holds(of)), "other")


def is_numeric(of: pa.DataType) -> bool:
    return family(of) in NUMERIC


def canonical(of: pa.DataType) -> pa.DataType:
    """The type that a column of type `of` is computed in: signed, microseconds, plain strings."""
    if pa.types.is_timestamp(of):
        return pa.timestamp("us", of.tz)
    if pa.types.is_dictionary(of):
        return canonical(of.value_type)
    if is_list(of):
        return pa.list_(canonical(of.value_type))
    if pa.types.is_map(of):
        return pa.map_(canonical(of.key_type), canonical(of.item_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(each.name, canonical(each.type)) for each in of])
    return CANONICAL.get(of, of)


def is_list(of: pa.DataType) -> bool:
    """Whether values are arrays, in any of Arrow's layouts."""
    return any(holds(of) for holds in LISTS)


def type_named(name: str) -> pa.DataType:
    """The type with this SQL name: `double`, `decimal(10,2)`, `int64`, …"""
    found = _DECIMAL.fullmatch(name.strip())
    if found:
        return pa.decimal128(int(found[1]), int(found[2] or 0))
    nested = _NESTED.fullmatch(name.strip())
    if nested:
        return _nested(nested[1].lower(), split_types(nested[2]), name)
    known = NAMES.get(name.strip().lower())
    if known is None:
        names = ", ".join(sorted(NAMES))
        raise ExpressionError("HR-E006", f"the type {name!r} does not exist", hint=f"types: {names}")
    return known


def _nested(kind: str, parts: list[str], name: str) -> pa.DataType:
    """An array, map or struct of the named types."""
    if kind == "array" and len(parts) == 1:
        return pa.list_(type_named(parts[0]))
    if kind == "map" and len(parts) == 2:
        return pa.map_(*map(type_named, parts))
    if kind == "struct":
        return struct_named(parts, name)
    hint = "write array<int>, map<string, int> or struct<a: int, b: string>"
    raise ExpressionError("HR-E006", f"the type {name!r} is not complete", hint=hint)


def struct_named(fields: list[str], name: str) -> pa.DataType:
    """The struct of some `name: type` or `name type`."""
    found = [_FIELD.fullmatch(each.strip()) for each in fields]
    if not all(found):
        raise ExpressionError("HR-E006", f"{name!r} is not a list of fields", hint="write a INT, b STRING")
    return pa.struct([pa.field(each[1] or each[2], type_named(each[3])) for each in found if each])


def split_types(text: str) -> list[str]:
    """The parts between commas that are not inside brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [each for each in parts if each.strip()]


def sql_name(of: pa.DataType) -> str:
    """The SQL name of a type."""
    if pa.types.is_decimal128(of):
        return f"decimal({of.precision},{of.scale})"
    if is_list(of):
        return f"array<{sql_name(of.value_type)}>"
    if pa.types.is_map(of):
        return f"map<{sql_name(of.key_type)}, {sql_name(of.item_type)}>"
    if pa.types.is_struct(of):
        return f"struct<{', '.join(f'{each.name}: {sql_name(each.type)}' for each in of)}>"
    return SQL_NAMES.get(of, str(of))


def mismatch(what: str, *types: pa.DataType, hint: str = "") -> ExpressionError:
    """The error for an operation that does not support `types`; the node adds its place."""
    shown = ", ".join(sql_name(each) for each in types)
    message = f"{what} is not defined for ({shown})"
    return ExpressionError("HR-E004", message, hint=hint or "write an explicit CAST")


def as_decimal(of: pa.DataType) -> pa.DataType:
    """The decimal type that holds every value of an integer or decimal type."""
    return of if pa.types.is_decimal(of) else pa.decimal128(INTEGER_DIGITS[of], 0)


def _integers(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return max(left, right, key=lambda each: each.bit_width)


def _floats(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return pa.float32() if left == right == pa.float32() else pa.float64()


def _decimals(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """If not all digits fit, digits before the point take precedence."""
    left, right = as_decimal(left), as_decimal(right)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    scale = max(0, min(max(left.scale, right.scale), MAX_PRECISION - whole))
    return pa.decimal128(min(MAX_PRECISION, whole + scale), scale)


def _timestamps(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", left.tz if left.tz == right.tz else "UTC")


def _right(_: pa.DataType, right: pa.DataType) -> pa.DataType:
    return right


MEETS: Final[dict[tuple[str, str], Callable[[pa.DataType, pa.DataType], pa.DataType]]] = {
    ("integer", "integer"): _integers,
    ("float", "integer"): lambda left, right: pa.float64(),
    ("float", "float"): _floats,
    ("decimal", "integer"): _decimals,
    ("decimal", "decimal"): _decimals,
    ("decimal", "float"): lambda left, right: pa.float64(),
    ("date", "timestamp"): _right,
    ("timestamp", "timestamp"): _timestamps,
}


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both; None if SQL requires a CAST."""
    left, right = sorted((canonical(left), canonical(right)), key=family)
    if pa.types.is_null(left) or left == right:
        return right
    if pa.types.is_null(right):
        return left
    meet = MEETS.get((family(left), family(right)))
    return meet(left, right) if meet else None


def common_of(what: str, types: Iterable[pa.DataType]) -> pa.DataType:
    """The common type of all; an error that names `what` if there is none."""
    types = list(types)

    def meet(left: pa.DataType, right: pa.DataType) -> pa.DataType:
        found = common_type(left, right)
        if found is None:
            raise mismatch(what, *types)
        return found

    return reduce(meet, types, pa.null())


def widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `given` is also a value of `wanted`, so that no CAST is needed."""
    return bool(given == wanted or common_type(canonical(given), wanted) == wanted)
