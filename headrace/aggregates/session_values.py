"""Partial values by session, or by open pane: columns of a table that has a line for each of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.aggregates.codecs import Codec, codec_for
from headrace.aggregates.limbs import Limbs, Sums, whole_limbs
from headrace.aggregates.objects import Folding, Objects, by_slot
from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.specs import (
    Distinct,
    First,
    Folded,
    Greatest,
    Last,
    Least,
    Nulls,
    OfColumn,
    Real,
    Rows,
    Spec,
    Whole,
)
from headrace.arrays import Ints
from headrace.kernels.aggregate_panes import add_ints, count_rows, keep_first, keep_last, lower
from headrace.kernels.exact_sums import add_lines
from headrace.kernels.hashing import EMPTY
from headrace.schema import Schema
from headrace.state.code_table import CodeTable
from headrace.state.columns import valid_mask
from headrace.state.key_index import GroupIndex
from headrace.state.part import Part

Columns = dict[str, tuple[npt.DTypeLike, Any] | tuple[npt.DTypeLike, Any, int]]
_GREATEST = np.iinfo(np.int64).max


class SessionValue(ABC):
    """Keeps one partial value in columns of the sessions' table, whose size is a power of two."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def name(self, part: str) -> str:
        """The column that holds a part of the value."""
        return f"{self.spec}/{part}"

    @abstractmethod
    def columns(self) -> Columns:
        """The columns and the values that a new session has in them."""

    @abstractmethod
    def add(self, rows: Rowset, table: CodeTable) -> None:
        """Add rows to their sessions."""

    @abstractmethod
    def of(self, sessions: Ints, table: CodeTable) -> Any:
        """The value of some sessions, in the form that the spec states."""

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        """Sessions were merged into others, perhaps several into one; `gone` is not read again."""
        raise NotImplementedError(self.spec)

    def words(self, table: CodeTable) -> Ints:
        """The words of a codec that are in use."""
        return np.empty(0, np.int64)

    def keep(self, moved: Ints, table: CodeTable) -> None:
        """The sessions have new codes; EMPTY for a session that is forgotten."""
        return

    def state(self) -> dict[str, Part]:
        """State beyond the columns of the table."""
        return {}


class RowCounts(SessionValue):
    """How many rows."""

    def columns(self) -> Columns:
        return {self.name("count"): (np.int64, 0)}

    def add(self, rows: Rowset, table: CodeTable) -> None:
        count_rows(rows.slots, table[self.name("count")])

    def of(self, sessions: Ints, table: CodeTable) -> Ints:
        return np.asarray(table[self.name("count")][sessions], np.int64)

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        counts = table[self.name("count")]
        add_ints(into, counts[gone], counts)


class NullCounts(RowCounts):
    """How many nulls."""

    def __init__(self, spec: Nulls) -> None:
        super().__init__(spec)
        self._column = spec.column

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values = rows.data.column(self._column)
        if values.null_count:
            count_rows(rows.slots[~valid_mask(values)], table[self.name("count")])


class WholeSums(SessionValue):
    """Exact sums of whole numbers and decimals."""

    def __init__(self, spec: Whole) -> None:
        super().__init__(spec)
        self._column = spec.column
        self._limbs = [self.name(f"limb{i}") for i in range(spec.limbs)]

    def columns(self) -> Columns:
        return dict.fromkeys(self._limbs, (np.int64, 0))

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values, slots = rows.known(self._column)
        for name, limb in zip(self._limbs, whole_limbs(values, len(self._limbs)), strict=True):
            add_ints(slots, limb, table[name])

    def of(self, sessions: Ints, table: CodeTable) -> tuple[Ints, ...]:
        return tuple(table[name][sessions] for name in self._limbs)

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        for name in self._limbs:
            add_ints(into, table[name][gone], table[name])


