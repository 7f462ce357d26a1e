"""Aggregation before the shuffle: a task sends one partial row per key and pane instead of all its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.aggregates.limbs import Limbs, Sums
from headrace.arrays import Mask, Times
from headrace.expressions import compile, compile_predicate
from headrace.kernels.aggregate_panes import add_ints, count_rows, keep_least
from headrace.kernels.exact_sums import add_doubles
from headrace.plan.analysis.partials import Partials
from headrace.plan.nodes.core import AggregateCall, Plan, Project, Select, Source
from headrace.schema import Schema
from headrace.state.code_table import CodeTable

Predicate = Callable[[pa.RecordBatch], Any]

LEAST_GAIN: Final = 2
"""The number of rows per partial row, on average, from which grouping pays."""


class Preaggregation:
    """Aggregates rows into partial rows, for one task."""

    def __init__(self, partials: Partials) -> None:
        self._partials = partials
        self._steps = chain_steps(partials.chain)
        self._pays = True

    def __call__(self, rows: pa.RecordBatch, times: Times, doubtful: Mask) -> tuple[pa.RecordBatch, Times]:
        """The partial rows of `rows` and their times; `doubtful` rows are not combined with others."""
        for step in self._steps:
            rows, kept = step(rows)
            if kept is not None:
                times, doubtful = times[kept], doubtful[kept]
        if not self._pays or self._has_nan(rows) or doubtful.all():
            return self._alone(rows), times
        if not doubtful.any():
            return self._weighed(rows, times)
        sure, greatest = self._weighed(rows.filter(pa.array(~doubtful)), times[~doubtful])
        alone = self._alone(rows.filter(pa.array(doubtful)))
        return pa.concat_batches([sure, alone]), np.concatenate([greatest, times[doubtful]])

    def _weighed(self, rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
        """Group the rows, and note whether that made few enough rows to pay."""
        made, greatest = self._grouped(rows, times)
        self._pays = len(greatest) * LEAST_GAIN <= len(times)
        return made, greatest

    def _has_nan(self, rows: pa.RecordBatch) -> bool:
        """Arrow and Spark order NaN differently, so rows with NaN are not combined."""
        compared = {c.column for c in self._partials.calls if c.function in ("min", "max")}
        floats = [n for n in compared if n is not None and pt.is_floating(rows.schema.field(n).type)]
        return any(pc.any(pc.is_nan(rows.column(name))).as_py() for name in floats)

    def _grouped(self, rows: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
        """One partial row per key and pane, and the greatest time of its rows."""
        keys = [rows.column(key) for key in self._partials.keys]
        by = [*keys, pa.array(times // self._partials.pane)]
        asked = [Asked(call.function, _argument(call, rows)) for call in self._partials.calls]
        found, results = grouped(by, [*asked, Asked("max", pa.array(times))])
        *values, greatest = results
        return self._typed([*found[: len(keys)], *values]), greatest.to_numpy()

    def _alone(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Each row as its own partial row."""
        columns = [rows.column(k) for k in self._partials.keys]
        for call in self._partials.calls:
            argument = _argument(call, rows)
            columns.append(argument.is_valid().cast(pa.int64()) if call.function == "count" else argument)
        return self._typed(columns)

    def _typed(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """The columns as rows of the schema of partial rows."""
        schema: Schema = self._partials.source.schema
        return pa.RecordBatch.from_arrays(
            [c.cast(field.type) for c, field in zip(columns, schema, strict=True)], schema=schema
        )


def _argument(call: AggregateCall, rows: pa.RecordBatch) -> pa.Array:
    """The argument of a call; `count(*)` counts a column that is never NULL."""
    if call.column is None:
        return pa.array(np.ones(rows.num_rows, np.int8))
    column = rows.column(call.column)
    wide = call.function == "sum" and pt.is_floating(column.type)
    return column.cast(pa.float64()) if wide else column


@dataclass(frozen=True)
class Step:
    """A filter with the predicate `holds`, or a projection to the columns `made`."""

    holds: Predicate | None = None
    made: tuple[Callable[[pa.RecordBatch], pa.Array], ...] = ()
    schema: Schema | None = None

    def __call__(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
        """The rows that pass, and which those are if this is a filter."""
        rows, mask = self.marked(rows)
        return (rows if mask is None else rows.filter(pa.array(mask))), mask

    def marked(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Mask | None]:
        """All rows, and which of them pass if this is a filter."""
        if self.holds is not None:
            return rows, np.asarray(self.holds(rows))
        return pa.RecordBatch.from_arrays([make(rows) for make in self.made], schema=self.schema), None


def chain_steps(plan: Plan) -> list[Step]:
    """The filters and projections of a chain, from the stream up."""
    if isinstance(plan, Source):
        return []
    assert isinstance(plan, (Select, Project))
    below, read = chain_steps(plan.input), plan.input.schema
    if isinstance(plan, Select):
        return [*below, Step(compile_predicate(plan.predicate, read))]
    made = tuple(compile(expression, read) for _, expression in plan.columns)
    return [*below, Step(None, made, plan.schema)]


# Grouping for partial aggregates: by array positions if the keys allow it, else by Arrow's hash tables.
#
# For integer keys close to each other, such as sensor numbers and the panes of a micro-batch, array positions
# take half the time, and sums of floats are as exact as the engine's.


Numbers = npt.NDArray[Any]
Columns = list[pa.Array]

PLACES_A_ROW: Final = 2
"""The maximum number of array positions per row for which this still pays."""


@dataclass(frozen=True)
class Asked:
    """An aggregate of a column; `function` is Arrow's name for it."""

    function: str
    column: pa.Array


def grouped(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> tuple[Columns, Columns]:
    """The keys of the groups, and the aggregates of each group."""
    if _is_dense(keys, asked):
        found = _by_places([_numbers(key) for key in keys], asked)
        if found is not None:
            return found
    return _by_hashes(keys, asked)


def _is_dense(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> bool:
    """True if array positions can replace hashing: integer keys, no nulls, functions with a fold."""
    return all(pt.is_signed_integer(key.type) and not key.null_count for key in keys) and all(
        not each.column.null_count and (each.function == "count" or _fold(each) is not None) for each in asked
    )


def _numbers(column: pa.Array) -> Numbers:
    """The column as float64 or int64."""
    values: Numbers = column.to_numpy(zero_copy_only=False)
    return values if values.dtype == np.float64 else values.astype(np.int64, copy=False)


def _by_places(keys: list[Numbers], asked: Sequence[Asked]) -> tuple[Columns, Columns] | None:
    """None if the keys are too far apart."""
    rows = len(keys[0])
    if not rows:
        return None
    least = [int(key.min()) for key in keys]
    widths = [int(key.max()) - low + 1 for key, low in zip(keys, least, strict=True)]
    size = prod(widths)
    if size > PLACES_A_ROW * rows:
        return None
    places = keys[0] - least[0]
    for key, low, width in zip(keys[1:], least[1:], widths[1:], strict=True):
        places *= width
        places += key - low
    room = 1 << size.bit_length()  # the kernels work on rings
    counts = np.zeros(room, np.int64)
    count_rows(places, counts)
    taken = np.flatnonzero(counts)
    results = [_result(each, places, counts)[taken] for each in asked]
    return [pa.array(key) for key in _digits(taken, least, widths)], [pa.array(each) for each in results]


def _digits(taken: Numbers, least: list[int], widths: list[int]) -> list[Numbers]:
    """The keys that belong to array positions."""
    found, rest = [], taken
    for low, width in zip(reversed(least), reversed(widths), strict=True):
        rest, digit = np.divmod(rest, width)
        found.append(digit + low)
    return found[::-1]


def _result(asked: Asked, places: Numbers, counts: Numbers) -> Numbers:
    fold = _fold(asked)
    return counts if fold is None else fold(places, _numbers(asked.column), len(counts))


def _sum(places: Numbers, values: Numbers, room: int) -> Numbers:
    out = np.zeros(room, np.int64)
    add_ints(places, values, out)
    return out


def _exact_sum(places: Numbers, values: Numbers, room: int) -> Numbers:
    """Sums of floats, rounded once at the end. Nearly all need no more than two floats."""
    sums, rests = np.zeros(room), np.zeros(room)
    done = add_doubles(places, values, sums, rests)
    if done < len(places):
        return _sum_by_limbs(places[done:], values[done:], sums, rests)
    with np.errstate(over="ignore"):
        return sums + rests


def _sum_by_limbs(places: Numbers, values: Numbers, sums: Numbers, rests: Numbers) -> Numbers:
    """Sums of floats of any size, added to what there is."""
    limbs, table = Limbs(1), CodeTable(sums=(np.int64, 0, 1))
    table.grow(len(sums))
    every = np.arange(len(sums))
    for slots, some in ((every, sums), (every, rests), (places, values)):
        limbs.add(pa.array(some), slots, partial(table.widened, "sums"))
    return Sums(table["sums"], limbs.ids).rounded()


def _least(places: Numbers, values: Numbers, room: int) -> Numbers:
    out = np.full(room, np.iinfo(np.int64).max)
    keep_least(places, values, out)
    return out


def _greatest(places: Numbers, values: Numbers, room: int) -> Numbers:
    """The greatest x is the complement of the least ~x."""
    return ~_least(places, ~values, room)


def _fold(asked: Asked) -> Callable[[Numbers, Numbers, int], Numbers] | None:
    """The function that computes this aggregate over array positions, or None."""
    of = asked.column.type
    kind = "real" if pt.is_float64(of) else "whole" if pt.is_signed_integer(of) else "other"
    return _FOLDS.get((asked.function, kind))


_FOLDS: Final[dict[tuple[str, str], Callable[[Numbers, Numbers, int], Numbers]]] = {
    ("sum", "whole"): _sum,
    ("sum", "real"): _exact_sum,
    ("min", "whole"): _least,
    ("max", "whole"): _greatest,
}


def _by_hashes(keys: Sequence[pa.Array], asked: Sequence[Asked]) -> tuple[Columns, Columns]:
    """Group with Arrow's hash aggregation, for all other keys and functions."""
    named = {f"k{i}": key for i, key in enumerate(keys)}
    table = pa.table(named | {f"a{i}": each.column for i, each in enumerate(asked)})
    calls = [(f"a{i}", each.function) for i, each in enumerate(asked)]
    found = pa.TableGroupBy(table, list(named), use_threads=False).aggregate(calls)
    results = [f"{name}_{function}" for name, function in calls]
    return _whole(found, list(named)), _whole(found, results)


def _whole(table: pa.Table, names: list[str]) -> Columns:
    return [table.column(name).combine_chunks() for name in names]
