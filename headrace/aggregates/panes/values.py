"""The protocol of partial values by pane, and the counts and sums that can be subtracted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.aggregates.codecs import Codec
from headrace.aggregates.limbs import Limbs, Sums, whole_limbs
from headrace.aggregates.panes.entries import Entries
from headrace.aggregates.panes.log import Closing, PaneLog, Scan
from headrace.aggregates.specs import Nulls, OfColumn, Real, Rows, Spec, Whole
from headrace.arrays import Ints, Mask
from headrace.kernels.aggregate_panes import (
    add_ints,
    between_ints,
    chain_ints,
    count_rows,
    join_least,
    keep_first,
    keep_last,
    lower,
    prefix_least,
    suffix_least,
)
from headrace.kernels.exact_sums import between_lines, chain_lines
from headrace.state.columns import valid_mask
from headrace.state.part import Part

if TYPE_CHECKING:
    from headrace.aggregates.session_values import SessionValue
    from headrace.state.code_table import CodeTable


@dataclass
class Rowset:
    """Rows to be added to panes: their times, group codes and entries.

    Entries from `fresh` on are new. `known` returns the non-null values of a column and their entries.
    """

    times: Ints
    codes: Ints
    slots: Ints
    fresh: int
    data: pa.RecordBatch
    _known: dict[str, Ints | None] = field(default_factory=dict)

    def known(self, column: str) -> tuple[pa.Array, Ints]:
        """The non-null values of a column, and the entry of each."""
        values = self.data.column(column)
        rows = self.known_rows(column)
        return (values, self.slots) if rows is None else (values.take(pa.array(rows)), self.slots[rows])

    def known_rows(self, column: str) -> Ints | None:
        """The rows whose value is not null; None if all are."""
        if column not in self._known:
            values = self.data.column(column)
            self._known[column] = np.flatnonzero(valid_mask(values)) if values.null_count else None
        return self._known[column]


class PaneValue(ABC):
    """Keeps one partial value in columns of the entries.

    Laws: `close` gives, for each output row, the value over exactly the rows of the entries from head to
    tail; it costs nothing per pane between them.
    """

    def __init__(self, spec: Spec, log: PaneLog) -> None:
        self.spec = spec
        self.entries: Entries = log.entries

    def name(self, part: str) -> str:
        """The column of the entries that holds a part of the value."""
        return f"{self.spec}/{part}"

    @abstractmethod
    def add(self, rows: Rowset) -> None:
        """Add rows to the open panes."""

    def receive(self, slots: Ints, of: SessionValue, cells: Ints, table: CodeTable) -> None:
        """Take over what `of` keeps in some lines of a table, each as one of these new entries."""
        raise NotImplementedError(self.spec)

    def scan(self, scan: Scan) -> None:
        """Prepare entries that have just been closed, and will not change any more, for `close`."""
        return

    @abstractmethod
    def close(self, closing: Closing) -> Any:
        """The value of each output row, in the form that the spec states."""

    def remap(self, new: Ints, keep: Mask) -> None:
        """The groups have new codes."""
        return

    def drop(self) -> None:
        """The log has forgotten entries."""
        return

    def words(self) -> Ints:
        """The words of a codec that are in use."""
        return np.empty(0, np.int64)

    def state(self) -> dict[str, Part]:
        """State beyond the columns of the entries."""
        return {}


class IntSums(PaneValue):
    """Sums with exact subtraction: a window is the running sum at its end minus that at its start."""

    def __init__(self, spec: Spec, log: PaneLog, limbs: int) -> None:
        super().__init__(spec, log)
        self._limbs = [(self.name(f"value{i}"), self.name(f"before{i}")) for i in range(limbs)]
        for value, before in self._limbs:
            self.entries.add_column(value, np.int64)
            self.entries.add_column(before, np.int64, None, kept=False)

    def receive(self, slots: Ints, of: SessionValue, cells: Ints, table: CodeTable) -> None:
        for (value, _), column in zip(self._limbs, of.columns(), strict=True):
            ring = self.entries[value]
            ring[slots & (len(ring) - 1)] = table[column][cells]

    def scan(self, scan: Scan) -> None:
        entries = self.entries
        for value, before in self._limbs:
            chain_ints(entries["back"], entries[value], entries[before], entries.base, scan.begin, scan.stop)

    def close(self, closing: Closing) -> Any:
        return tuple(self._between(value, before, closing) for value, before in self._limbs)

    def _between(self, value: str, before: str, closing: Closing) -> Ints:
        """The sum over the entries of each output row; `before` is the column of running sums."""
        out = np.empty(len(closing.heads), np.int64)
        between_ints(self.entries[value], self.entries[before], closing.heads, closing.tails, out)
        return out


class RowCounts(IntSums):
    """How many rows."""

    def __init__(self, spec: Rows, log: PaneLog, _: pa.Schema) -> None:
        super().__init__(spec, log, 1)

    def add(self, rows: Rowset) -> None:
        count_rows(rows.slots, self.entries[self._limbs[0][0]])

    def close(self, closing: Closing) -> Ints:
        counts: Ints = super().close(closing)[0]
        return counts


class NullCounts(IntSums):
    """How many nulls; nothing is computed until there is one."""

    def __init__(self, spec: Nulls, log: PaneLog, _: pa.Schema) -> None:
        super().__init__(spec, log, 1)
        self._column = spec.column
        self._seen = False

    def add(self, rows: Rowset) -> None:
        values = rows.data.column(self._column)
        if values.null_count:
            self._seen = True
            count_rows(rows.slots[~valid_mask(values)], self.entries[self._limbs[0][0]])

    def receive(self, slots: Ints, of: SessionValue, cells: Ints, table: CodeTable) -> None:
        super().receive(slots, of, cells, table)
        self._seen = self._seen or bool(of.of(cells, table).any())

    def scan(self, scan: Scan) -> None:
        if scan.begin == self.entries.base and not self._seen:
            self._seen = bool(self.entries.read(self._limbs[0][0], self.entries.base).any())
        if self._seen:
            super().scan(scan)

    def close(self, closing: Closing) -> Ints | int:
        return super().close(closing)[0] if self._seen else 0


class WholeSums(IntSums):
    """Exact sums of whole numbers and decimals."""

    def __init__(self, spec: Whole, log: PaneLog, _: pa.Schema) -> None:
        super().__init__(spec, log, spec.limbs)
        self._column, self._count = spec.column, spec.limbs

    def add(self, rows: Rowset) -> None:
        values, slots = rows.known(self._column)
        for (name, _), limb in zip(self._limbs, whole_limbs(values, self._count), strict=True):
            add_ints(slots, limb, self.entries[name])


class RealSums(PaneValue):
    """Exact sums of powers of numbers of any size; a number that leaves a window leaves no error."""

    def __init__(self, spec: Real, log: PaneLog, _: pa.Schema) -> None:
        super().__init__(spec, log)
        self._column, self._limbs = spec.column, Limbs(spec.power)
        self._value, self._before = self.name("value"), self.name("before")
        self.entries.add_column(self._value, np.int64, width=len(self._limbs))
        self.entries.add_column(self._before, np.int64, None, kept=False, width=len(self._limbs))
        self._looked_at = 0

    def add(self, rows: Rowset) -> None:
        values, slots = rows.known(self._column)
        self._limbs.add(values, slots, self._lines)

    def receive(self, slots: Ints, of: SessionValue, cells: Ints, table: CodeTable) -> None:
        sums: Sums = of.of(cells, table)
        self._limbs.have(sums.ids)
        lines = self._lines(len(self._limbs))
        places = (slots & (len(lines) - 1))[:, None]
        lines[places, self._limbs.column[sums.ids]] = sums.lines

    def _lines(self, width: int) -> Ints:
        """The limbs of the entries, at least `width` per line."""
        self.entries.widen(self._value, width)
        return self.entries[self._value]

    def scan(self, scan: Scan) -> None:
        self.entries.widen(self._before, len(self._limbs))
        values, before = self.entries[self._value], self.entries[self._before]
        chain_lines(self.entries["back"], values, before, self.entries.base, scan.begin, scan.stop)

    def close(self, closing: Closing) -> Sums:
        out = np.empty((len(closing.heads), len(self._limbs)), np.int64)
        values, before = self.entries[self._value], self.entries[self._before]
        between_lines(values, before, closing.heads, closing.tails, out)
        return Sums(out, self._limbs.ids)

    def drop(self) -> None:
        """Drop limbs that no entry uses; checks only after as many entries have left as are held."""
        if self.entries.base < self._looked_at + len(self.entries):
            return
        self._looked_at = self.entries.base + 1
        values = self.entries.read(self._value, self.entries.base)
        kept = self._limbs.keep(values.any(axis=0))
        if kept is not None:
            for name in (self._value, self._before):
                self.entries.narrow(name, kept)

    def state(self) -> dict[str, Part]:
        return {"limbs": self._limbs}


# Extremes: kept by pane, because a value cannot be subtracted from them; windows are merged from blocks.


_GREATEST = np.iinfo(np.int64).max


class Extremes(PaneValue):
    """The least word of each entry; `_flip` inverts words so that the greatest becomes the least."""

    def __init__(self, spec: OfColumn, log: PaneLog, codec: Codec, flip: int) -> None:
        super().__init__(spec, log)
        self._column, self._codec, self._flip = spec.column, codec, np.int64(flip)
        self._value, self._prefix, self._suffix = (self.name(k) for k in ("value", "prefix", "suffix"))
        for name in (self._value, self._prefix, self._suffix):
            kept = name == self._value
            self.entries.add_column(name, np.int64, _GREATEST if kept else None, kept)

    def add(self, rows: Rowset) -> None:
        values, slots = rows.known(self._column)
        words = self._codec.encode(values) ^ self._flip
        lower(slots, words, self._codec.order(), self.entries[self._value])

    def receive(self, slots: Ints, of: SessionValue, cells: Ints, table: CodeTable) -> None:
        ring = self.entries[self._value]
        for column in of.columns():
            ring[slots & (len(ring) - 1)] = table[column][cells]

    def scan(self, scan: Scan) -> None:
        value, prefix, suffix = (self.entries[n] for n in (self._value, self._prefix, self._suffix))
        order = self._codec.order()
        prefix_least(self.entries["back"], scan.open, scan.begin, order, value, prefix)
        suffix_least(self.entries["ahead"], scan.done, order, value, suffix)

    def close(self, closing: Closing) -> pa.Array:
        out = np.empty(len(closing.heads), np.int64)
        ends = (closing.rows, closing.cuts, closing.heads, closing.tails)
        order = self._codec.order()
        join_least(*ends, order, self.entries[self._suffix], self.entries[self._prefix], out)
        return self._codec.decode(out ^ self._flip)

    def words(self) -> Ints:
        """The words in use."""
        return np.asarray(self.entries.read(self._value, self.entries.base) ^ self._flip, np.int64)


# The first and the last value of a window: those of its first and its last entry.


class Ends(PaneValue):
    """One row's value per entry, as a word and whether it is null."""

    def __init__(self, spec: OfColumn, log: PaneLog, codec: Codec) -> None:
        super().__init__(spec, log)
        self._column, self._codec = spec.column, codec
        self._word, self._valid = self.name("word"), self.name("valid")
        self.entries.add_column(self._word, np.int64)
        self.entries.add_column(self._valid, np.int64, 1)

    def add(self, rows: Rowset) -> None:
        values = rows.data.column(self._column)
        words = self._codec.encode(values)
        self._keep(rows, words, self.entries[self._word])
        self._keep(rows, valid_mask(values).astype(np.int64), self.entries[self._valid])

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        """Write the value of one row to each entry; subclasses choose which row."""
        raise AssertionError(type(self))

    def _at(self, entries: Ints) -> pa.Array:
        """The values of some entries."""
        positions = entries & (len(self.entries[self._word]) - 1)
        valid = self.entries[self._valid][positions] == 1
        return self._codec.decode(self.entries[self._word][positions], None if valid.all() else valid)

    def words(self) -> Ints:
        """The words in use."""
        return np.asarray(self.entries.read(self._word, self.entries.base), np.int64)


class Firsts(Ends):
    """The value of the earliest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_first(rows.slots, values, rows.fresh, out)

    def close(self, closing: Closing) -> pa.Array:
        return self._at(closing.heads)


class Lasts(Ends):
    """The value of the latest row."""

    def _keep(self, rows: Rowset, values: Ints, out: Ints) -> None:
        keep_last(rows.slots, values, out)

    def close(self, closing: Closing) -> pa.Array:
        return self._at(closing.tails)
