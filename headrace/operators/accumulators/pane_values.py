"""What keeps a partial value by pane: the protocol, and the counts and sums that can be taken away again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.flow.columns import valid_mask
from headrace.flow.state import Part
from headrace.kernels.aggregate_panes import add_ints, between_ints, chain_ints, count_rows
from headrace.kernels.exact_sums import between_lines, chain_lines
from headrace.operators.accumulators.entries import Entries
from headrace.operators.accumulators.limbs import Limbs, Sums
from headrace.operators.accumulators.numbers import Ints, whole_limbs
from headrace.operators.accumulators.panes import Closing, PaneLog, Scan
from headrace.operators.accumulators.specs import Nulls, Real, Rows, Spec, Whole

Mask = npt.NDArray[np.bool_]


@dataclass
class Rowset:
    """Rows on their way into panes: their times, group codes and entries.

    Entries from `fresh` on are new. `known` gives a column without its nulls, and the entries of the rest.
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
        """The rows whose value is not null; None where that is all of them."""
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
        """Take rows into the open panes."""

    def scan(self, scan: Scan) -> None:
        """Prepare what `close` needs of entries that have just been closed, and change no more."""
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
    """Sums that can be taken away exactly: a window is the running sum at its end less that at its start."""

    def __init__(self, spec: Spec, log: PaneLog, limbs: int) -> None:
        super().__init__(spec, log)
        self._limbs = [(self.name(f"value{i}"), self.name(f"before{i}")) for i in range(limbs)]
        for value, before in self._limbs:
            self.entries.add_column(value, np.int64)
            self.entries.add_column(before, np.int64, None, kept=False)

    def scan(self, scan: Scan) -> None:
        entries = self.entries
        for value, before in self._limbs:
            chain_ints(entries["back"], entries[value], entries[before], entries.base, scan.begin, scan.stop)

    def close(self, closing: Closing) -> Any:
        return tuple(self._between(value, before, closing) for value, before in self._limbs)

    def _between(self, value: str, before: str, closing: Closing) -> Ints:
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
    """Exact sums of powers of numbers of any size; what leaves a window leaves no trace."""

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

    def _lines(self, width: int) -> Ints:
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
        """Do without limbs that only entries had that are forgotten, when these are as many as are held."""
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
