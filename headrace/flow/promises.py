"""Punctuations that wait inside an operator, as parts of its snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.flow.punctuations import from_bytes, from_plain, to_bytes, to_plain
from headrace.time.punctuation import Punctuation

Entry = tuple[int, Punctuation]
_BYTES = 200
"""What an entry is taken to hold."""


class Log:
    """What came since the last snapshot; None once that is more than what is held, which is then written."""

    def __init__(self) -> None:
        self._entries: list[Entry] | None = None

    def add(self, entry: Entry, held: int) -> None:
        """Note an entry; `held` are left."""
        if self._entries is not None:
            self._entries.append(entry)
            if len(self._entries) > 2 * held + 1024:
                self._entries = None

    def written(self, held: list[Entry], full: bool) -> dict[str, Any]:
        """What a snapshot says of the entries; counts from here."""
        whole = full or self._entries is None
        entries = held if whole else self._entries or []
        self._entries = []
        written = [[number, to_plain(punctuation)] for number, punctuation in entries]
        return {"reset": whole, "entries": to_bytes(written)}

    def read(self, chunk: Mapping[str, Any]) -> list[Entry]:
        """The entries of a snapshot; counts from here."""
        self._entries = []
        return [(number, from_plain(written)) for number, written in from_bytes(chunk["entries"])]

    def bytes(self) -> int:
        return _BYTES * len(self._entries or ())


class Agreement:
    """What some inputs have promised and others have not: a promise holds once every input has made it."""

    def __init__(self, inputs: int) -> None:
        self._made: list[set[Punctuation]] = [set() for _ in range(inputs)]
        self._log = Log()

    def make(self, input: int, punctuation: Punctuation) -> bool:
        """An input makes a promise; true if now every input has made it, and it is no longer kept here."""
        agreed = self._make(input, punctuation)
        self._log.add((input, punctuation), len(self))
        return agreed

    def _make(self, input: int, punctuation: Punctuation) -> bool:
        self._made[input].add(punctuation)
        if not all(punctuation in made for made in self._made):
            return False
        for made in self._made:
            made.discard(punctuation)
        return True

    def __len__(self) -> int:
        return sum(map(len, self._made))

    def bytes(self) -> int:
        return _BYTES * len(self) + self.log_bytes()

    def log_bytes(self) -> int:
        """Bytes that are kept for the next snapshot."""
        return self._log.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return self._log.written([(i, each) for i, made in enumerate(self._made) for each in made], full)

    def apply(self, chunk: Mapping[str, Any]) -> None:
        if chunk["reset"]:
            self._made = [set() for _ in self._made]
        for input, punctuation in self._log.read(chunk):
            self._make(input, punctuation)


class Held:
    """Punctuations that would overtake rows: each waits until time has come to the last of those rows."""

    def __init__(self) -> None:
        self._held: list[Entry] = []
        self._log = Log()
        self._taken_to: int | None = None

    def hold(self, until: int, punctuation: Punctuation) -> None:
        """Keep a punctuation until the rows up to `until` have left."""
        self._held.append((until, punctuation))
        self._log.add((until, punctuation), len(self))

    def take(self, frontier: int) -> list[Punctuation]:
        """Remove and return those whose rows have left, now that rows up to `frontier` have."""
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
        """Bytes that are kept for the next snapshot."""
        return self._log.bytes()

    def changes(self, full: bool) -> Mapping[str, Any]:
        return {**self._log.written(self._held, full), "taken": self._taken_to}

    def apply(self, chunk: Mapping[str, Any]) -> None:
        self._held = [*([] if chunk["reset"] else self._held), *self._log.read(chunk)]
        if chunk["taken"] is not None:
            self.take(chunk["taken"])
