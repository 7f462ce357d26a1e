"""Functions over whole arrays and maps: their size, what they contain, their least and greatest element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.expressions import arrow
from headrace.expressions.bound import Bound, Call, Datum, Kernel, Vector, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.comparison import rank
from headrace.expressions.functions.nested import COMPARED, columns, spans, taken
from headrace.expressions.functions.rule import TEXT, Rewrite
from headrace.expressions.scope import Rule
from headrace.expressions.types import common_type, family, mismatch


def _size(value: Bound) -> Bound:
    """How many elements; NULL for NULL."""
    value = in_canonical_type(value)
    if not (pa.types.is_list(value.type) or pa.types.is_map(value.type) or pa.types.is_null(value.type)):
        raise mismatch("size", value.type)
    return call(SIZE, (value,), pa.int32())


def _counted(call: Call) -> Vector:
    def run(lists: pa.Array) -> pa.Array:
        _, length = spans(lists)
        return arrow.from_numpy(pa.int32(), length.astype(np.int32), arrow.validity(lists))

    return run


def _contains(lists: Bound, value: Bound) -> Bound:
    """NULL if the value is not among the elements, but one of them is NULL."""
    return call(CONTAINS, _searched("array_contains", lists, value), pa.bool_())


def _position(lists: Bound, value: Bound) -> Bound:
    """Where the value is first, counted from 1; 0 if it is not there."""
    return call(POSITION, _searched("array_position", lists, value), pa.int64())


def _searched(name: str, lists: Bound, value: Bound) -> tuple[Bound, ...]:
    """An array and a value of the type of its elements."""
    lists, value = in_canonical_type(lists), in_canonical_type(value)
    if not pa.types.is_list(lists.type):
        raise mismatch(name, lists.type, value.type)
    of = common_type(lists.type.value_type, value.type)
    if of != lists.type.value_type or family(of) == "other":
        raise mismatch(name, lists.type, value.type)
    return lists, cast(value, of)


def _has(of: pa.DataType, row: list[Any], value: Any) -> bool | None:
    if any(each is not None and rank(each) == rank(value) for each in row):
        return True
    return None if None in row else False


def _place(of: pa.DataType, row: list[Any], value: Any) -> int:
    same = (i for i, each in enumerate(row, 1) if each is not None and rank(each) == rank(value))
    return next(same, 0)


def _search(finish: Callable[[Any, Any, Any, Any], pa.Array]) -> Callable[[Call], Vector]:
    """Compare all elements at once; `finish` gets the arrays, where each hit is, which are hits and NULLs."""

    def lower(call: Call) -> Vector:
        if family(call.args[1].type) not in COMPARED:
            return arrow.rowwise(call)
        equal = arrow.function("equal")

        def run(lists: Datum, value: Datum) -> pa.Array:
            lists, value = columns(lists, value)
            begin, length = spans(lists)
            rows = np.repeat(np.arange(len(lists)), length)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
            elements = lists.values.take(pa.array(nth + begin[rows]))
            hit = arrow.truth(equal(elements, value.take(pa.array(rows))))
            first = np.zeros(len(lists), np.int64)
            first[rows[hit][::-1]] = nth[hit][::-1] + 1
            unknown = np.zeros(len(lists), np.bool_)
            unknown[rows[~arrow.validity(elements)]] = True
            return finish(first, unknown, arrow.validity(lists) & arrow.validity(value), len(lists))

        return run

    return lower


def _found(first: Any, unknown: Any, valid: Any, rows: int) -> pa.Array:
    return pa.array(first > 0, mask=~(valid & ((first > 0) | ~unknown)))


def _placed(first: Any, unknown: Any, valid: Any, rows: int) -> pa.Array:
    return arrow.from_numpy(pa.int64(), first, valid)


def _extreme(name: str, choose: Callable[..., Any], least: np.ufunc) -> Rule:
    """The least or greatest element that is not NULL."""

    def naive(of: pa.DataType, row: list[Any]) -> Any:
        return choose((each for each in row if each is not None), key=rank, default=None)

    def lower(call: Call) -> Vector:
        return _reduced(least, call.type) if family(call.type) in VIEWED else arrow.rowwise(call)

    kernel = Kernel(name, naive, lower)

    def rewrite(lists: Bound) -> Bound:
        lists = in_canonical_type(lists)
        if not pa.types.is_list(lists.type) or family(lists.type.value_type) == "other":
            raise mismatch(name, lists.type)
        return call(kernel, (lists,), lists.type.value_type)

    return Rewrite(name, rewrite, 1, 1)


def _reduced(least: np.ufunc, of: pa.DataType) -> Vector:
    """NumPy's reduction over the elements of each array."""

    def run(lists: pa.Array) -> pa.Array:
        begin, length = spans(lists)
        rows = np.repeat(np.arange(len(lists)), length)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
        elements = lists.values.take(pa.array(nth + begin[rows]))
        known = arrow.validity(elements)
        rows, values = rows[known], arrow.values(elements)[known]
        found = np.zeros(len(lists), values.dtype)
        there = np.bincount(rows, minlength=len(lists)) > 0
        if len(rows):
            found[there] = least.reduceat(values, np.flatnonzero(np.diff(rows, prepend=-1)))
        return arrow.from_numpy(of, found, there)

    return run


