"""User-defined aggregates by pane: a state per entry if states can be merged, else the rows of the entry."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, takewhile
from typing import Any

import pyarrow as pa

from headrace.aggregates.objects import Derived, Folding, Objects, State, by_slot
from headrace.aggregates.panes.log import Closing, PaneLog, Scan
from headrace.aggregates.panes.values import PaneValue, Rowset
from headrace.aggregates.specs import Folded
from headrace.arrays import Ints, Mask
from headrace.state.part import Part


class FoldedPanes(PaneValue):
    """The base of both classes: an object per entry, dropped with its pane."""

    def __init__(self, spec: Folded, log: PaneLog, below: pa.Schema) -> None:
        super().__init__(spec, log)
        self._folded, self._fold = spec, Folding(spec, below)
        self._held = Objects(spec.definition.name, spec.definition.allow_pickle)

    def drop(self) -> None:
        self._held.drop(_before(self._held, self.entries.base))

    def state(self) -> dict[str, Part]:
        return {"objects": self._held}


class MergedStates(FoldedPanes):
    """A state per entry; a window merges a suffix of one block with a prefix of the next.

    So an entry costs two merges and an output row one, however many panes a window has
    (`headrace.kernels.aggregate_panes`).
    """

    def __init__(self, spec: Folded, log: PaneLog, below: pa.Schema) -> None:
        super().__init__(spec, log, below)
        self._prefix, self._suffix = Derived(spec.definition.name), Derived(spec.definition.name)

    def add(self, rows: Rowset) -> None:
        for entry, columns in by_slot(rows, self._folded):
            self._held.put(entry, self._fold.with_rows(self._held.get(entry), columns))

    def scan(self, scan: Scan) -> None:
        self._scan_ahead(scan.open.tolist(), scan.begin)
        self._scan_back(scan.done.tolist())

    def _scan_ahead(self, edges: list[int], begin: int) -> None:
        """Merge the states of each block from its start up to each entry from `begin` on."""
        back = self.entries["back"]
        mask = len(back) - 1
        for first, end in pairwise(edges):
            for entry in range(max(begin, first), end):
                before = entry - int(back[entry & mask])
                earlier = self._prefix.get(before) if first <= before < entry else None
                self._prefix.put(entry, self._fold.joined(earlier, self._held.get(entry)))

    def _scan_back(self, edges: list[int]) -> None:
        """Merge the states of each block from each entry to its end."""
        ahead = self.entries["ahead"]
        mask = len(ahead) - 1
        for first, end in pairwise(edges):
            for entry in range(end - 1, first - 1, -1):
                after = entry + int(ahead[entry & mask])
                later = self._suffix.get(after) if entry < after < end else None
                self._suffix.put(entry, self._fold.joined(self._held.get(entry), later))

    def close(self, closing: Closing) -> pa.Array:
        heads, tails = closing.heads.tolist(), closing.tails.tolist()
        rows, cuts = closing.rows.tolist(), closing.cuts.tolist()
        found: list[Any] = []
        for window, cut in enumerate(cuts):
            ends = range(rows[window], rows[window + 1])
            found += [self._fold.value(self._between(heads[row], tails[row], cut)) for row in ends]
        return self._fold.array(found)

    def _between(self, head: int, tail: int, cut: int) -> State | None:
        """The state of a group from `head` to `tail`; `cut` is the first entry after the block edge."""
        if head >= cut:
            return self._prefix.get(tail)
        before = self._suffix.get(head)
        return before if tail < cut else self._fold.joined(before, self._prefix.get(tail))

    def drop(self) -> None:
        super().drop()
        for derived in (self._prefix, self._suffix):
            derived.drop(_before(derived, self.entries.base))

    def state(self) -> dict[str, Part]:
        return {**super().state(), "prefix": self._prefix, "suffix": self._suffix}


class KeptRows(FoldedPanes):
    """The rows of each entry; a group's window is computed unless it has the same rows as the last one.

    Rows are copied, so that a row does not keep its whole batch in memory.
    """

    def __init__(self, spec: Folded, log: PaneLog, below: pa.Schema) -> None:
        super().__init__(spec, log, below)
        self._last = Derived(spec.definition.name)
        self._types = [below.field(name).type for name in spec.columns]

    def add(self, rows: Rowset) -> None:
        for entry, columns in by_slot(rows, self._folded):
            own = [pa.concat_arrays([column]) for column in columns]
            self._held.put(entry, [*(self._held.get(entry) or ()), own])

    def close(self, closing: Closing) -> pa.Array:
        ends = (closing.codes.tolist(), closing.heads.tolist(), closing.tails.tolist())
        return self._fold.array([self._value(*each) for each in zip(*ends, strict=True)])

    def _value(self, code: int, head: int, tail: int) -> Any:
        """The value of a group from `head` to `tail`; computed only if these differ from last time."""
        known = self._last.get(code)
        if known is not None and known[:2] == (head, tail):
            return known[2]
        pieces = self._pieces(head, tail)
        value = (
            self._fold.value(self._fold.with_rows(None, _together(pieces, self._types))) if pieces else None
        )
        self._last.put(code, (head, tail, value))
        return value

    def _pieces(self, head: int, tail: int) -> list[list[pa.Array]]:
        """The rows of a group's entries from `head` to `tail`, as a list of columns for each addition."""
        ahead = self.entries["ahead"]
        mask = len(ahead) - 1
        entry, found = head, list(self._held.get(head) or ())
        while entry != tail:
            entry += int(ahead[entry & mask])
            found += self._held.get(entry) or ()
        return found

    def drop(self) -> None:
        super().drop()
        self._last.drop([code for code in self._last if self._last.get(code)[1] < self.entries.base])

    def remap(self, new: Ints, keep: Mask) -> None:
        self._last.clear()

    def state(self) -> dict[str, Part]:
        return {**super().state(), "last": self._last}


def _before(entries: Iterable[int], base: int) -> list[int]:
    """The entries before `base`. Entries are nearly in order, so the search stops at the first later one."""
    return list(takewhile(base.__gt__, entries))


def _together(pieces: list[list[pa.Array]], types: list[pa.DataType]) -> list[pa.Array]:
    """Several pieces of rows as one; pieces kept since before a column became wider are widened here."""
    columns = zip(*pieces, strict=True)
    return [
        pa.concat_arrays([piece.cast(type_) for piece in column])
        for column, type_ in zip(columns, types, strict=True)
    ]


def folded_panes(spec: Folded, log: PaneLog, below: pa.Schema) -> FoldedPanes:
    """The object that keeps a user-defined aggregate by pane."""
    return (MergedStates if spec.definition.merges else KeptRows)(spec, log, below)
