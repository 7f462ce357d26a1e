"""Python functions as sources and sinks.

A source is a function that yields rows; a sink is a function that is called with the rows of each commit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from headrace.connectors.conform import fit
from headrace.connectors.contract import Block, Position, Source, Span
from headrace.errors import ConnectorError, HeadraceError, InputError
from headrace.schema import Schema
from headrace.tabular import as_table


@runtime_checkable
class OpensSource(Protocol):
    """An object in place of a function, which gives a source itself."""

    def open_source(self, schema: Schema) -> Source:
        """The source of rows with these columns."""
        ...


class PythonSource:
    """Rows that a function yields: `function()` or `function(position)`, where None means the beginning.

    It yields rows; or pairs (rows, position), where the position is JSON that continues after these rows; or
    None if there are none now. When it returns, the stream ends. Called again with a position, it must yield
    the same rows in the same order; how they are divided into blocks does not matter.

    A position here is the last one that the function gave, and the number of rows that it yielded since then.
    """

    def __init__(
        self, function: Callable[..., Any], schema: Schema, place: str, *, bounded: bool = False
    ) -> None:
        self._function, self._schema, self._place = function, schema, place
        self.bounded = bounded
        self.ended = False
        self._rows: Iterator[Any] | None = None
        self._at: Any = None
        self._after = 0
        self._skip = 0
        self._ahead: list[tuple[pa.Table, Any]] = []
        self._again: int | None = None

    def read(self) -> Block | None:
        if self._again is not None:
            wanted, self._again = self._again, None
            return self._block(self._same(wanted))
        found = self._next()
        return None if found is None else self._block(found)

    def _block(self, rows: pa.Table) -> Block:
        """The rows with the declared columns; `span` is their number."""
        whole = rows.combine_chunks().to_batches()
        found = whole[0] if whole else pa.RecordBatch.from_pylist([], rows.schema)
        block = fit(found, self._schema)
        return Block(block.data, block.bad, span=rows.num_rows)

    def _same(self, wanted: int) -> pa.Table:
        """This many rows, from as many blocks of the function as it takes; the rest is read next."""
        pieces: list[pa.Table] = []
        left = wanted
        while left and (found := self._take(left)) is not None:
            pieces.append(found)
            left -= found.num_rows
        return pa.concat_tables(pieces) if pieces else self._schema.empty_table()

    def _take(self, most: int) -> pa.Table | None:
        """At most this many of the next rows; waits for a function that has none now."""
        while (found := self._next(most)) is None:
            if self.ended:
                return None
        return found

    def _next(self, most: int | None = None) -> pa.Table | None:
        """The next rows; None if there are none now."""
        while True:
            if not self._ahead and not self._load():
                return None
            rows, position = self._ahead.pop()
            skipped = min(self._skip, rows.num_rows)
            rows, self._skip = rows.slice(skipped), self._skip - skipped
            if most is not None and rows.num_rows > most:
                self._ahead.append((rows.slice(most), position))
                rows, position = rows.slice(0, most), _NONE
            if position is _NONE:
                self._after += rows.num_rows
            else:
                self._at, self._after = position, 0
            if rows.num_rows:
                return rows

    def _load(self) -> bool:
        """Ask the function for rows; false if it has none now, or has returned."""
        if self.ended:
            return False
        if self._rows is None:
            self._rows = iter(self._call())
        try:
            found = next(self._rows)
        except StopIteration:
            self.ended = True
            return False
        # The function is the user's code, and may raise anything.
        except Exception as error:
            raise failed(error, self._place) from error
        if found is None:
            return False
        rows, position = found if isinstance(found, tuple) else (found, _NONE)
        self._ahead.append((_table([rows] if is_row(rows) else rows, self._place), position))
        return True

    def _call(self) -> Any:
        """Call the function with the position to continue from."""
        try:
            return self._function(self._at) if parameters(self._function, 1) else self._function()
        except Exception as error:
            raise failed(error, self._place) from error

    def position(self) -> Position:
        return {"at": self._at, "after": self._after}

    def seek(self, position: Position, span: Span | None = None) -> None:
        self.close()
        self._at, self._after = position["at"], position["after"]
        self._skip, self._again, self.ended = self._after, span, False

    def close(self) -> None:
        rows, self._rows, self._ahead = self._rows, None, []
        if inspect.isgenerator(rows):
            rows.close()


_NONE = object()
"""The position of rows that were yielded without one."""


def is_row(rows: object) -> bool:
    """Whether this is one row as a dict, and not a dict of columns."""
    return isinstance(rows, dict) and not any(
        isinstance(value, (list, pa.Array, pa.ChunkedArray)) or hasattr(value, "__array__")
        for value in rows.values()
    )


def _table(rows: Any, place: str) -> pa.Table:
    """The rows as a table. Values of one column that do not go together are texts, and rejected later."""
    try:
        return as_table(rows, place)
    except InputError:
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


class PythonTarget:
    """A function that gets the rows of each commit: `function(rows)`, or `function(rows, commit)`.

    `commit` is a number that grows. After a crash the last commit may come again, with the same number and
    the same rows. An object with a method `last(run)` says itself which commits it has; its method
    `apply(run, commit, rows)` is then called instead.
    """

    def __init__(self, function: Any, place: str) -> None:
        self._function, self.place = function, place
        self._transactional = all(hasattr(self._function, name) for name in ("last", "apply"))

    def begin(self) -> None:
        return None

    def open(self, schema: Schema, run: str) -> None:
        return None

    def last(self, run: str) -> int | None:
        if not self._transactional:
            return None
        number = self._do(self._function.last, run)
        return 0 if number is None else int(number)

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        if self._transactional:
            self._do(self._function.apply, run, number, rows)
        elif parameters(self._function, 2) > 1:
            self._do(self._function, rows, number)
        else:
            self._do(self._function, rows)

    def _do(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        # The function is the user's code, and may raise anything.
        except Exception as error:
            raise failed(error, self.place) from error

    def close(self) -> None:
        if hasattr(self._function, "close"):
            self._do(self._function.close)


def parameters(function: Callable[..., Any], most: int) -> int:
    """How many positional arguments a function takes, up to `most`."""
    try:
        inspected = inspect.signature(function)
    except (TypeError, ValueError):
        return most
    for count in range(most, 0, -1):
        try:
            inspected.bind(*[None] * count)
        except TypeError:
            continue
        return count
    return 0


def failed(error: Exception, place: str) -> HeadraceError:
    """The error of a user's function that raised."""
    if isinstance(error, HeadraceError):
        return error
    return ConnectorError(
        "HR-C020",
        f"the function raised {type(error).__name__}: {error}",
        place=place,
        hint="everything that was committed is safe: fix the function, and run again",
    )
