"""Parts of structs, arrays and maps, and the functions that build them.

A part that does not exist is NULL, where Spark 4 would stop. Elements of an array are counted from 0 in
`a[i]` and from 1, or from the end, in `element_at(a, i)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError
from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Constant, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type, to_common
from headrace.expressions.comparison import rank
from headrace.expressions.functions.rule import WHOLE, Rewrite
from headrace.expressions.scope import Rule, nearest
from headrace.expressions.types import family, mismatch

COMPARED: Final = frozenset({"boolean", "integer", "string", "date", "timestamp", "decimal"})
"""The families whose equality is Arrow's. NaN equals NaN here, but not in Arrow."""


# --- parts


def field(value: Bound, name: str) -> Bound:
    """The field of a struct, by its name; case matters only if it decides between two fields."""
    struct = in_canonical_type(value)
    if pa.types.is_null(struct.type):
        return struct
    if not pa.types.is_struct(struct.type):
        raise mismatch(f"the field {name!r}", value.type, hint="only a struct has fields; m['k'] reads a map")
    names = [each.name for each in struct.type]
    known = [i for i, each in enumerate(names) if each.lower() == name.lower()]
    known = [i for i in known if names[i] == name] or known
    if len(known) != 1:
        hint = nearest(name, names, f"fields: {', '.join(names)}") if not known else "rename one of them"
        what = "does not exist" if not known else "is ambiguous"
        raise ExpressionError("HR-E001", f"the field {name!r} {what}", hint=hint)
    at = known[0]
    get = arrow.function("struct_field", pc.StructFieldOptions([at]))
    kernel = Kernel("field", lambda of, row: row[names[at]], lambda call: get, given=names[at])
    return call(kernel, (struct,), struct.type.field(at).type)


def item(value: Bound, key: Bound) -> Bound:
    """`a[i]`, counted from 0, or `m['k']`."""
    return _part("[…]", value, key, ITEM)


def _element_at(value: Bound, key: Bound) -> Bound:
    """`element_at(a, i)`, counted from 1, or from the end if i is negative; `element_at(m, k)`."""
    return _part("element_at", value, key, ELEMENT)


def _part(name: str, value: Bound, key: Bound, kernel: Kernel) -> Bound:
    """The element of an array or map."""
    value, key = in_canonical_type(value), in_canonical_type(key)
    if pa.types.is_null(value.type):
        return value
    if pa.types.is_list(value.type):
        return call(kernel, (value, WHOLE(name, key)), value.type.value_type)
    if pa.types.is_map(value.type):
        return call(VALUE, (value, _key(name, value, key)), value.type.item_type)
    hint = "write s.name for a field of a struct" if pa.types.is_struct(value.type) else ""
    raise mismatch(name, value.type, key.type, hint=hint)


def _key(name: str, value: Bound, key: Bound) -> Bound:
    """A key in the type of the map's keys."""
    of = value.type.key_type
    if family(key.type) not in (family(of), "null") and not (family(of) == "float"):
        raise mismatch(name, value.type, key.type)
    return cast(key, of)


def _from_zero(index: Any, length: Any) -> Any:
    return index


def _from_one(index: Any, length: Any) -> Any:
    """0 is no element: it becomes −1."""
    return np.where(index < 0, np.where(index + length < 0, -1, index + length), index - 1)


def _picked(place: Callable[[Any, Any], Any]) -> Kernel:
    """A kernel that takes one element of each array."""

    def naive(of: pa.DataType, row: list[Any], index: int) -> Any:
        at = int(place(index, len(row)))
        return row[at] if 0 <= at < len(row) else None

    def lower(call: Call) -> Vector:
        def run(lists: Datum, index: Datum) -> pa.Array:
            lists, index = columns(lists, index)
            begin, length = spans(lists)
            at = np.asarray(place(arrow.values(index), length))
            inside = (at >= 0) & (at < length) & arrow.validity(index)
            return taken(lists.values, begin + at, inside)

        return run

    return Kernel("element", naive, lower)


def _value_of(of: pa.DataType, row: list[tuple[Any, Any]], key: Any) -> Any:
    return next((value for each, value in row if rank(each) == rank(key)), None)


def _valued(call: Call) -> Vector:
    """The value of each map under a key: all keys are compared at once."""
    if family(call.args[0].type.key_type) not in COMPARED:
        return arrow.rowwise(call)
    equal = arrow.function("equal")

    def run(maps: Datum, key: Datum) -> pa.Array:
        maps, key = columns(maps, key)
        begin, length = spans(maps)
        rows = np.repeat(np.arange(len(maps)), length)
        places = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length) + begin[rows]
        hit = arrow.truth(equal(maps.keys.take(pa.array(places)), key.take(pa.array(rows))))
        at = np.full(len(maps), -1, np.int64)
        at[rows[hit][::-1]] = places[hit][::-1]
        return taken(maps.items, at, at >= 0)

    return run


ITEM: Final = _picked(_from_zero)
ELEMENT: Final = _picked(_from_one)
VALUE: Final = Kernel("value", _value_of, _valued)


# --- constructors


