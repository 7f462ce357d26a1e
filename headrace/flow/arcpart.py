"""The snapshot of an arc: what was appended since the last one, and where each reader stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headrace.flow.arc import Arc, Item
from headrace.flow.batch import Batch
from headrace.flow.punctuations import from_bytes, from_plain, to_bytes, to_plain

_TIMES = ("start", "end", "sign", "arrival")


class ArcPart:
    """Items are immutable, so only new ones are written; cursors and the heartbeat are written each time."""

    def __init__(self, arc: Arc) -> None:
        self._arc = arc
        self._marked = -1

    def bytes(self) -> int:
        return self._arc.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        arc = self._arc
        begin = arc.base if full or self._marked < 0 else max(arc.base, self._marked)
        chunk: dict[str, Any] = {"base": arc.base, "begin": begin, "heartbeat": arc.heartbeat}
        chunk["rows_in"], chunk["reset"] = arc.rows_in, full or self._marked < 0
        chunk["cursors"] = np.array([[r.position, r.offset] for r in arc.readers], np.int64).reshape(-1, 2)
        position = begin
        while (item := arc.item(position)) is not None:
            chunk |= _write(item, f"{position - begin:08d}")
            position += 1
        chunk["count"] = position - begin
        self._marked = position
        return chunk

    def apply(self, chunk: Mapping[str, Any]) -> None:
        items = [_read(chunk, f"{i:08d}") for i in range(chunk["count"])]
        self._arc.reload(chunk["reset"], chunk["begin"], items, chunk["cursors"].tolist())
        self._arc.heartbeat, self._arc.rows_in = chunk["heartbeat"], chunk["rows_in"]
        self._marked = chunk["begin"] + chunk["count"]


def _write(item: Item, at: str) -> dict[str, Any]:
    if not isinstance(item, Batch):
        return {f"{at}/punctuation": to_bytes(to_plain(item))}
    written: dict[str, Any] = {f"{at}/data": item.data}
    for name in _TIMES:
        array = getattr(item, name)
        if array is not None:
            written[f"{at}/{name}"] = array
    return written


def _read(chunk: Mapping[str, Any], at: str) -> Item:
    punctuation = chunk.get(f"{at}/punctuation")
    if punctuation is not None:
        return from_plain(from_bytes(punctuation))
    times: dict[str, Any] = {name: chunk.get(f"{at}/{name}") for name in _TIMES}
    return Batch(chunk[f"{at}/data"], **times)
