"""A user's aggregate at work: its methods called, with what goes wrong in them told by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import UserCodeError
from headrace.flow.columns import valid_mask
from headrace.operators.accumulators.numbers import Ints
from headrace.operators.accumulators.pane_values import Rowset
from headrace.operators.accumulators.specs import Folded
from headrace.schema import DataType, Schema

Columns = Sequence[pa.Array]
State = Any
"""Whatever the user's class says, but never None: that is the state of no rows."""

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
        try:
            return self.spec.definition.make()
        except Exception as error:
            raise _raised(self._name, "__init__", error) from error

    def with_rows(self, state: State | None, columns: Columns) -> State:
        """The state with some rows more."""
        begun = self._state("initialize", self._initialize) if state is None else state
        return self._state("iterate", self._iterate, begun, *columns)

    def without_rows(self, state: State, columns: Columns) -> State:
        """The state without some of the rows that it has."""
        assert self._expire is not None
        return self._state("expire", self._expire, state, *columns)

    def joined(self, earlier: State | None, later: State | None) -> State | None:
        """The state of the rows of both, which stay as they are: what merge may change begins empty."""
        if earlier is None or later is None:
            return later if earlier is None else earlier
        assert self._merge is not None
        begun = self._state("initialize", self._initialize)
        begun = self._state("merge", self._merge, begun, earlier)
        return self._state("merge", self._merge, begun, later)

    def value(self, state: State | None) -> Any:
        """The value of a state, as Python has it; one that may be a part of the state is copied."""
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
            message = f"{self._name}.terminate gave what is no {self.type}: {error}"
            raise UserCodeError(
                "HR-U003", message, place=self._name, hint="see its declared result"
            ) from error

    def _state(self, method: str, run: Callable[..., Any], *arguments: Any) -> State:
        try:
            state = run(*arguments)
        except Exception as error:
            raise _raised(self._name, method, error) from error
        if state is None:
            hint = "return the state, also where it was changed in place"
            raise UserCodeError(
                "HR-U002", f"{self._name}.{method} gave no state", place=self._name, hint=hint
            )
        return state


def _raised(name: str, method: str, error: Exception) -> UserCodeError:
    message = f"{name}.{method} raised {type(error).__name__}: {error}"
    return UserCodeError("HR-U001", message, place=name, hint="its own traceback stands above this one")


def by_slot(rows: Rowset, spec: Folded) -> Iterator[tuple[int, list[pa.Array]]]:
    """The rows that the aggregate is given, in pieces: of each slot its rows in order, as they came."""
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
