"""The contract between an operator and the graph that runs it.

The graph calls `execute(limit)`; the operator takes items from its input readers, changes its state, and
appends to its output arc. The graph then reads `yields` and `more` to choose who runs next. An operator has
no threads, no clock and no I/O. Laws, each checked for every operator by `tests/contract`:

- output rows are in order of start, and later than every heartbeat the operator has passed on;
- a withdrawal never leaves before the row that it withdraws, even if the output is cut into batches;
- heartbeats passed on never decrease, and are the largest that its inputs' allow;
- its output does not depend on how its input is cut into batches or on `limit`;
- `restore(snapshot())` into a new instance continues as the old one would have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headrace.expressions.adaptive_filter import AdaptiveFilter
from headrace.flow.arc import Arc, Reader, Register
from headrace.flow.batch import Batch, concat
from headrace.operators.memory import OperatorMemory
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME


@dataclass(frozen=True)
class Need:
    """A heartbeat on input `input` of at least `heartbeat` would let the operator emit something."""

    input: int
    heartbeat: int


class Operator(ABC):
    """An operator wired into a graph.

    `arity` inputs, one output arc. `idle_waiting_prone`: may hold rows until a heartbeat releases them.
    `order_sensitive`: its answer depends on rows coming in order of time. `makes_time`: it gives rows their
    times, so heartbeats begin at it and not at its source. `keeps_rows`: its state, if any, may contain
    rows, and a query that is added later must not see them. `promise` is how a heartbeat leaves it (in-band
    or along ETS arcs); the graph sets it. `memory` measures, releases and spills what `state()` returns.
    """

    arity = 1
    idle_waiting_prone = False
    order_sensitive = False
    makes_time = False
    keeps_rows = True
    adaptive_filter: AdaptiveFilter | None = None
    """The conditions that it evaluates on rows, if any; their order may change while it runs."""

    def __init__(self) -> None:
        self.inputs: tuple[Reader, ...] = ()
        self.registers: tuple[Register, ...] = ()
        self.output = Arc()
        self.promise: Callable[[int], None] = ignore_heartbeat
        self.promised = MIN_TIME
        self.rows_out = 0
        self.memory = OperatorMemory(self.state)

    def connect(self, inputs: Sequence[Arc]) -> None:
        """Attach one reader per input arc."""
        assert len(inputs) == self.arity, (type(self).__name__, len(inputs), self.arity)
        self.inputs = tuple(arc.reader() for arc in inputs)
        self.registers = tuple(Register() for _ in inputs)

    @abstractmethod
    def execute(self, limit: int) -> int:
        """Take about `limit` rows (never half an instant where that matters), and return how many."""

    @property
    @abstractmethod
    def more(self) -> bool:
        """Whether executing now would consume or emit something."""

    @property
    def yields(self) -> bool:
        """Whether some reader of the output has something to take."""
        return any(not r.empty for r in self.output.readers)

    def needs(self) -> list[Need]:
        """The heartbeats that a waiting operator needs; empty if it holds nothing that could be emitted."""
        return []

    def demand(self, now: int) -> bool:
        """Make an ETS, if this operator makes time and the ETS would be new."""
        return False

    def map_heartbeat(self, heartbeat: int) -> int:
        """The heartbeat of the output when that of the input is `heartbeat` and nothing is held."""
        return heartbeat

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """Use a punctuation on attributes other than time; return what may be passed on, if anything."""
        return None

    def state(self) -> dict[str, Part]:
        """The parts whose snapshots make up this operator's state, by name."""
        return {}

    def emit(self, batch: Batch) -> None:
        """Append rows to the output."""
        if len(batch):
            assert batch.first > self.promised or not self.output.ordered, (type(self).__name__, batch.first)
            self.rows_out += len(batch)
            self.output.append(batch)


class Stateless(Operator):
    """One input, output at once: never waits, in-band punctuations pass through it."""

    @abstractmethod
    def apply(self, batch: Batch) -> Batch:
        """The output rows of some input rows."""

    @property
    def more(self) -> bool:
        return not self.inputs[0].empty

    def execute(self, limit: int) -> int:
        item = self.inputs[0].take(limit)
        if isinstance(item, Batch):
            self.emit(self.apply(item))
            return len(item)
        if item is not None:
            self._pass(item)
        return 0

    def _pass(self, punctuation: Punctuation) -> None:
        """Pass a punctuation on, as far as it holds for the output."""
        if not punctuation.patterns:
            self.output.punctuate(Punctuation(self.map_heartbeat(punctuation.until)))
            return
        passed = self.on_punctuation(0, punctuation)
        if passed is not None:
            self.output.punctuate(passed)


