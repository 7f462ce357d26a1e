"""Python objects as state, for user-defined aggregates: each has a number and is saved if it has changed."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.aggregates.panes.values import Rowset
from headrace.aggregates.specs import Folded
from headrace.arrays import Ints
from headrace.errors import UserCodeError
from headrace.schema import DataType, Schema
from headrace.state import plain
from headrace.state.columns import valid_mask

Written = bytes
_LOOKED_AT = 8
_PLAIN, _PICKLED = b"=", b"P"
"""How an object was written: its first byte."""


class Objects:
    """A mapping whose snapshots hold the entries that were put or dropped since the last one.

    Objects are written as plain values. Other objects are pickled, and pickles are read, only with
    `allow_pickle`: the user's own code sets it, and a snapshot cannot.
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
        """The object under a key, or None."""
        return self._held.get(key)

    def put(self, key: int, value: Any) -> None:
        """Store `value`, which may be the same object as before, modified."""
        self._held[key] = value
        size = size_of(value)
        self._total += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        if self._touched is not None:
            self._touched.add(key)

    def drop(self, keys: Iterable[int]) -> None:
        """Remove some keys."""
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
        """Bytes held: an estimate for each object, which does not follow all references."""
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
        """An object as bytes: as plain data if possible, else pickled if that is allowed."""
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
        """The object that `_written` wrote."""
        if data[:1] == _PLAIN:
            return plain.loads(data[1:])
        if not self._allow_pickle:
            raise self._refused("is pickled in the checkpoint", _ALLOW)
        try:
            return pickle.loads(data[1:])
        except Exception as error:
            raise self._refused(f"cannot be read from its pickle: {error}", _IMPORTABLE) from error

    def _refused(self, why: str, hint: str) -> UserCodeError:
        """The error for a state that cannot be saved or read."""
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
    """Objects derived from others: not saved in a snapshot, and cleared when one is applied."""

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


# Calls the methods of a user-defined aggregate; errors name the aggregate and the method.


Columns = Sequence[pa.Array]
State = Any
"""Any object that the user's class returns, except None: that is the state of no rows."""

CHANGING: Final = (list, dict, set, bytearray, np.ndarray)


class Folding:
    """The methods of one aggregate over columns of one schema."""

    def __init__(self, spec: Folded, below: Schema) -> None:
        self.spec, self._name = spec, spec.definition.name
        types = [below.field(column).type for column in spec.columns]
        self.type: DataType = spec.definition.result_of(types)
        made = self._made()
        self._initialize, self._terminate = made.initialize, made.terminate
        self._iterate = made.iterate
        self._merge = getattr(made, "merge", None)
        self._expire = getattr(made, "expire", None)

    def _made(self) -> Any:
        """A new instance of the user's class."""
        try:
            return self.spec.definition.make()
        except Exception as error:
            raise _raised(self._name, "__init__", error) from error

    def with_rows(self, state: State | None, columns: Columns) -> State:
        """The state with some rows added."""
        begun = self._state("initialize", self._initialize) if state is None else state
        return self._state("iterate", self._iterate, begun, *columns)

    def without_rows(self, state: State, columns: Columns) -> State:
        """The state with some of its rows removed."""
        assert self._expire is not None
        return self._state("expire", self._expire, state, *columns)

    def joined(self, earlier: State | None, later: State | None) -> State | None:
        """The state of the rows of both; neither is modified, because both are merged into a new state."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        assert self._merge is not None
        begun = self._state("initialize", self._initialize)
        begun = self._state("merge", self._merge, begun, earlier)
        return self._state("merge", self._merge, begun, later)

    def value(self, state: State | None) -> Any:
        """The value of a state as a Python object; copied if it may be part of the state."""
        if state is None:
            return None
        try:
            found = self._terminate(state)
        except Exception as error:
            raise _raised(self._name, "terminate", error) from error
        if isinstance(found, CHANGING):
            return deepcopy(found)
        return found.as_py() if isinstance(found, pa.Scalar) else found

    def array(self, values: list[Any]) -> pa.Array:
        """The values as a column."""
        try:
            return pa.array(values, self.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            message = f"{self._name}.terminate did not return a value of type {self.type}: {error}"
            raise UserCodeError(
                "HR-U003", message, place=self._name, hint="return its declared type"
            ) from error

    def _state(self, method: str, run: Callable[..., Any], *arguments: Any) -> State:
        """Call a method that returns a state; raises an error if it fails or returns None."""
        try:
            state = run(*arguments)
        except Exception as error:
            raise _raised(self._name, method, error) from error
        if state is None:
            hint = "return the state, even if you changed it in place"
            raise UserCodeError(
                "HR-U002", f"{self._name}.{method} returned no state", place=self._name, hint=hint
            )
        return state


def _raised(name: str, method: str, error: Exception) -> UserCodeError:
    """The error for an exception in a method of a user-defined aggregate."""
    message = f"{name}.{method} raised {type(error).__name__}: {error}"
    return UserCodeError("HR-U001", message, place=name, hint="see its own traceback above this one")


def by_slot(rows: Rowset, spec: Folded) -> Iterator[tuple[int, list[pa.Array]]]:
    """The rows that the aggregate sees, slot by slot, each in order of arrival."""
    columns = [rows.data.column(name) for name in spec.columns]
    slots, order = rows.slots, None
    if not spec.definition.nulls and any(column.null_count for column in columns):
        order = np.flatnonzero(np.logical_and.reduce([valid_mask(column) for column in columns]))
        slots = slots[order]
    if len(slots) > 1 and bool((slots[1:] < slots[:-1]).any()):
        sort = np.argsort(slots, kind="stable")
        order, slots = sort if order is None else order[sort], slots[sort]
    if order is not None:
        taken = pa.array(order)
        columns = [column.take(taken) for column in columns]
    for begin, end in runs(slots):
        yield int(slots[begin]), [column.slice(begin, end - begin) for column in columns]


def runs(sorted_values: Ints) -> list[tuple[int, int]]:
    """Where each run of equal values begins and ends."""
    if not len(sorted_values):
        return []
    edges = (np.flatnonzero(sorted_values[1:] != sorted_values[:-1]) + 1).tolist()
    return list(zip([0, *edges], [*edges, len(sorted_values)], strict=True))
