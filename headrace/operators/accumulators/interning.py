"""Words for values of any size: each different value once, under a label that keeps the order.

Labels leave gaps, so a new value finds one between its neighbours; only when a gap is used up do all labels
move, in the same order. A new value costs a binary search, a known one a hash probe. Values of types without
an order (nested ones) get labels in order of appearance.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.flow.columns import valid_mask
from headrace.flow.groups import GroupIndex
from headrace.flow.shelf import Shelf
from headrace.flow.state import Part
from headrace.flow.tables import CodeTable
from headrace.operators.accumulators.codecs import Codec, Ints, Relabelling
from headrace.schema import DataType

_LOW, _HIGH = -(2**62), 2**62
_STEP = 2**40
_SPARE = 1024


class InternedCodec(Codec):
    """A word is the label of a value; `_index` knows the values, `_labels` their labels."""

    def __init__(self, type: DataType) -> None:
        super().__init__(type)
        self._index = GroupIndex(pa.schema([("value", type)]))
        self._labels = CodeTable(label=(np.int64, 0))
        self._ordered = not pt.is_nested(type)
        self._values: list[Any] = []
        self._sorted: list[int] = []
        self._listeners: list[Callable[[Relabelling], None]] = []
        self._roomy = 0
        self._stale = False

    def on_relabel(self, listener: Callable[[Relabelling], None]) -> None:
        self._listeners.append(listener)

    def encode(self, values: pa.Array) -> Ints:
        self._refresh()
        there = np.flatnonzero(valid_mask(values))
        known = values if len(there) == len(values) else values.take(pa.array(there))
        codes = self._index.codes([known], len(known))
        self._label_new()
        words = np.zeros(len(values), np.int64)
        words[there] = self._labels["label"][codes]
        return words

    def _decode(self, words: Ints, bitmap: pa.Buffer | None) -> pa.Array:
        self._refresh()
        labels = np.asarray(self._labels["label"], np.int64)
        if not len(labels):
            return pa.nulls(len(words), self.type)
        order = np.argsort(labels)
        found = np.searchsorted(labels[order], words).clip(0, len(labels) - 1)
        values = self._index.keys.take(order[found])[0]
        if bitmap is None:
            return values
        valid = pa.Array.from_buffers(pa.bool_(), len(words), [None, bitmap])
        return (
            pa.compute.if_else(valid, values, pa.scalar(None, self.type))
            if self._plain
            else _mask(values, valid)
        )

    @property
    def _plain(self) -> bool:
        return not pt.is_nested(self.type)

    # ------------------------------------------------------------------------------------------- labels

    def _label_new(self) -> None:
        old, size = len(self._labels), len(self._index)
        if old == size:
            return
        self._labels.grow(size)
        codes = np.arange(old, size)
        values = self._index.keys.take(codes)[0].to_pylist()
        for code, value in zip(codes.tolist(), values, strict=True):
            self._labels["label"][code] = self._place(value) if self._ordered else self._append()
        self._labels.touch(codes)

    def _append(self) -> int:
        label = self._sorted[-1] + 1 if self._sorted else 0
        self._sorted.append(label)
        return label

    def _place(self, value: Any) -> int:
        """A label between those of the value's neighbours."""
        at = bisect_left(self._values, value)
        low = self._sorted[at - 1] if at else None
        high = self._sorted[at] if at < len(self._sorted) else None
        label = _between(low, high)
        if label is None:
            self._spread()
            return self._place(value)
        self._values.insert(at, value)
        self._sorted.insert(at, label)
        return label

    def _spread(self) -> None:
        """Move all labels apart, and tell everyone who holds one."""
        old = np.array(self._sorted, np.int64)
        step = min(_STEP, (_HIGH - _LOW) // (len(old) + 1))
        new = np.arange(len(old), dtype=np.int64) * step - len(old) // 2 * step

        def relabel(words: Ints) -> Ints:
            at = np.searchsorted(old, words).clip(0, len(old) - 1)
            return np.where(old[at] == words, new[at], words)

        labels = self._labels["label"]
        labels[:] = relabel(np.asarray(labels, np.int64))
        self._labels.touch(np.arange(len(self._labels)))
        self._sorted = new.tolist()
        for listener in self._listeners:
            listener(relabel)

    # -------------------------------------------------------------------------------------------- state

    def crowded(self, references: int) -> bool:
        return len(self._index) > self._roomy + max(_SPARE, references // 16)

    def forget_except(self, words: Ints) -> None:
        self._refresh()
        keep = np.isin(self._labels["label"], words)
        self._index.compact(keep)
        self._labels.keep(keep)
        self._roomy = 2 * len(self._index)
        self._stale = True

    def _refresh(self) -> None:
        """List values and labels in order again, after a restore or when some were forgotten."""
        if not self._stale:
            return
        self._stale = False
        order = np.argsort(self._labels["label"])
        self._sorted = np.asarray(self._labels["label"], np.int64)[order].tolist()
        self._values = self._index.keys.take(order)[0].to_pylist() if self._ordered else []

    def state(self) -> dict[str, Part]:
        return {"values": self._index, "labels": _Labels(self)}


class _Labels:
    """The labels as a part: a restored codec lists them anew."""

    def __init__(self, codec: InternedCodec) -> None:
        self._codec = codec
        self._table = codec._labels

    def bytes(self) -> int:
        return self._table.bytes() + 128 * len(self._table)

    def move_out(self, shelf: Shelf) -> None:
        self._table.move_out(shelf)

    def room_bytes(self) -> int:
        return self._table.room_bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self._table.changes(full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._table.apply(chunk)
        self._codec._stale = True


def _between(low: int | None, high: int | None) -> int | None:
    """A label strictly between two, or None where there is none left."""
    if low is None or high is None:
        label = (high - _STEP if high is not None else 0) if low is None else low + _STEP
        return label if _LOW < label < _HIGH else None
    return (low + high) // 2 if high - low > 1 else None


def _mask(values: pa.Array, valid: pa.Array) -> pa.Array:
    pairs = zip(values.to_pylist(), valid.to_pylist(), strict=True)
    return pa.array([value if there else None for value, there in pairs], values.type)