class Waiting(Operator):
    """Idle-waiting-prone: takes rows as far as the heartbeats of all inputs allow, then answers for them.

    `eager`: rows one tick past the frontier may be taken as well (the relaxed `more` of Figure 8: such a
    row is not later than any future row). Only for operators whose output for an instant may grow,
    never change, as more rows of that instant come.
    """

    idle_waiting_prone = True
    order_sensitive = True
    eager = False
    keeps_to_labels = True
    """Whether it can wait for streams that it does not read."""
    beyond: Callable[[], int] | None = None
    """The least heartbeat of such streams (Srivastava & Widom, §7); None: it waits for its inputs only."""

    def __init__(self) -> None:
        super().__init__()
        self.frontier = MIN_TIME

    @abstractmethod
    def ingest(self, input: int, batch: Batch) -> None:
        """Take rows into the state; called in order of time on each input, then `answer`."""

    @abstractmethod
    def answer(self, frontier: int) -> Batch | None:
        """Emit for all instants up to `frontier`: every row of them has been ingested."""

    def due(self) -> int:
        """The earliest instant for which the state alone has something to emit, or MAX_TIME."""
        return MAX_TIME

    def heartbeat(self, input: int) -> int:
        """The heartbeat in force on an input, in-band or by register."""
        return max(self.inputs[input].arc.heartbeat, self.registers[input].read())

    def reach(self) -> int:
        """The instant up to which every input is known to be complete."""
        low = MAX_TIME if self.beyond is None else self.beyond()
        for reader, register in zip(self.inputs, self.registers, strict=True):
            in_band, by_register = reader.arc.heartbeat, register.read()
            known = in_band if in_band > by_register else by_register
            if known < low:
                low = known
        return low

    @property
    def more(self) -> bool:
        if self._idle():
            return False
        reach = self.reach()
        limit = reach + 1 if self.eager and reach < MAX_TIME else reach
        for reader in self.inputs:
            head = reader.head()
            if (head is not None and head <= limit) or (head is None and reader.punctuations):
                return True
        return self.due() <= min(reach, MAX_TIME - 1) or self._may_promise(reach)

    def _idle(self) -> bool:
        """Whether no heartbeat could make a difference."""
        if self.promise is not ignore_heartbeat:
            return False
        for reader in self.inputs:
            if reader.rows or reader.punctuations:
                return False
        return self.due() == MAX_TIME

    def _may_promise(self, reach: int) -> bool:
        """Whether answering everything up to `reach` would let a larger heartbeat out."""
        return self.promise is not ignore_heartbeat and self._leaving(reach) > self.promised

    def execute(self, limit: int) -> int:
        reach = self.reach()
        until = self._horizon(reach, limit)
        taken = 0
        promises: list[tuple[int, Punctuation]] = []
        for i, reader in enumerate(self.inputs):
            if not reader.empty:
                taken += self._take(i, reader, until, promises)
        news = min(reach, until) > self.frontier
        if news:
            self.frontier = min(reach, until)
        if taken or news:
            out = self.answer(self.frontier)
            if out is not None:
                self.emit(out)
        for i, punctuation in promises:
            self._use(i, punctuation)
        self._pass_on()
        return taken

    def _horizon(self, reach: int, limit: int) -> int:
        """How far to take rows: as far as `reach` allows, but only about `limit` rows per input."""
        until = reach + 1 if self.eager and reach < MAX_TIME else reach
        for reader in self.inputs:
            if reader.rows > limit:
                until = min(until, reader.time_at(limit - 1))
        return until

    def _take(self, input: int, reader: Reader, until: int, promises: list[tuple[int, Punctuation]]) -> int:
        """Ingest rows up to `until`; punctuations are used after the answer, so that none overtakes a row."""
        before = reader.rows
        rows: list[Batch] = []
        for item in reader.take_until(until, reader.rows + 1):
            if isinstance(item, Batch):
                rows.append(item)
            elif item.patterns:
                promises.append((input, item))
        if rows:
            self.ingest(input, concat(rows))
        return before - reader.rows

    def _use(self, input: int, punctuation: Punctuation) -> None:
        """Apply a punctuation to the state, and pass it on if it holds for the output."""
        passed = self.on_punctuation(input, punctuation)
        if passed is not None:
            self.output.punctuate(passed)

    def _leaving(self, frontier: int) -> int:
        """The heartbeat that may leave when everything up to `frontier` is answered."""
        return self.map_heartbeat(frontier)

    def _pass_on(self) -> None:
        """Pass on the heartbeat if it has increased; registers have been read and are inactive again."""
        leaving = self._leaving(self.frontier)
        if leaving > self.promised:
            self.promised = leaving
            self.promise(leaving)
        for register in self.registers:
            register.active = False

    def needs(self) -> list[Need]:
        wanted = self._wanted()
        if wanted == MAX_TIME:
            return []
        held = self.beyond is not None and self.beyond() < wanted
        return [Need(i, wanted) for i in range(len(self.inputs)) if held or self.heartbeat(i) < wanted]

    def _wanted(self) -> int:
        """The heartbeat that every input needs to let the earliest held row or event out."""
        low = self.due()
        for reader in self.inputs:
            if reader.rows:
                head = reader.head()
                assert head is not None
                low = min(low, head - 1 if self.eager else head)
        return low


def ignore_heartbeat(heartbeat: int) -> None:
    """The promise of an operator that nobody downstream waits for."""
