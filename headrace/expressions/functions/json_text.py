"""JSON in a text column: one value by its path, or the whole text as a struct, array or map.

A text that is not JSON, or that has no such part, is NULL. So is a value of another type than the one asked
for, in its own place only: the other fields keep their values.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from headrace.errors import ExpressionError
from headrace.expressions.bound import Bound, Constant, Kernel, call
from headrace.expressions.casts import in_canonical_type
from headrace.expressions.functions.rule import TEXT, Rewrite
from headrace.expressions.literals import as_float, as_scaled, in_range
from headrace.expressions.scope import Rule
from headrace.expressions.types import family, is_list, mismatch, split_types, struct_named, type_named

Step = str | int
_STEP: Final = re.compile(r"\.([^.\[\]'\"]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
MISSING: Final = object()


class Number(str):
    """A number with a fraction or an exponent, as it was written."""


@lru_cache(maxsize=1024)
def steps(path: str) -> tuple[Step, ...] | None:
    """The steps of `$.a[0]['b']`; None if it is not such a path."""
    if not path.startswith("$"):
        return None
    at, found = 1, []
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        name = next((each for each in (step[1], step[3], step[4]) if each is not None), None)
        found.append(int(step[2]) if name is None else name)
        at = step.end()
    return tuple(found)


def parsed(text: str) -> Any:
    """The value of a JSON text; `MISSING` if it is not JSON."""
    try:
        return json.loads(text, parse_float=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return MISSING


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _written(value: Any) -> str:
    """A part of a JSON text as a text: strings as they are, all else as compact JSON."""
    if isinstance(value, str):
        return str(value)
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """The value with numbers as floats, which `json` can write."""
    if isinstance(value, Number):
        return float(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {key: _plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def _get(of: pa.DataType, text: str, path: str) -> str | None:
    wanted = steps(path)
    value = MISSING if wanted is None else parsed(text)
    for step in wanted or ():
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return None if value is MISSING or value is None else _written(value)


def _get_json_object(text: Bound, path: Bound) -> Bound:
    path = TEXT("get_json_object", path)
    if isinstance(path, Constant) and path.value is not None and steps(path.value) is None:
        hint = "write a path such as '$.order.items[0].name'"
        raise ExpressionError("HR-E012", f"{path.value!r} is not a JSON path", hint=hint)
    return call(GET, (TEXT("get_json_object", text), path), pa.string())


# --- from_json


def _from_json(text: Bound, schema: Bound) -> Bound:
    """The text as a value of the type that a constant names, as in `'a INT, b ARRAY<STRING>'`."""
    if not isinstance(schema, Constant) or not isinstance(schema.value, str):
        hint = "write from_json(x, 'a INT, b ARRAY<STRING>')"
        raise ExpressionError("HR-E012", "the schema of from_json must be a constant text", hint=hint)
    of = _schema(schema.value)
    if not (pa.types.is_struct(of) or pa.types.is_map(of) or is_list(of)):
        raise mismatch("from_json", of, hint="write a list of fields, ARRAY<…> or MAP<STRING, …>")
    kernel = Kernel("from_json", lambda of, text: _fitted(of, parsed(text)), given=str(of))
    return call(kernel, (TEXT("from_json", text),), of)


def _schema(text: str) -> pa.DataType:
    """The type that a schema text names: a list of fields, or one type."""
    if re.match(r"\s*(array|map|struct)\s*<", text, re.IGNORECASE):
        return type_named(text)
    return struct_named(split_types(text), text)


def _fitted(of: pa.DataType, value: Any) -> Any:
    """The JSON value as a value of the type; None if it is another kind of value."""
    if value is None or value is MISSING:
        return None
    if pa.types.is_struct(of):
        return (
            {each.name: _fitted(each.type, value.get(each.name)) for each in of}
            if _is_object(value)
            else None
        )
    if pa.types.is_map(of):
        return (
            [(key, _fitted(of.item_type, each)) for key, each in value.items()] if _is_object(value) else None
        )
    if is_list(of):
        return [_fitted(of.value_type, each) for each in value] if isinstance(value, list) else None
    return FITS[family(of)](of, value) if family(of) in FITS else None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _fit_boolean(of: pa.DataType, value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _fit_integer(of: pa.DataType, value: Any) -> int | None:
    return in_range(of, value) if isinstance(value, int) and not isinstance(value, bool) else None


def _fit_float(of: pa.DataType, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, Number)):
        return None
    try:
        found = as_float(of, float(value))
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def _fit_decimal(of: pa.DataType, value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Number)):
        return None
    try:
        return as_scaled(of, Decimal(value))
    except InvalidOperation:
        return None


def _fit_text(of: pa.DataType, value: Any) -> str:
    return _written(value)


def _fit_date(of: pa.DataType, value: Any) -> dt.date | None:
    try:
        return dt.date.fromisoformat(value) if type(value) is str else None
    except ValueError:
        return None


def _fit_timestamp(of: pa.DataType, value: Any) -> dt.datetime | None:
    try:
        found = dt.datetime.fromisoformat(value) if type(value) is str else None
    except ValueError:
        return None
    if found is None:
        return None
    if of.tz is None:
        return found.replace(tzinfo=None)
    return found.astimezone(dt.UTC) if found.tzinfo else found.replace(tzinfo=dt.UTC)


FITS: Final[dict[str, Callable[[pa.DataType, Any], Any]]] = {
    "boolean": _fit_boolean,
    "integer": _fit_integer,
    "float": _fit_float,
    "decimal": _fit_decimal,
    "string": _fit_text,
    "date": _fit_date,
    "timestamp": _fit_timestamp,
}


# --- to_json


def _to_json(value: Bound) -> Bound:
    """A struct, array or map as JSON; fields that are NULL are left out, as in Spark."""
    value = in_canonical_type(value)
    of = value.type
    if not (pa.types.is_struct(of) or pa.types.is_map(of) or pa.types.is_list(of) or pa.types.is_null(of)):
        raise mismatch("to_json", of, hint="write to_json(named_struct('a', x))")
    shown = of
    kernel = Kernel(
        "to_json", lambda of, row: json.dumps(_shown(shown, row), ensure_ascii=False, separators=(",", ":"))
    )
    return call(kernel, (value,), pa.string())


def _shown(of: pa.DataType, value: Any) -> Any:
    """A value as `json` writes it."""
    if value is None:
        return None
    if pa.types.is_struct(of):
        known = ((each, value[each.name]) for each in of)
        return {each.name: _shown(each.type, part) for each, part in known if part is not None}
    if pa.types.is_map(of):
        return {_key(key): _shown(of.item_type, each) for key, each in value}
    if pa.types.is_list(of):
        return [_shown(of.value_type, each) for each in value]
    return SHOWN.get(family(of), lambda each: each)(value)


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def _show_float(value: float) -> float | str:
    return value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")


def _show_timestamp(value: dt.datetime) -> str:
    text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
    return text.replace("+00:00", "Z")


SHOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "float": _show_float,
    "decimal": float,
    "date": dt.date.isoformat,
    "timestamp": _show_timestamp,
    "other": str,
}

GET: Final = Kernel("get_json_object", _get)

ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("get_json_object", _get_json_object, 2, 2),
    Rewrite("from_json", _from_json, 2, 2),
    Rewrite("to_json", _to_json, 1, 1),
)
