"""A generator of independent random rows; the same seed gives the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from headrace.connectors.contract import Block, Position, Span
from headrace.errors import ConnectorError
from headrace.schema import DataType, Schema

SECOND: Final = 1_000_000
ROWS: Final = 4096
Rng = np.random.Generator


@dataclass
class PoissonSource:
    """`rate` rows per second on average, each with a time up to `disorder` before its arrival.

    Each block has its own seed, so that a restart makes the same rows. `rows` None: endless.
    """

    schema: Schema
    rate: float
    rows: int | None = None
    seed: int = 0
    start: int = 0
    disorder: int = 0
    keys: int = 10
    time_column: str | None = None
    per_second: int = SECOND

    def __post_init__(self) -> None:
        unknown = [f for f in self.schema if f.name != self.time_column and _maker(f.type) is None]
        if unknown:
            raise ConnectorError(
                "HR-C003",
                f"the generator cannot make values of type {unknown[0].type}",
                place=unknown[0].name,
                hint="use numbers, strings, booleans or timestamps",
            )
        self._block, self._made, self._clock = 0, 0, self.start

    @property
    def bounded(self) -> bool:
        return self.rows is not None

    @property
    def ended(self) -> bool:
        return self.rows is not None and self._made >= self.rows

    def read(self) -> Block | None:
        count = ROWS if self.rows is None else min(ROWS, self.rows - self._made)
        if count <= 0:
            return None
        rng = np.random.default_rng([self.seed, self._block])
        gaps = rng.exponential(SECOND / self.rate, count)
        arrival = self._clock + np.cumsum(gaps).astype(np.int64)
        times = arrival - rng.integers(0, self.disorder + 1, count)
        columns = [self._column(f, times, rng) for f in self.schema]
        self._block, self._made, self._clock = self._block + 1, self._made + count, int(arrival[-1])
        return Block(pa.RecordBatch.from_arrays(columns, schema=self.schema), (), arrival)

    def _column(self, of: pa.Field, times: npt.NDArray[np.int64], rng: Rng) -> pa.Array:
        """A random column, or the time column in the ticks of the stream."""
        if of.name == self.time_column:
            if pt.is_timestamp(of.type):
                return pa.array(times, pa.timestamp("us", of.type.tz))
            return pa.array(times // (SECOND // self.per_second)).cast(of.type)
        make = _maker(of.type)
        assert make is not None
        return pa.array(make(rng, len(times), self.keys)).cast(of.type)

    def position(self) -> Position:
        return {"block": self._block, "made": self._made, "clock": self._clock}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self._block, self._made, self._clock = position["block"], position["made"], position["clock"]

    def close(self) -> None:
        return None


Maker = Callable[[Rng, int, int], npt.NDArray[Any]]
COLUMNS: Final[tuple[tuple[Callable[[DataType], bool], Maker], ...]] = (
    (pt.is_boolean, lambda rng, count, keys: rng.random(count) < 0.5),
    (pt.is_integer, lambda rng, count, keys: rng.integers(0, keys, count)),
    (pt.is_floating, lambda rng, count, keys: rng.integers(0, 400, count) / 4),
    (pt.is_string, lambda rng, count, keys: rng.integers(0, keys, count).astype(str)),
    (pt.is_timestamp, lambda rng, count, keys: rng.integers(0, keys, count)),
)


def _maker(of: DataType) -> Maker | None:
    """The function that generates values of a type; None if there is none."""
    return next((make for holds, make in COLUMNS if holds(of)), None)