class RealSums(SessionValue):
    """Exact sums of powers of numbers of any size."""

    def __init__(self, spec: Real) -> None:
        super().__init__(spec)
        self._column, self._limbs = spec.column, Limbs(spec.power)

    def columns(self) -> Columns:
        return {self.name("limbs"): (np.int64, 0, len(self._limbs))}

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values, slots = rows.known(self._column)
        self._limbs.add(values, slots, partial(table.widened, self.name("limbs")))

    def of(self, sessions: Ints, table: CodeTable) -> Sums:
        return Sums(table[self.name("limbs")][sessions], self._limbs.ids)

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        lines = table[self.name("limbs")]
        add_lines(into, gone, lines, lines)

    def keep(self, moved: Ints, table: CodeTable) -> None:
        kept = self._limbs.keep(table[self.name("limbs")].any(axis=0))
        if kept is not None:
            table.narrow(self.name("limbs"), kept)

    def state(self) -> dict[str, Part]:
        return {"limbs": self._limbs}


class Extremes(SessionValue):
    """The least word; `flip` inverts words so that the greatest becomes the least."""

    def __init__(self, spec: OfColumn, codec: Codec, flip: int) -> None:
        super().__init__(spec)
        self._column, self._codec, self._flip = spec.column, codec, np.int64(flip)

    def columns(self) -> Columns:
        return {self.name("word"): (np.int64, _GREATEST)}

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values, slots = rows.known(self._column)
        words = self._codec.encode(values) ^ self._flip
        lower(slots, words, self._codec.order(), table[self.name("word")])

    def of(self, sessions: Ints, table: CodeTable) -> pa.Array:
        return self._codec.decode(table[self.name("word")][sessions] ^ self._flip)

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        words = table[self.name("word")]
        lower(into, words[gone], self._codec.order(), words)

    def words(self, table: CodeTable) -> Ints:
        return np.asarray(table[self.name("word")] ^ self._flip, np.int64)


class Ends(SessionValue):
    """The value of one row, as a word and whether it is null."""

    def __init__(self, spec: OfColumn, codec: Codec) -> None:
        super().__init__(spec)
        self._column, self._codec = spec.column, codec

    def columns(self) -> Columns:
        return {self.name("word"): (np.int64, 0), self.name("valid"): (np.int64, 1)}

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values = rows.data.column(self._column)
        words = self._codec.encode(values)
        self._keep(rows, words, table[self.name("word")])
        self._keep(rows, valid_mask(values).astype(np.int64), table[self.name("valid")])

    @abstractmethod
    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None: ...

    def of(self, sessions: Ints, table: CodeTable) -> pa.Array:
        valid = table[self.name("valid")][sessions] == 1
        return self._codec.decode(table[self.name("word")][sessions], None if valid.all() else valid)

    def words(self, table: CodeTable) -> Ints:
        return np.asarray(table[self.name("word")], np.int64)


class Firsts(Ends):
    """The value of the earliest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_first(rows.slots, values, rows.fresh, out)


class Lasts(Ends):
    """The value of the latest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_last(rows.slots, values, out)


