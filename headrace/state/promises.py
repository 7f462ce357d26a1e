"""Punctuations that wait inside an operator, as parts of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from headrace import tuning
from headrace.arrays import Bytes
from headrace.errors import GraphError
from headrace.state import plain
from headrace.time.punctuation import Between, Constant, OneOf, Pattern, Punctuation

Entry = tuple[int, Punctuation]
_BYTES = 200
"""The estimated size of an entry."""


class Log:
    """Entries since the last snapshot; None once they outnumber those held, which are then all written."""

    def __init__(self) -> None:
        self._entries: list[Entry] | None = None

    def add(self, entry: Entry, held: int) -> None:
        """Note an entry; `held` is the number of entries held."""
        if self._entries is not None:
            self._entries.append(entry)
            if len(self._entries) > 2 * held + 1024:
                self._entries = None

    def written(self, held: list[Entry], full: bool) -> dict[str, Any]:
        """The entries for a snapshot; starts the next increment."""
        whole = full or self._entries is None
        entries = held if whole else self._entries or []
        self._entries = []
        written = [[number, to_plain(punctuation)] for number, punctuation in entries]
        return {"reset": whole, "entries": to_bytes(written)}

    def read(self, chunk: Mapping[str, Any]) -> list[Entry]:
        """The entries of a snapshot; starts the next increment."""
        self._entries = []
        return [(number, from_plain(written)) for number, written in from_bytes(chunk["entries"])]

    def bytes(self) -> int:
        return _BYTES * len(self._entries or ())


class Agreement:
    """Promises that some inputs have made and others have not: one holds once every input has made it.

    Perhaps one input never makes any. Of each input, the newest promises are kept: to forget one frees less
    state above, and changes no result.
    """

    def __init__(self, inputs: int) -> None:
        self._made: list[dict[Punctuation, None]] = [{} for _ in range(inputs)]
        self._log = Log()

    def make(self, input: int, punctuation: Punctuation) -> bool:
        """An input makes a promise; true if every input has made it now, and then it is forgotten."""
        agreed = self._make(input, punctuation)
        self._log.add((input, punctuation), len(self))
        return agreed

    def _make(self, input: int, punctuation: Punctuation) -> bool:
        """Note the promise of one input; once all inputs have made it, forget it and return True."""
        mine = self._made[input]
        mine[punctuation] = None
        if all(punctuation in made for made in self._made):
            for made in self._made:
                del made[punctuation]
            return True
        if len(mine) > tuning.current.promises_kept:
            del mine[next(iter(mine))]
        return False

    def __len__(self) -> int:
        return sum(map(len, self._made))

    def bytes(self) -> int:
        return _BYTES * len(self) + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return self._log.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self._log.written([(i, each) for i, made in enumerate(self._made) for each in made], full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._made = [{} for _ in self._made]
        for input, punctuation in self._log.read(chunk):
            self._make(input, punctuation)


class Held:
    """Punctuations that must not overtake rows: each waits until the last of those rows has left."""

    def __init__(self) -> None:
        self._held: list[Entry] = []
        self._log = Log()
        self._taken_to: int | None = None

    def hold(self, until: int, punctuation: Punctuation) -> None:
        """Keep a punctuation until the rows up to `until` have left."""
        self._held.append((until, punctuation))
        self._log.add((until, punctuation), len(self))

    def take(self, frontier: int) -> list[Punctuation]:
        """Remove and return the punctuations whose rows have left, now that rows up to `frontier` have."""
        if not self._held:
            return []
        self._taken_to = frontier
        ready = [punctuation for until, punctuation in self._held if until <= frontier]
        if ready:
            self._held = [each for each in self._held if each[0] > frontier]
        return ready

    def __len__(self) -> int:
        return len(self._held)

    def bytes(self) -> int:
        return _BYTES * len(self) + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes kept for the next snapshot."""
        return self._log.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {**self._log.written(self._held, full), "taken": self._taken_to}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._held = [*([] if chunk["reset"] else self._held), *self._log.read(chunk)]
        if chunk["taken"] is not None:
            self.take(chunk["taken"])


# Punctuations as plain data, for snapshots.


_PATTERNS: Final[dict[str, type[Pattern]]] = {"constant": Constant, "one of": OneOf, "between": Between}
_NAMES: Final = {kind: name for name, kind in _PATTERNS.items()}


def to_plain(punctuation: Punctuation) -> list[Any]:
    """A punctuation as plain values."""
    patterns = [[name, _NAMES[type(each)], *vars(each).values()] for name, each in punctuation.patterns]
    return [punctuation.until, patterns]


def from_plain(written: list[Any]) -> Punctuation:
    """The punctuation that `to_plain` wrote."""
    until, patterns = written
    return Punctuation(until, tuple((name, _PATTERNS[kind](*values)) for name, kind, *values in patterns))


def to_bytes(value: Any) -> Bytes:
    """Plain values as bytes for a chunk of a snapshot."""
    try:
        return np.frombuffer(plain.dumps(value), np.uint8)
    except plain.NotPlain as error:
        raise GraphError(
            "HR-G019",
            f"a punctuation holds {error}, which a snapshot cannot hold",
            hint="use numbers, text, bytes, dates, times and decimals in patterns",
        ) from None


def from_bytes(written: Bytes) -> Any:
    """The values that `to_bytes` wrote."""
    try:
        return plain.loads(written.tobytes())
    except plain.Malformed as error:
        raise unreadable(str(error)) from error


def unreadable(reason: str) -> GraphError:
    """The error for a snapshot with content that this version did not write."""
    return GraphError(
        "HR-G020",
        f"the snapshot cannot be read: {reason}",
        hint="it is damaged or was written by another version: use another checkpoint, or start over",
    )