def _join(lists: Bound, *rest: Bound) -> Bound:
    """The texts with a delimiter between them; a NULL is left out, or written as the third argument."""
    lists = in_canonical_type(lists)
    if not pa.types.is_list(lists.type) or family(lists.type.value_type) not in ("string", "null"):
        raise mismatch("array_join", lists.type, hint="cast the elements to STRING when the array is built")
    return call(JOIN, (lists, *(TEXT("array_join", each) for each in rest)), pa.string())


def _joined(of: pa.DataType, row: list[str | None], delimiter: str, missing: str | None = None) -> str:
    return delimiter.join(each for each in (missing if e is None else e for e in row) if each is not None)


def _joining(call: Call) -> Vector:
    """Arrow's join, unless a text is NULL."""
    join, careful = arrow.function("binary_join"), arrow.rowwise(call)

    def run(lists: Datum, delimiter: Datum, *missing: Datum) -> pa.Array:
        plain = isinstance(lists, pa.Array) and pa.types.is_string(lists.type.value_type)
        if not plain or lists.values.null_count or missing:
            return careful(lists, delimiter, *missing)
        return join(lists, delimiter)

    return run


def _side(name: str, part: Callable[[pa.DataType], pa.DataType], pick: int) -> Rule:
    """The keys or the values of a map, as an array."""

    def lower(call: Call) -> Vector:
        def run(maps: pa.Array) -> pa.Array:
            begin, length = spans(maps)
            rows = np.repeat(np.arange(len(maps)), length)
            nth = np.arange(len(rows)) - np.repeat(np.cumsum(length) - length, length)
            held = taken(maps.items if pick else maps.keys, nth + begin[rows], np.ones(len(rows), np.bool_))
            offsets = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
            mask = None if not maps.null_count else pa.array(~arrow.validity(maps))
            return pa.ListArray.from_arrays(pa.array(offsets), held, call.type, mask=mask)

        return run

    kernel = Kernel(name, lambda of, row: [pair[pick] for pair in row], lower)

    def rewrite(maps: Bound) -> Bound:
        maps = in_canonical_type(maps)
        if not pa.types.is_map(maps.type):
            raise mismatch(name, maps.type)
        return call(kernel, (maps,), pa.list_(part(maps.type)))

    return Rewrite(name, rewrite, 1, 1)


def _has_key(maps: Bound, key: Bound) -> Bound:
    """Whether a map has a key."""
    maps, key = in_canonical_type(maps), in_canonical_type(key)
    if not pa.types.is_map(maps.type):
        raise mismatch("map_contains_key", maps.type, key.type)
    keys = MAP_KEYS.bind((maps,))
    return _contains(keys, cast(key, maps.type.key_type))


SIZE: Final = Kernel("size", lambda of, row: len(row), _counted)
CONTAINS: Final = Kernel("array_contains", _has, _search(_found))
POSITION: Final = Kernel("array_position", _place, _search(_placed))
JOIN: Final = Kernel("array_join", _joined, _joining)
VIEWED: Final = frozenset({"integer", "date", "timestamp"})
"""The families whose order is that of NumPy's numbers."""
MAP_KEYS: Final = _side("map_keys", lambda of: of.key_type, 0)

ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("size", _size, 1, 1),
    Rewrite("array_contains", _contains, 2, 2),
    Rewrite("array_position", _position, 2, 2),
    _extreme("array_min", min, np.minimum),
    _extreme("array_max", max, np.maximum),
    Rewrite("array_join", _join, 2, 3),
    MAP_KEYS,
    _side("map_values", lambda of: of.item_type, 1),
    Rewrite("map_contains_key", _has_key, 2, 2),
)