class DistinctCounts(RowCounts):
    """How many distinct values: a pair of session and value counts when it is new."""

    def __init__(self, spec: Distinct, below: Schema) -> None:
        super().__init__(spec)
        self._column = spec.column
        self._schema = pa.schema([("session", pa.int64()), below.field(spec.column).with_name("value")])
        self._pairs = GroupIndex(self._schema)

    def add(self, rows: Rowset, table: CodeTable) -> None:
        values, slots = rows.known(self._column)
        self._count_new(slots, values, table)

    def _count_new(self, slots: Ints, values: pa.Array, table: CodeTable) -> None:
        """Add pairs of session and value; each pair that is new adds one to the count of its session."""
        before = len(self._pairs)
        self._pairs.codes([pa.array(slots), values], len(slots))
        fresh = np.arange(before, len(self._pairs))
        if len(fresh):
            count_rows(self._pairs.keys.take(fresh)[0].to_numpy(), table[self.name("count")])

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        """Add the values of merged sessions to their targets; the old pairs are dropped by `keep`."""
        sessions, values = self._pairs.keys.take(np.arange(len(self._pairs)))
        target = np.full(len(table), EMPTY, np.int64)
        target[gone] = into
        targets = target[sessions.to_numpy()]
        moved = np.flatnonzero(targets != EMPTY)
        self._count_new(targets[moved], values.take(pa.array(moved)), table)

    def keep(self, moved: Ints, table: CodeTable) -> None:
        sessions, values = self._pairs.keys.take(np.arange(len(self._pairs)))
        codes = moved[sessions.to_numpy()]
        kept = np.flatnonzero(codes >= 0)
        self._pairs.compact(np.zeros(len(self._pairs), np.bool_))
        columns = [pa.array(codes[kept]), values.take(pa.array(kept))]
        self._pairs.codes(columns, len(kept))

    def state(self) -> dict[str, Part]:
        return {"pairs": self._pairs}


class FoldedSessions(SessionValue):
    """A user-defined aggregate: the state of each open session."""

    def __init__(self, spec: Folded, below: Schema) -> None:
        super().__init__(spec)
        self._folded, self._fold = spec, Folding(spec, below)
        self._states = Objects(spec.definition.name, spec.definition.allow_pickle)

    def columns(self) -> Columns:
        return {}

    def add(self, rows: Rowset, table: CodeTable) -> None:
        for session, columns in by_slot(rows, self._folded):
            self._states.put(session, self._fold.with_rows(self._states.get(session), columns))

    def of(self, sessions: Ints, table: CodeTable) -> pa.Array:
        """The values of sessions that are over; their states are dropped."""
        over = sessions.tolist()
        found = self._fold.array([self._fold.value(self._states.get(session)) for session in over])
        self._states.drop(over)
        return found

    def merge(self, gone: Ints, into: Ints, table: CodeTable) -> None:
        for one, other in zip(gone.tolist(), into.tolist(), strict=True):
            self._states.put(other, self._fold.joined(self._states.get(other), self._states.get(one)))
        self._states.drop(gone.tolist())

    def keep(self, moved: Ints, table: CodeTable) -> None:
        self._states.remap(moved)

    def state(self) -> dict[str, Part]:
        return {"states": self._states}


PLAIN: Final[dict[type[Any], Callable[[Any, Schema], SessionValue]]] = {
    Rows: lambda spec, below: RowCounts(spec),
    Nulls: lambda spec, below: NullCounts(spec),
    Whole: lambda spec, below: WholeSums(spec),
    Real: lambda spec, below: RealSums(spec),
    Distinct: DistinctCounts,
    Folded: FoldedSessions,
}
CODED: Final[dict[type[Any], Callable[[Any, Codec], SessionValue]]] = {
    Least: lambda spec, codec: Extremes(spec, codec, 0),
    Greatest: lambda spec, codec: Extremes(spec, codec, -1),
    First: Firsts,
    Last: Lasts,
}


def session_values(
    specs: Sequence[Spec], below: Schema, codecs: Mapping[str, Codec] | None = None
) -> tuple[list[SessionValue], Mapping[str, Codec]]:
    """The object that keeps each spec, and the codecs of the columns that need one: new ones, or these."""
    if codecs is None:
        coded = dict.fromkeys(s.column for s in specs if isinstance(s, OfColumn) and type(s) in CODED)
        codecs = {column: codec_for(below.field(column).type) for column in coded}
    return [_keeper(spec, below, codecs) for spec in specs], codecs


def _keeper(spec: Spec, below: Schema, codecs: Mapping[str, Codec]) -> SessionValue:
    """The object that keeps one partial value; those of `CODED` types share the codec of their column."""
    if isinstance(spec, OfColumn) and type(spec) in CODED:
        return CODED[type(spec)](spec, codecs[spec.column])
    return PLAIN[type(spec)](spec, below)
