"""Promises that come as rows: punctuations and heartbeats in a column of a stream, or in another stream.

A source knows best what it will not send any more. It says so in its own rows ("this was the last bid for
auction 7", "all later rows are after 12:00"), or another stream does (a stream of closings). Here such rows
are recognised and turned into punctuations (Tucker & Maier, §2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Mask, Times
from headrace.time.closed_values import distinct_values
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import FARTHEST, MAX_TIME

MICROSECONDS = 1_000_000
WILD = "the heartbeat in the row is further ahead of the clock than the guard allows, or out of range"


@dataclass(frozen=True)
class PunctuationRows:
    """Each row of `stream` in which `column` is true (None: each row) is a punctuation.

    `pattern` has pairs of columns: no later row of the stream that it speaks of has, in the first column, the
    value that this row has in the second. `data`: the row is also data of its own stream.
    """

    stream: str
    pattern: tuple[tuple[str, str], ...]
    column: str | None = None
    data: bool = False


@dataclass(frozen=True)
class HeartbeatRows:
    """Each row with a value in `column` is a heartbeat: all later rows of the stream have later times.

    `unit` is how many of the numbers in the column make a second; None: they are ticks. `data`: the row is
    also data.
    """

    column: str
    unit: int | None = None
    data: bool = False


@dataclass(frozen=True)
class Said:
    """What some rows of a stream promise.

    `data` marks the rows that are data (None: all of them). `punctuations` are about streams by name.
    `heartbeat` is about the stream itself. `wild` marks the rows whose heartbeat is too far ahead.
    """

    data: Mask | None = None
    punctuations: Mapping[str, tuple[Punctuation, ...]] = field(default_factory=dict)
    heartbeat: int | None = None
    wild: Mask | None = None

    def about(self, stream: str, own: bool) -> tuple[Punctuation, ...]:
        """Everything about one stream; the heartbeat is about the `own` one of the rows."""
        beats = () if self.heartbeat is None or not own else (Punctuation(self.heartbeat),)
        return (*self.punctuations.get(stream, ()), *beats)


NOTHING = Said()


@dataclass(frozen=True)
class RowPromises:
    """By stream: the rows that are punctuations of it, and those of its own rows that are heartbeats."""

    punctuations: Mapping[str, tuple[PunctuationRows, ...]] = field(default_factory=dict)
    heartbeats: Mapping[str, HeartbeatRows] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.punctuations or self.heartbeats)

    def concern(self, stream: str) -> bool:
        """Whether rows promise anything about a stream."""
        return stream in self.punctuations or stream in self.heartbeats

    def speakers(self, of: Iterable[str]) -> frozenset[str]:
        """The streams whose rows promise something about these streams."""
        streams = list(of)
        others = (each.stream for name in streams for each in self.punctuations.get(name, ()))
        return frozenset([*others, *(name for name in streams if name in self.heartbeats)])

    def heard_by(self, speaker: str) -> list[str]:
        """The streams that the rows of a stream promise something about."""
        by_punctuations = [
            name for name, given in self.punctuations.items() if any(each.stream == speaker for each in given)
        ]
        return list(dict.fromkeys([*by_punctuations, *([speaker] if speaker in self.heartbeats else [])]))

    def said(
        self, stream: str, rows: pa.RecordBatch, types: Mapping[str, pa.Schema], most: int = MAX_TIME
    ) -> Said:
        """What rows of a stream promise.

        `types` are the columns of the streams that anybody reads. A heartbeat later than `most` is wild: the
        row is set apart, because a clock that is wrong must not make all later rows late.
        """
        if not rows.num_rows or not self.heard_by(stream):
            return NOTHING
        only = np.zeros(rows.num_rows, np.bool_)
        found: dict[str, tuple[Punctuation, ...]] = {}
        for name, given in self.punctuations.items():
            for each in given:
                if each.stream == stream and name in types:
                    marked = _marked(rows, each.column)
                    found[name] = (*found.get(name, ()), *_punctuations(rows, marked, each, types[name]))
                    if name == stream and not each.data:
                        only |= marked
        beats = self.heartbeats.get(stream)
        if beats is None:
            return Said(~only if only.any() else None, found)
        times, known = ticks_of(rows.column(beats.column), beats.unit)
        wild: Mask = known & ((times > most) | (np.abs(times) >= FARTHEST))
        beat = times[known & ~wild]
        only |= wild if beats.data else known
        return Said(
            ~only if only.any() else None,
            found,
            int(beat.max()) if len(beat) else None,
            wild if wild.any() else None,
        )


def _marked(rows: pa.RecordBatch, column: str | None) -> Mask:
    """The rows in which a column is true; without a column, all rows."""
    if column is None:
        return np.ones(rows.num_rows, np.bool_)
    marked: Mask = pc.fill_null(rows.column(column), False).to_numpy(zero_copy_only=False)
    return marked


def _punctuations(
    rows: pa.RecordBatch, marked: Mask, said: PunctuationRows, of: pa.Schema
) -> list[Punctuation]:
    """The punctuations of the marked rows, each once, in the types of the stream that they speak of."""
    if not marked.any():
        return []
    names = [column for column, _ in said.pattern]
    columns = [rows.column(theirs) for _, theirs in said.pattern]
    chosen = pa.RecordBatch.from_arrays(columns, names=names).filter(pa.array(marked))
    found = sorted(distinct_values(chosen, names), key=repr)
    made = (tuple(zip(names, values, strict=True)) for values in found)
    return [
        Punctuation(patterns=tuple((name, Constant(value)) for name, value in pairs))
        for pairs in made
        if all(_fits(value, of.field(name).type) for name, value in pairs)
    ]


def _fits(value: Any, of: pa.DataType) -> bool:
    """Whether a column of this type can have the value; if it cannot, no row will."""
    try:
        pa.scalar(value, of)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


def can_be_compared(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether a value of one type can be a pattern on a column of the other: equal exactly, and hashable."""
    if pt.is_floating(one) or pt.is_floating(other) or pt.is_nested(one) or pt.is_nested(other):
        return False
    return bool(one.equals(other) or (pt.is_integer(one) and pt.is_integer(other)))


def ticks_of(column: pa.Array, unit: int | None) -> tuple[Times, Mask]:
    """A column of timestamps, or of numbers in some unit, as ticks, and a mask of the rows that have a time.

    A number that is too large becomes the end of the time domain, where the engine rejects it.
    """
    known = np.ones(len(column), np.bool_)
    if column.null_count:
        known = column.is_valid().to_numpy(zero_copy_only=False)
        column = column.fill_null(0)
    if pt.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64()).to_numpy(), known
    ticks = column.cast(pa.int64()).to_numpy()
    if unit is None or unit == MICROSECONDS:
        return ticks, known
    if unit > MICROSECONDS:
        return ticks // (unit // MICROSECONDS), known
    factor = MICROSECONDS // unit
    reach = FARTHEST // factor
    return np.where(np.abs(ticks) > reach, np.sign(ticks) * FARTHEST, ticks * factor), known
