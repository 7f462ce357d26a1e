"""Rows to groups, for partial aggregates: by places in an array where keys allow it, else by Arrow's hashes.

Keys that are whole numbers close together, as numbers of sensors and panes of a micro-batch are, take a fifth
of the time that way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.kernels import dense

Numbers = npt.NDArray[Any]
Columns = list[pa.Array]

PLACES_A_ROW: Final = 2
"""Places in the array, for each row to be grouped, that are still worth it."""


@dataclass(frozen=True)
class Asked:
    """An aggregate to be taken of a column: `function` as Arrow calls it."""

    function: str
    column: pa.Array


def grouped(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> tuple[Columns, Columns]:
    """The keys of the groups, and what was asked for of each."""
    if _is_dense(keys, asked):
        found = _by_places([_numbers(key) for key in keys], asked)
        if found is not None:
            return found
    return _by_hashes(keys, asked)


def _is_dense(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> bool:
    return all(pt.is_signed_integer(key.type) and not key.null_count for key in keys) and all(
        not each.column.null_count and (each.function == "count" or _is_number(each.column.type))
        for each in asked
    )


def _is_number(of: pa.DataType) -> bool:
    return bool(pt.is_signed_integer(of) or pt.is_float64(of))


def _numbers(column: pa.Array) -> Numbers:
    values: Numbers = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, None if values.dtype == np.float64 else np.int64)


def _by_places(keys: list[Numbers], asked: Sequence[Asked]) -> tuple[Columns, Columns] | None:
    """None where keys lie too far apart."""
    rows = len(keys[0])
    if not rows:
        return None
    least = [int(key.min()) for key in keys]
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, least, strict=True)]
    size = 1
    for width in widths:
        size *= width
    if size > PLACES_A_ROW * rows:
        return None
    places = np.zeros(rows, np.int64)
    for key, low, width in zip(keys, least, widths, strict=True):
        dense.add_digit(places, key, low, width)
    counts = np.zeros(size, np.int64)
    dense.count(places, counts)
    taken = np.flatnonzero(counts)
    results = [_FOLDS[each.function](places, each.column, counts)[taken] for each in asked]
    return [pa.array(key) for key in _digits(taken, least, widths)], [pa.array(each) for each in results]


def _digits(taken: Numbers, least: list[int], widths: list[int]) -> list[Numbers]:
    """The keys of places."""
    found, rest = [], taken
    for low, width in zip(reversed(least), reversed(widths), strict=True):
        rest, digit = np.divmod(rest, width)
        found.append(digit + low)
    return found[::-1]


def _count(places: Numbers, column: pa.Array, counts: Numbers) -> Numbers:
    return counts


def _sum(places: Numbers, column: pa.Array, counts: Numbers) -> Numbers:
    values = _numbers(column)
    out = np.zeros(len(counts), values.dtype)
    dense.add(places, values, out)
    return out


def _least(places: Numbers, column: pa.Array, counts: Numbers) -> Numbers:
    values = _numbers(column)
    out = np.full(len(counts), _highest(values.dtype), values.dtype)
    dense.least(places, values, out)
    return out


def _greatest(places: Numbers, column: pa.Array, counts: Numbers) -> Numbers:
    values = _numbers(column)
    out = np.full(len(counts), _lowest(values.dtype), values.dtype)
    dense.greatest(places, values, out)
    return out


def _highest(of: np.dtype[Any]) -> Any:
    return np.inf if of == np.float64 else np.iinfo(np.int64).max


def _lowest(of: np.dtype[Any]) -> Any:
    return -np.inf if of == np.float64 else np.iinfo(np.int64).min


_FOLDS: Final[dict[str, Callable[[Numbers, pa.Array, Numbers], Numbers]]] = {
    "count": _count,
    "sum": _sum,
    "min": _least,
    "max": _greatest,
}


def _by_hashes(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> tuple[Columns, Columns]:
    named = {f"k{i}": key for i, key in enumerate(keys)}
    table = pa.table(named | {f"a{i}": each.column for i, each in enumerate(asked)})
    calls = [(f"a{i}", each.function) for i, each in enumerate(asked)]
    found = pa.TableGroupBy(table, list(named), use_threads=False).aggregate(calls)
    results = [f"{name}_{function}" for name, function in calls]
    return _whole(found, list(named)), _whole(found, results)


def _whole(table: pa.Table, names: list[str]) -> Columns:
    return [table.column(name).combine_chunks() for name in names]
