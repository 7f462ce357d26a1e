"""An arc: one physical buffer between operators, one cursor per reader (Bai et al., Figure 7).

A fork is therefore one buffer with several cursors (the paper's dummy buffers); items leave when the last
reader has passed them. Items are batches and in-band punctuations. The arc's `heartbeat` is that of its
tail: every row still to be appended has a start > `heartbeat`. On an arc that is not `ordered` rows come in
any order, and only punctuations move the heartbeat.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headrace.flow.batch import Batch, Holdings
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME

Item = Batch | Punctuation


class Arc:
    """A queue of items with a read cursor per reader."""

    __slots__ = ("_items", "_readers", "base", "heartbeat", "ordered", "part", "rows_in", "version")

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self.base = 0
        self._readers: list[Reader] = []
        self.heartbeat = MIN_TIME
        self.ordered = True
        self.rows_in = 0
        self.version = 0
        self.part: object | None = None

    def reader(self) -> Reader:
        """A new cursor at the tail: it sees items appended from now on."""
        reader = Reader(self, self.base + len(self._items))
        self._readers.append(reader)
        return reader

    def close(self, reader: Reader) -> None:
        """Remove a cursor; items that only it had not read are dropped."""
        self._readers.remove(reader)
        self.trim()

    def replace(self, old: Reader, new: Reader) -> None:
        """Replace an old cursor by a new one of this arc, at the same position."""
        new.position, new.offset = old.position, old.offset
        new.rows, new.punctuations = old.rows, old.punctuations
        self._readers.remove(new)
        self._readers[self._readers.index(old)] = new

    def append(self, batch: Batch) -> None:
        """Add rows at the tail; the heartbeat moves to just before the last of them."""
        rows = batch.start.size
        if rows == 0:
            return
        self.rows_in += rows
        self.version += 1
        if self.ordered:
            self.heartbeat = max(self.heartbeat, batch.last - 1)
        for reader in self._readers:
            reader.rows += rows
        if self._readers:
            self._items.append(batch)

    def punctuate(self, punctuation: Punctuation) -> None:
        """Add an in-band punctuation at the tail."""
        self.heartbeat = max(self.heartbeat, punctuation.heartbeat)
        self.version += 1
        for reader in self._readers:
            reader.punctuations += 1
        if self._readers:
            self._items.append(punctuation)

    def trim(self) -> None:
        """Drop the items that every reader has passed."""
        readers = self._readers
        if len(readers) == 1:
            low = readers[0].position
        else:
            low = min((r.position for r in readers), default=self.base + len(self._items))
        while self.base < low:
            self._items.popleft()
            self.base += 1

    def item(self, position: int) -> Item | None:
        """The item at an absolute position, or None at the tail."""
        index = position - self.base
        return self._items[index] if index < len(self._items) else None

    def reload(self, reset: bool, begin: int, items: list[Item], cursors: list[list[int]]) -> None:
        """Restore the content of a snapshot: `items` from position `begin` on, each reader at its cursor."""
        if reset or begin > self.base + len(self._items):
            self._items, self.base = deque(), begin
        self._items.extend(items)
        for reader, (position, offset) in zip(self._readers, cursors, strict=True):
            reader.position, reader.offset = position, offset
            rest = [self._items[i] for i in range(position - self.base, len(self._items))]
            reader.rows = sum(len(i) for i in rest if isinstance(i, Batch)) - offset
            reader.punctuations = sum(not isinstance(i, Batch) for i in rest)
        self.trim()

    @property
    def readers(self) -> tuple[Reader, ...]:
        """The cursors, in order of creation."""
        return tuple(self._readers)

    def held_rows(self) -> int:
        """Rows in the buffer, counted once for any number of readers."""
        return max((r.rows for r in self._readers), default=0)

    def held_items(self) -> int:
        """Tuples in the buffer as the papers count them: rows and punctuations."""
        return max((r.rows + r.punctuations for r in self._readers), default=0)

    def batches(self) -> list[Batch]:
        """The batches in the buffer, whole even if only a part is still unread."""
        return [item for item in self._items if isinstance(item, Batch)]

    def unread(self) -> list[Batch]:
        """The rows that some reader has not taken yet, without those of the same batches that all have."""
        begin = min(((r.position, r.offset) for r in self._readers), default=(self.base, 0))
        rest = list(self._items)[begin[0] - self.base :]
        if rest and isinstance(rest[0], Batch):
            rest[0] = rest[0].slice(begin[1], len(rest[0]))
        return [item for item in rest if isinstance(item, Batch)]

    def bytes(self) -> int:
        """Bytes of the buffered rows, each buffer once and whole."""
        return Holdings().add(self.batches())


@dataclass(eq=False)
class Reader:
    """One consumer's view of an arc: the rows and punctuations it has not taken yet."""

    arc: Arc
    position: int
    offset: int = 0
    rows: int = 0
    punctuations: int = 0

    @property
    def heartbeat(self) -> int:
        """The heartbeat of the arc: future rows are later; rows in the buffer may be earlier."""
        return self.arc.heartbeat

    @property
    def empty(self) -> bool:
        """Whether there are no items to take."""
        return self.rows == 0 and self.punctuations == 0

    def head(self) -> int | None:
        """The start of the first row not taken yet, or None."""
        if self.rows == 0:
            return None
        position, offset = self.position, self.offset
        while True:
            item = self.arc.item(position)
            assert item is not None
            if isinstance(item, Batch):
                return int(item.start[offset])
            position, offset = position + 1, 0

    def arrived(self) -> int | None:
        """When the first row not taken yet arrived, or None: there is none, or it is not known."""
        if self.rows == 0:
            return None
        position, offset = self.position, self.offset
        while not isinstance(item := self.arc.item(position), Batch):
            position, offset = position + 1, 0
        return None if item.arrival is None else int(item.arrival[offset])

    def time_at(self, index: int) -> int:
        """The start of the `index`-th row not taken yet, counted from 0."""
        position, skip = self.position, self.offset + index
        while True:
            item = self.arc.item(position)
            assert item is not None
            if isinstance(item, Batch):
                if skip < len(item):
                    return int(item.start[skip])
                skip -= len(item)
            position += 1

    def take(self, limit: int) -> Item | None:
        """The next item, at most `limit` rows of it."""
        item = self.arc.item(self.position)
        if item is None:
            return None
        if not isinstance(item, Batch):
            self._pass()
            self.punctuations -= 1
            return item
        begin = self.offset
        stop = min(len(item), begin + limit)
        self.rows -= stop - begin
        if stop == len(item):
            self._pass()
        else:
            self.offset = stop
        return item.slice(begin, stop)

    def take_until(self, time: int, limit: int) -> list[Item]:
        """Items in order while their rows start at or before `time`, at most `limit` rows.

        Punctuations before such rows, or at the head, are taken too: their promise is already in `heartbeat`.
        """
        taken: list[Item] = []
        while limit > 0:
            item = self.arc.item(self.position)
            if item is None:
                break
            if isinstance(item, Batch):
                stop = min(len(item), self.offset + limit)
                if item.start[stop - 1] > time:
                    stop = int(item.start.searchsorted(time, side="right"))
                if stop <= self.offset:
                    break
                piece = self.take(stop - self.offset)
                assert isinstance(piece, Batch)
                limit -= len(piece)
                taken.append(piece)
            else:
                punctuation = self.take(1)
                assert punctuation is not None
                taken.append(punctuation)
        return taken

    def _pass(self) -> None:
        self.position += 1
        self.offset = 0
        self.arc.trim()


# Time-Stamp Memory registers and the ETS arcs that write them (Bai et al., Figures 8–11).
#
# Each input of an idle-waiting-prone operator has a register. In the enhanced query graph an ETS arc links a
# source or an idle-waiting-prone operator directly to the register of the next such operator, past everything
# between them. A value is *active* until its reader has passed it on, so each value is passed on once.


@dataclass(eq=False)
class Register:
    """A time and an active flag. The value never decreases.

    While rows are still between the writer and the register, an offered value waits until they have passed:
    they may be earlier than the value.
    """

    path: tuple[Reader, ...] = ()
    value: int = MIN_TIME
    active: bool = False
    offered: int = MIN_TIME

    def offer(self, value: int) -> bool:
        """Write a value; true if it is greater than the last one."""
        if value <= self.offered:
            return False
        self.offered = value
        return True

    def read(self) -> int:
        """The value in force, taking over the offered one once its path is clear."""
        if self.offered > self.value and all(r.rows == 0 for r in self.path):
            self.value = self.offered
            self.active = True
        return self.value