def _array(*values: Bound) -> Bound:
    """`array(x, y, …)` of the common type."""
    elements, of = to_common("array", *map(in_canonical_type, values))
    return call(ARRAY, elements, pa.list_(of))


def _listed(call: Call) -> Vector:
    width = len(call.args)

    def run(*given: Datum) -> pa.Array:
        parts = columns(*given)
        rows = len(parts[0])
        return pa.ListArray.from_arrays(_offsets(rows, width), interleaved(parts))

    return run


def _map(*pairs: Bound) -> Bound:
    """`map(k, v, k, v, …)`; NULL if a key is NULL or there twice, where Spark stops."""
    if len(pairs) % 2:
        raise ExpressionError(
            "HR-E003", "map takes keys and values in turn", hint="write map('a', 1, 'b', 2)"
        )
    keys, key = to_common("map", *map(in_canonical_type, pairs[::2]))
    values, value = to_common("map", *map(in_canonical_type, pairs[1::2]))
    if family(key) == "other":
        raise mismatch("map", key)
    if any(isinstance(each, Constant) and each.value is None for each in keys):
        return Constant(None, pa.map_(pa.string() if pa.types.is_null(key) else key, value))
    arguments = tuple(each for pair in zip(keys, values, strict=True) for each in pair)
    return call(MAP, arguments, pa.map_(key, value))


def _naive_map(of: pa.DataType, *pairs: Any) -> list[tuple[Any, Any]] | None:
    keys = [None if key is None else rank(key) for key in pairs[::2]]
    if None in keys or len(set(keys)) < len(keys):
        return None
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def _mapped(call: Call) -> Vector:
    """Maps without a repeated or missing key are built at once; others row by row."""
    careful, width, of = arrow.rowwise(call), len(call.args) // 2, call.type
    equal = arrow.function("equal")

    def run(*given: Datum) -> pa.Array:
        parts = columns(*given)
        keys, values = parts[::2], parts[1::2]
        odd = any(each.null_count for each in keys) or family(of.key_type) not in COMPARED
        if odd or any(arrow.truth(equal(*pair)).any() for pair in combinations(keys, 2)):
            return careful(*parts)
        offsets = _offsets(len(parts[0]), width)
        return pa.MapArray.from_arrays(offsets, interleaved(keys), interleaved(values)).cast(of)

    return run


def _named_struct(*pairs: Bound) -> Bound:
    """`named_struct('a', x, 'b', y)`: never NULL itself."""
    names = [each.value if isinstance(each, Constant) else None for each in pairs[::2]]
    if len(pairs) % 2 or not all(isinstance(each, str) for each in names):
        hint = "write named_struct('a', 1, 'b', 2)"
        raise ExpressionError("HR-E003", "named_struct takes constant names and values in turn", hint=hint)
    return struct([str(each) for each in names], pairs[1::2])


def struct(names: Sequence[str], values: Sequence[Bound]) -> Bound:
    """A struct of values under names, which must differ."""
    if len({each.lower() for each in names}) < len(names):
        raise ExpressionError("HR-E003", "two fields of a struct have the same name", hint="rename one")
    parts = tuple(map(in_canonical_type, values))
    of = pa.struct([pa.field(name, each.type) for name, each in zip(names, parts, strict=True)])

    def naive(of: pa.DataType, *row: Any) -> dict[str, Any]:
        return dict(zip(names, row, strict=True))

    def lower(call: Call) -> Vector:
        return lambda *given: pa.StructArray.from_arrays(columns(*given), fields=list(call.type))

    return call(Kernel("struct", naive, lower, strict=False, given=tuple(names)), parts, of)


ARRAY: Final = Kernel("array", lambda of, *row: list(row), _listed, strict=False)
MAP: Final = Kernel("map", _naive_map, _mapped, strict=False)


# --- arrays of arrays


def columns(*data: Datum) -> list[pa.Array]:
    """All data as arrays of one length."""
    rows = next(len(each) for each in data if isinstance(each, pa.Array))
    return [pa.repeat(each, rows) if isinstance(each, pa.Scalar) else each for each in data]


def spans(lists: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Where the elements of each row begin among all elements, and how many there are; none for NULL."""
    offsets = np.asarray(lists.offsets, np.int64)
    length = np.diff(offsets)
    if lists.null_count:
        length = np.where(arrow.validity(lists), length, 0)
    return offsets[:-1], length


def taken(values: pa.Array, at: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> pa.Array:
    """The values at some places, NULL where not `known`."""
    if not known.any():
        return pa.nulls(len(at), values.type)
    return values.take(pa.array(np.where(known, at, 0), mask=~known))


def interleaved(parts: Sequence[pa.Array]) -> pa.Array:
    """The first value of each part, then the second of each, and so on."""
    rows = len(parts[0])
    return pa.concat_arrays(parts).take(
        pa.array(np.arange(rows * len(parts)).reshape(len(parts), rows).T.ravel())
    )


def _offsets(rows: int, width: int) -> pa.Array:
    return pa.array(np.arange(0, rows * width + 1, max(width, 1))[: rows + 1], pa.int32())


ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("element_at", _element_at, 2, 2),
    Rewrite("array", _array, 1, None),
    Rewrite("map", _map, 2, None),
    Rewrite("named_struct", _named_struct, 2, None),
)
