"""Python objects as state: what a user's aggregate made, under whole numbers, written when it changed."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from headrace.errors import UserCodeError
from headrace.flow import plain
from headrace.operators.accumulators.numbers import Ints

Written = bytes
_LOOKED_AT = 8
_PLAIN, _PICKLED = b"=", b"P"
"""How an object was written: its first byte."""


class Objects:
    """A mapping whose snapshots hold the entries that were put or dropped since the last one.

    Objects are written as plain values. Only with `allow_pickle`, which the user's own code sets and no
    snapshot can, are others pickled, and is what was pickled read.
    """

    def __init__(self, name: str, allow_pickle: bool = False) -> None:
        self._name, self._allow_pickle = name, allow_pickle
        self._held: dict[int, Any] = {}
        self._sizes: dict[int, int] = {}
        self._total = 0
        self._touched: set[int] | None = None

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __contains__(self, key: int) -> bool:
        return key in self._held

    def get(self, key: int) -> Any:
        """What is there, or None."""
        return self._held.get(key)

    def put(self, key: int, value: Any) -> None:
        """Hold `value`, which may be what was there, changed."""
        self._held[key] = value
        size = size_of(value)
        self._total += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        if self._touched is not None:
            self._touched.add(key)

    def drop(self, keys: Iterable[int]) -> None:
        """Hold nothing there."""
        for key in keys:
            if key in self._held:
                del self._held[key]
                self._total -= self._sizes.pop(key)
                if self._touched is not None:
                    self._touched.add(key)

    def remap(self, new: Ints) -> None:
        """Every key becomes new[key]; a negative one is dropped. The next snapshot writes everything."""
        moved = [(int(new[key]), key) for key in self._held]
        self._held = {to: self._held[key] for to, key in moved if to >= 0}
        self._sizes = {to: self._sizes[key] for to, key in moved if to >= 0}
        self._total = sum(self._sizes.values())
        self._touched = None

    def bytes(self) -> int:
        """Bytes held, by a look at each object rather than by following all it refers to."""
        return self._total + 100 * len(self._held)

    def changes(self, full: bool) -> Mapping[str, Any]:
        whole = full or self._touched is None
        touched = () if whole else sorted(self._touched or ())
        keys = list(self._held) if whole else [key for key in touched if key in self._held]
        gone = [key for key in touched if key not in self._held]
        blobs = [self._written(self._held[key]) for key in keys]
        self._touched = set()
        return {
            "reset": whole,
            "keys": np.array(keys, np.int64),
            "gone": np.array(gone, np.int64),
            "sizes": np.array([len(blob) for blob in blobs], np.int64),
            "objects": np.frombuffer(b"".join(blobs), np.uint8),
        }

    def _written(self, value: Any) -> Written:
        try:
            return _PLAIN + plain.dumps(value)
        except plain.NotPlain as error:
            if not self._allow_pickle:
                raise self._refused(f"cannot be saved: {error}", _MAKE_PLAIN) from None
        try:
            return _PICKLED + pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise self._refused(f"cannot be pickled: {error}", _MAKE_PLAIN) from error

    def _read(self, data: Written) -> Any:
        if data[:1] == _PLAIN:
            return plain.loads(data[1:])
        if not self._allow_pickle:
            raise self._refused("is pickled in the checkpoint", _ALLOW)
        try:
            return pickle.loads(data[1:])
        except Exception as error:
            raise self._refused(f"cannot be read from its pickle: {error}", _IMPORTABLE) from error

    def _refused(self, why: str, hint: str) -> UserCodeError:
        return UserCodeError("HR-U004", f"the state of {self._name} {why}", place=self._name, hint=hint)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self.drop(list(self._held))
        self.drop(chunk["gone"].tolist())
        body, at = chunk["objects"].tobytes(), 0
        for key, size in zip(chunk["keys"].tolist(), chunk["sizes"].tolist(), strict=True):
            self.put(key, self._read(body[at : at + size]))
            at += size
        self._touched = set()


_MAKE_PLAIN = (
    "make it of numbers, text, bytes, dates, tuples, lists, sets, dicts and arrays; "
    "or set allow_pickle = True in the class, if you trust every checkpoint that you will go on from"
)
_ALLOW = "set allow_pickle = True in the class if you trust this checkpoint: reading a pickle runs code"
_IMPORTABLE = "its classes must be importable here, as they were when it was written"


class Derived(Objects):
    """Objects that follow from others: no part of a snapshot, and void when one is applied."""

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.drop(list(self))


def size_of(value: Any) -> int:
    """About how many bytes an object holds: containers are judged by their first few elements."""
    if isinstance(value, (int, float, str)) or value is None:
        return sys.getsizeof(value)
    if isinstance(value, np.ndarray):
        return value.nbytes + 100
    own = int(getattr(value, "nbytes", 0)) or sys.getsizeof(value)
    if not isinstance(value, (list, tuple, set, frozenset, dict)) or not value:
        return own
    parts = value.items() if isinstance(value, dict) else value
    looked = [size_of(each) for each in islice(parts, _LOOKED_AT)]
    return own + sum(looked) * len(value) // len(looked)
