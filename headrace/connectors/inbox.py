"""Rows that threads and tasks hand over to a run, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from headrace.connectors.python_functions import is_row

MOST: Final = 4096
"""Items that may wait in an inbox; then whoever brings more has to wait."""


class Inbox:
    """A bounded queue of rows: one side puts, the other takes without waiting.

    An item is whatever a Python source may yield: a row as a dict, a list of rows, a table. `wake` is called
    when something came.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None, most: int = MOST) -> None:
        self._wake, self._most = wake, most
        self._changed = threading.Condition()
        self._items: deque[Any] = deque()
        self._ended = False
        self._error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        """Whether `put` would wait."""
        return len(self._items) >= self._most and not self._ended

    def put(self, rows: Any) -> bool:
        """Add rows, and wait while it is full; false once it has ended, so that no more are wanted."""
        with self._changed:
            self._changed.wait_for(lambda: not self.is_full)
            if self._ended:
                return False
            self._items.append(rows)
            self._changed.notify_all()
        self._wake()
        return True

    def end(self, error: BaseException | None = None) -> None:
        """No more rows come; with an error, whoever takes them gets it after the last row."""
        with self._changed:
            if not self._ended:
                self._ended, self._error = True, error
            self._changed.notify_all()
        self._wake()

    def first(self) -> Any:
        """The first item, which stays; waits for it. None if it ends without rows."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._ended)
            if not self._items and self._error is not None:
                raise self._error
            return self._items[0] if self._items else None

    def rows(self) -> Iterator[Any]:
        """The items as a Python source yields them: None if there are none now; single rows come together."""
        while True:
            with self._changed:
                found, ended = self._taken(), self._ended
                self._changed.notify_all()
            if found is None and ended:
                if self._error is not None:
                    raise self._error
                return
            yield found

    def _taken(self) -> Any:
        """The next rows; None if there are none."""
        if not self._items:
            return None
        first = self._items.popleft()
        if not is_row(first):
            return first
        together = [first]
        while self._items and is_row(self._items[0]):
            together.append(self._items.popleft())
        return together

    def fill_from(self, rows: Iterable[Any]) -> None:
        """Read an iterable to its end in this thread, which may wait as long as it likes."""
        try:
            for each in rows:
                if each is not None and not self.put(each):
                    break
        # The iterable is the user's code, and may raise anything.
        except BaseException as error:
            self.end(error)
        else:
            self.end()
