"""Arrays made of arrays: sorted, cut, without repeated elements, together and apart. Row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import pyarrow as pa

from headrace.expressions.bound import Bound, Kernel, call
from headrace.expressions.casts import cast, in_canonical_type
from headrace.expressions.comparison import rank
from headrace.expressions.functions.rule import WHOLE, Rewrite
from headrace.expressions.scope import Rule
from headrace.expressions.types import common_type, family, mismatch

List = list[Any]


def _key(value: Any) -> Any:
    """Equal for equal elements; NULL equals NULL, and comes first."""
    return (0,) if value is None else (1, rank(value))


def _distinct(values: Iterable[Any]) -> List:
    """Each value where it is first."""
    seen, found = set(), []
    for value in values:
        if (key := _key(value)) not in seen:
            seen.add(key)
            found.append(value)
    return found


def _keys(values: List) -> set[Any]:
    return {_key(value) for value in values}


def _sorted(of: pa.DataType, values: List, ascending: bool = True) -> List:
    """In order; NULL first, or last if descending."""
    return sorted(values, key=_key, reverse=not ascending)


def _nulls_last(of: pa.DataType, values: List) -> List:
    return sorted(values, key=lambda value: (value is None, _key(value)))


def _slice(of: pa.DataType, values: List, start: int, length: int) -> List | None:
    """So many elements from a place on, counted from 1, or from the end if negative."""
    if start == 0 or length < 0:
        return None
    begin = start - 1 if start > 0 else len(values) + start
    return values[begin : begin + length] if begin >= 0 else []


def _flat(of: pa.DataType, lists: list[List | None]) -> List | None:
    """The elements of all arrays; NULL if one of them is NULL."""
    return None if any(each is None for each in lists) else [value for each in lists for value in each or ()]


def _list(name: str, value: Bound) -> Bound:
    value = in_canonical_type(value)
    if not pa.types.is_list(value.type):
        raise mismatch(name, value.type)
    return value


def _plain(name: str, value: Bound) -> Bound:
    """An array of values that have an order."""
    value = _list(name, value)
    if family(value.type.value_type) == "other":
        raise mismatch(name, value.type)
    return value


def _one(name: str, naive: Callable[..., Any], *more: Callable[[str, Bound], Bound]) -> Rewrite:
    """A function of one array, with further arguments, that gives an array of the same type."""
    kernel = Kernel(name, naive)

    def rewrite(first: Bound, *rest: Bound) -> Bound:
        first = _plain(name, first)
        others = tuple(
            coerce(name, in_canonical_type(each)) for coerce, each in zip(more, rest, strict=False)
        )
        return call(kernel, (first, *others), first.type)

    return Rewrite(name, rewrite, 1, 1 + len(more))


def _two(name: str, naive: Callable[[List, List], List]) -> Rewrite:
    """A function of two arrays of one type."""
    kernel = Kernel(name, lambda of, left, right: naive(left, right))

    def rewrite(left: Bound, right: Bound) -> Bound:
        left, right = _plain(name, left), _plain(name, right)
        of = common_type(left.type.value_type, right.type.value_type)
        if of is None or not left.type.value_type == right.type.value_type == of:
            raise mismatch(name, left.type, right.type)
        return call(kernel, (left, right), left.type)

    return Rewrite(name, rewrite, 2, 2)


def _with_value(name: str, naive: Callable[[List, Any], List], strict: bool) -> Rewrite:
    """A function of an array and a value of the type of its elements."""

    def run(of: pa.DataType, values: List | None, value: Any) -> List | None:
        return None if values is None else naive(values, value)

    kernel = Kernel(name, run, strict=strict)

    def rewrite(values: Bound, value: Bound) -> Bound:
        values, value = _plain(name, values), in_canonical_type(value)
        if common_type(values.type.value_type, value.type) != values.type.value_type:
            raise mismatch(name, values.type, value.type)
        return call(kernel, (values, cast(value, values.type.value_type)), values.type)

    return Rewrite(name, rewrite, 2, 2)


def _boolean(name: str, value: Bound) -> Bound:
    if family(value.type) not in ("boolean", "null"):
        raise mismatch(name, value.type)
    return cast(value, pa.bool_())


def _flatten(value: Bound) -> Bound:
    value = _list("flatten", value)
    if not pa.types.is_list(value.type.value_type):
        raise mismatch("flatten", value.type)
    return call(FLATTEN, (value,), value.type.value_type)


def _slicing(values: Bound, start: Bound, length: Bound) -> Bound:
    values = _list("slice", values)
    return call(SLICE, (values, WHOLE("slice", start), WHOLE("slice", length)), values.type)


FLATTEN: Final = Kernel("flatten", _flat)
SLICE: Final = Kernel("slice", _slice)

ROWS: Final[tuple[Rule, ...]] = (
    _one("array_distinct", lambda of, values: _distinct(values)),
    _one("sort_array", _sorted, _boolean),
    _one("array_sort", _nulls_last),
    Rewrite("slice", _slicing, 3, 3),
    Rewrite("flatten", _flatten, 1, 1),
    _two("array_union", lambda left, right: _distinct([*left, *right])),
    _two("array_intersect", lambda left, right: [v for v in _distinct(left) if _key(v) in _keys(right)]),
    _two("array_except", lambda left, right: [v for v in _distinct(left) if _key(v) not in _keys(right)]),
    _with_value("array_append", lambda values, value: [*values, value], strict=False),
    _with_value(
        "array_remove", lambda values, value: [v for v in values if _key(v) != _key(value)], strict=True
    ),
)
