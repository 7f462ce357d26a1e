"""Built-in aggregates that keep values: `max_by`, `percentile`, `collect_list`, `listagg` and their like.

They are definitions like those of users (`headrace.plan.nodes.user_aggregates`), so every kind of window,
snapshot and runtime takes them. What they mean is in `headrace.testing.folds`. Results do not depend on the
order of rows except where `ordered` says so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.aggregates.codecs import InternedCodec, codec_for
from headrace.arrays import Ints, Reals
from headrace.errors import PlanError
from headrace.expressions.comparison import rank
from headrace.plan.nodes.user_aggregates import UserAggregate, user_aggregate
from headrace.schema import DataType
from headrace.state.columns import valid_mask


def _refuse_nested(name: str, *types: DataType) -> None:
    """Raise an error for a type whose values have no order."""
    for of in types:
        if pt.is_nested(of):
            raise PlanError("HR-P006", f"{name} cannot take {of}", place=name, hint="select one of its parts")


def _ranks(values: pa.Array) -> Ints:
    """Numbers that sort like the values of this array, where they are not null; NaN is the greatest."""
    codec = codec_for(values.type)
    if not isinstance(codec, InternedCodec):
        return codec.encode(values)
    plain = values.dictionary_decode() if pt.is_dictionary(values.type) else values
    return np.asarray(pc.rank(plain, tiebreaker="dense"), np.int64)


@dataclass(frozen=True)
class ExtremeBy:
    """`max_by(x, y)`, `min_by(x, y)`: x of the row with the greatest, least y; of several, the greatest x.

    Rows whose y is NULL do not count; x may be NULL, which is less than any value. The state is (y, x).
    """

    greatest: bool
    arguments: ClassVar = (None, None)
    nulls: ClassVar = True

    def result(self, x: DataType, y: DataType) -> DataType:
        """The type of x."""
        _refuse_nested("max_by" if self.greatest else "min_by", x, y)
        return x

    def initialize(self) -> tuple[Any, ...]:
        return ()

    def iterate(self, state: tuple[Any, ...], x: pa.Array, y: pa.Array) -> tuple[Any, ...]:
        at = np.flatnonzero(valid_mask(y))
        if not len(at):
            return state
        there = pa.array(at)
        x, y = x.take(there), y.take(there)
        by = _ranks(y) if self.greatest else ~_ranks(y)
        best = int(np.lexsort((_ranks(x), valid_mask(x), by))[-1])
        return self.merge(state, (y[best].as_py(), x[best].as_py()))

    def merge(self, state: tuple[Any, ...], later: tuple[Any, ...]) -> tuple[Any, ...]:
        if not state or not later:
            return state or later
        mine, other = rank(state[0]), rank(later[0])
        if mine == other:
            return later if _with_null(later[1]) > _with_null(state[1]) else state
        return later if (other > mine) == self.greatest else state

    def terminate(self, state: tuple[Any, ...]) -> Any:
        return state[1] if state else None


def _with_null(value: Any) -> tuple[Any, ...]:
    """Sorts values with NULL first."""
    return () if value is None else (rank(value),)


@dataclass(frozen=True)
class Percentile:
    """`percentile(x, share)`: exact, between the two nearest values if none is there, as in Spark.

    The state is all values as doubles, sorted.
    """

    share: float
    arguments: ClassVar = (None,)

    def result(self, of: DataType) -> DataType:
        """A double."""
        if not (pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of)):
            raise PlanError(
                "HR-P006", f"percentile cannot take {of}", place="percentile", hint="cast it first"
            )
        return pa.float64()

    def initialize(self) -> Reals:
        return np.empty(0, np.float64)

    def iterate(self, state: Reals, values: pa.Array) -> Reals:
        return self.merge(state, _doubles(values))

    def merge(self, state: Reals, later: Reals) -> Reals:
        return np.sort(np.concatenate((state, later)))

    def expire(self, state: Reals, values: pa.Array) -> Reals:
        gone = np.sort(_doubles(values))
        which = np.arange(len(gone)) - np.searchsorted(gone, gone)
        return np.delete(state, np.searchsorted(state, gone) + which)

    def terminate(self, state: Reals) -> float | None:
        if not len(state):
            return None
        place = (len(state) - 1) * self.share
        below, above = math.floor(place), math.ceil(place)
        low, high = float(state[below]), float(state[above])
        if below == above or low == high:
            return low
        return (above - place) * low + (place - below) * high


def _doubles(values: pa.Array) -> Reals:
    """Numbers of any type as doubles, rounded correctly; −0.0 is 0.0."""
    if pt.is_decimal(values.type):
        return np.array([float(each) for each in values.to_pylist()], np.float64)
    return np.asarray(values.cast(pa.float64(), safe=False), np.float64) + 0.0


@dataclass(frozen=True)
class NearestRank:
    """`approx_percentile(x, share)`: exact; the least value that this share of the values does not exceed.

    The state is all values, sorted.
    """

    share: float
    arguments: ClassVar = (None,)

    def result(self, of: DataType) -> DataType:
        """The type of x."""
        if not (pt.is_integer(of) or pt.is_floating(of) or pt.is_decimal(of)):
            hint = "cast it to a number first"
            raise PlanError(
                "HR-P006", f"approx_percentile cannot take {of}", place="approx_percentile", hint=hint
            )
        return of

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], values: pa.Array) -> list[Any]:
        return self.merge(state, values.to_pylist())

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        return sorted((*state, *later), key=rank)

    def terminate(self, state: list[Any]) -> Any:
        return state[max(0, math.ceil(Fraction(self.share) * len(state)) - 1)] if state else None


@dataclass(frozen=True)
class Greatest:
    """`topk(x, count)`: the greatest values in descending order; `distinct` leaves out repeated ones."""

    count: int
    distinct: bool
    arguments: ClassVar = (None,)

    def result(self, of: DataType) -> DataType:
        """A list."""
        _refuse_nested("topk", of)
        return pa.list_(of)

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], values: pa.Array) -> list[Any]:
        if self.distinct:
            values = pc.unique(values)
        best = np.argsort(_ranks(values), kind="stable")[::-1][: self.count]
        return self.merge(state, values.take(pa.array(best)).to_pylist())

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        found = sorted((*state, *later), key=rank, reverse=True)
        if self.distinct:
            found = [each for i, each in enumerate(found) if not i or rank(each) != rank(found[i - 1])]
        return found[: self.count]

    def terminate(self, state: list[Any]) -> list[Any]:
        return state


@dataclass(frozen=True)
class Comoment:
    """`corr(x, y)`, `covar_pop`, `covar_samp`: from exact sums, rounded once. Pairs with a NULL do not count.

    The state counts pairs, and those that are not finite; then the sums of x, y, xx, yy and xy, as integers
    in units of 2^-1074 and its square.
    """

    kind: str
    arguments: ClassVar = (pa.float64(), pa.float64())
    result: ClassVar = pa.float64()

    def initialize(self) -> tuple[int, ...]:
        return (0,) * 7

    def iterate(self, state: tuple[int, ...], x: pa.Array, y: pa.Array) -> tuple[int, ...]:
        return self._with(state, x, y, 1)

    def expire(self, state: tuple[int, ...], x: pa.Array, y: pa.Array) -> tuple[int, ...]:
        return self._with(state, x, y, -1)

    def _with(self, state: tuple[int, ...], x: pa.Array, y: pa.Array, sign: int) -> tuple[int, ...]:
        pairs = [(a, b) for a, b in zip(x.to_pylist(), y.to_pylist(), strict=True)]
        known = [(_units(a), _units(b)) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        added = (len(pairs), len(pairs) - len(known), sum(a for a, _ in known), sum(b for _, b in known))
        squares = (sum(a * a for a, _ in known), sum(b * b for _, b in known), sum(a * b for a, b in known))
        return tuple(old + sign * new for old, new in zip(state, (*added, *squares), strict=True))

    def merge(self, state: tuple[int, ...], later: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(old + new for old, new in zip(state, later, strict=True))

    def terminate(self, state: tuple[int, ...]) -> float | None:
        count, odd, x, y, xx, yy, xy = state
        free = count - (self.kind != "covar_pop")
        if free <= 0:
            return None
        if odd:
            return math.nan
        both, of_x, of_y = count * xy - x * y, count * xx - x * x, count * yy - y * y
        if self.kind != "corr":
            return _rounded(Fraction(both, count * free << 2 * UNIT))
        if not of_x or not of_y:
            return None
        size = math.sqrt(_rounded(Fraction(both * both, of_x * of_y)))
        return size if both >= 0 else -size


UNIT: Final = 1074
"""Every finite double is a multiple of 2^-1074."""


def _units(value: float) -> int:
    """A finite double in units of 2^-1074."""
    over, under = value.as_integer_ratio()
    return over << (UNIT + 1 - under.bit_length())


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True)
class Bits:
    """`bit_and(x)`, `bit_or(x)`, `bit_xor(x)`: integers combined bit by bit."""

    kind: str
    arguments: ClassVar = (None,)

    def result(self, of: DataType) -> DataType:
        """The type of x."""
        if not pt.is_integer(of):
            name = f"bit_{self.kind}"
            raise PlanError("HR-P006", f"{name} cannot take {of}", place=name, hint="cast it to BIGINT first")
        return of

    def initialize(self) -> tuple[int, ...]:
        return ()

    def iterate(self, state: tuple[int, ...], values: pa.Array) -> tuple[int, ...]:
        return (int(BITS[self.kind].reduce(np.asarray([*state, *values.to_pylist()], np.int64))),)

    def merge(self, state: tuple[int, ...], later: tuple[int, ...]) -> tuple[int, ...]:
        found = np.asarray([*state, *later], np.int64)
        return (int(BITS[self.kind].reduce(found)),) if len(found) else ()

    def terminate(self, state: tuple[int, ...]) -> int | None:
        return state[0] if state else None


BITS: Final[dict[str, np.ufunc]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class CollectList:
    """`collect_list(x)`: the values that are not NULL, in order of time; empty if there are none."""

    arguments = (None,)
    nulls = True
    ordered = True

    @staticmethod
    def result(of: DataType) -> DataType:
        """A list."""
        return pa.list_(of)

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], values: pa.Array) -> list[Any]:
        return [*state, *values.drop_null().to_pylist()]

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        return state + later

    def terminate(self, state: list[Any]) -> list[Any]:
        return state


class CollectSet:
    """`collect_set(x)`: the different values that are not NULL, in ascending order."""

    arguments = (None,)
    nulls = True

    @staticmethod
    def result(of: DataType) -> DataType:
        """A list."""
        _refuse_nested("collect_set", of)
        return pa.list_(of)

    def initialize(self) -> list[Any]:
        return []

    def iterate(self, state: list[Any], values: pa.Array) -> list[Any]:
        return self.merge(state, pc.unique(values.drop_null()).to_pylist())

    def merge(self, state: list[Any], later: list[Any]) -> list[Any]:
        known = {rank(each): each for each in (*later, *state)}
        return [known[each] for each in sorted(known)]

    def terminate(self, state: list[Any]) -> list[Any]:
        return state


@dataclass(frozen=True)
class ListAgg:
    """`listagg(x, delimiter)`: the texts that are not NULL, joined in order of time; NULL without any."""

    delimiter: str
    arguments: ClassVar = (pa.string(),)
    result: ClassVar = pa.string()
    ordered: ClassVar = True

    def initialize(self) -> list[str]:
        return []

    def iterate(self, state: list[str], values: pa.Array) -> list[str]:
        return [*state, *values.to_pylist()]

    def merge(self, state: list[str], later: list[str]) -> list[str]:
        return state + later

    def terminate(self, state: list[str]) -> str | None:
        return self.delimiter.join(state) if state else None


MAX_BY: Final = user_aggregate("max_by", ExtremeBy(True))
MIN_BY: Final = user_aggregate("min_by", ExtremeBy(False))
MEDIAN: Final = user_aggregate("median", Percentile(0.5))
CORR: Final = user_aggregate("corr", Comoment("corr"))
COVAR_POP: Final = user_aggregate("covar_pop", Comoment("covar_pop"))
COVAR_SAMP: Final = user_aggregate("covar_samp", Comoment("covar_samp"))
BIT_AND: Final = user_aggregate("bit_and", Bits("and"))
BIT_OR: Final = user_aggregate("bit_or", Bits("or"))
BIT_XOR: Final = user_aggregate("bit_xor", Bits("xor"))
COLLECT_LIST: Final = user_aggregate("collect_list", CollectList)
COLLECT_SET: Final = user_aggregate("collect_set", CollectSet)


def percentile(share: float) -> UserAggregate:
    """The percentile at a share from 0 to 1; its name has the share, because names identify state."""
    return user_aggregate(f"percentile[{share}]", Percentile(share))


def nearest_rank(share: float) -> UserAggregate:
    """The value at a share from 0 to 1."""
    return user_aggregate(f"approx_percentile[{share}]", NearestRank(share))


def greatest(count: int, distinct: bool) -> UserAggregate:
    """The greatest values."""
    return user_aggregate(f"topk{'distinct' * distinct}[{count}]", Greatest(count, distinct))


def listagg(delimiter: str) -> UserAggregate:
    """The concatenation with a delimiter, which is a part of its name."""
    return user_aggregate(f"listagg[{delimiter}]", ListAgg(delimiter))
