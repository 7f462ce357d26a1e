"""The contract of an operator, as code: feed it alone in some way, watch every law, compare with the oracle.

Inputs are `Given`: relations and streams listed element by element, so that an operator is tested without
those that usually stand below it, withdrawals included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from headrace.flow.arc import Arc, Item
from headrace.flow.batch import Batch
from headrace.operators.contract import Operator, Waiting
from headrace.plan.nodes.core import Plan
from headrace.schema import Schema
from headrace.state.part import decode, encode
from headrace.testing import oracle
from headrace.testing.compare import Bag, Row, assert_same_stream, canonical_row, events_of, unmatched
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME
from tests.strategies.interleavings import Choose

Build = Callable[[Any], Operator]
LIMITS = (1000, 1, 2, 7)
PATIENCE = 400


@dataclass(frozen=True)
class Given(Plan):
    """A relation or stream whose elements are listed: `sources[name]` are `oracle.Element`s."""

    name: str
    columns: Schema
    relation: bool = True

    @property
    def inputs(self) -> tuple[Plan, ...]:
        return ()

    @property
    def schema(self) -> Schema:
        return self.columns

    @property
    def is_relation(self) -> bool:
        return self.relation

    def with_inputs(self, inputs: tuple[Plan, ...]) -> Self:
        return self

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.columns.names), self.relation))


def _listed(plan: Given, sources: Any) -> list[oracle.Element]:
    return list(sources[plan.name])


oracle.MEANINGS[Given] = _listed


@dataclass(frozen=True)
class Signed:
    """One element of a relation's batch, or of a stream's: then `end` is None."""

    row: Row
    start: int
    end: int | None = None
    sign: int = 1


def batch_of(elements: Sequence[Signed], schema: Schema) -> Batch:
    """Elements, in order of start, as one batch."""
    ordered = sorted(elements, key=lambda e: e.start)
    columns = [pa.array([e.row[i] for e in ordered], f.type) for i, f in enumerate(schema)]
    start = np.array([e.start for e in ordered], np.int64)
    ends = [e.end for e in ordered if e.end is not None]
    sign = np.array([e.sign for e in ordered], np.int8)
    data = pa.RecordBatch.from_arrays(columns, schema=schema)
    end = np.array(ends, np.int64) if ends else None
    return Batch(data, start, end, sign if (sign < 0).any() else None)


@dataclass(frozen=True)
class Case:
    """A plan node, one batch with all elements for each input, and the same for the oracle.

    `meaning` is a plan that means the same, for nodes that the oracle does not know: how rows are put in
    order changes no answer.
    """

    plan: Plan
    inputs: tuple[Batch, ...]
    sources: dict[str, Any]
    meaning: Plan | None = None


@dataclass(frozen=True)
class Terms:
    """What of the contract an operator does not promise. `timeless`: rows have no times yet.

    `disordered`: rows may come in any order that heartbeats allow, and may leave so.
    """

    timeless: bool = False
    disordered: bool = False


ALL = Terms()


@dataclass
class Watch:
    """Looks at what leaves an operator, in order: each law of the contract is an assertion."""

    plan: Plan
    terms: Terms = ALL
    batches: list[Batch] = field(default_factory=list)
    heartbeat: int = MIN_TIME
    latest: int = MIN_TIME
    promises: list[Punctuation] = field(default_factory=list)
    standing: Counter[tuple[Row, int | None]] = field(default_factory=Counter)

    def see(self, item: Item) -> None:
        if isinstance(item, Batch):
            self._rows(item)
        elif item.patterns:
            self.promises.append(item)
        else:
            assert item.until >= self.heartbeat, "heartbeats never decrease"
            self.heartbeat = item.until

    def _rows(self, batch: Batch) -> None:
        assert len(batch) > 0
        assert batch.data.schema.equals(self.plan.schema), "rows have the plan's columns"
        assert batch.data.num_rows == len(batch.start)
        assert batch.arrival is None or len(batch.arrival) == len(batch.start)
        assert (batch.end is not None) == self.plan.is_relation, "relations have ends, streams have none"
        if not self.terms.timeless:
            self._times(batch)
        self._withdrawals(batch)
        for promise in self.promises:
            assert not promise.matches(batch.start, batch.data).any(), f"{promise} is broken"
        self.batches.append(batch)

    def _times(self, batch: Batch) -> None:
        assert batch.start.min() > self.heartbeat, "rows are later than every heartbeat passed on"
        assert batch.end is None or bool(np.all(batch.start < batch.end)), "no interval is empty"
        if not self.terms.disordered:
            assert batch.first >= self.latest, "output is in order of start"
            assert bool(np.all(batch.start[:-1] <= batch.start[1:])), "a batch is in order of start"
            self.latest = batch.last

    def _withdrawals(self, batch: Batch) -> None:
        """Each row by its content and its end: never withdrawn more often than it has come so far."""
        if batch.end is None:
            return
        for e in signed_of(batch):
            self.standing[e.row, e.end] += e.sign
            assert self.standing[e.row, e.end] >= 0, f"{e.row} is withdrawn before it comes"


class Trial:
    """One operator, alone between its input arcs and a watch; `choose` decides all that may vary."""

    def __init__(self, build: Build, case: Case, choose: Choose, terms: Terms = ALL) -> None:
        self._build, self._case, self._choose = build, case, choose
        self.arcs = [Arc() for _ in case.inputs]
        self.operator = build(case.plan)
        for arc in (*self.arcs, self.operator.output):
            arc.ordered = not terms.disordered
        self.operator.connect(self.arcs)
        self.operator.promise = self._promise
        self._reader = self.operator.output.reader()
        self.watch = Watch(case.plan, terms)
        self._terms = terms
        self._pushed = [0] * len(case.inputs)
        self.told = [MIN_TIME] * len(case.inputs)
        self._chain: list[dict[str, bytes]] = []
        self.peak = 0

    def _promise(self, heartbeat: int) -> None:
        self.operator.output.punctuate(Punctuation(heartbeat))

    def run(self) -> list[Batch]:
        """Feed everything in some way, then end every input; returns the output."""
        while any(n < len(b) for n, b in zip(self._pushed, self._case.inputs, strict=True)):
            self._step()
        for _ in range(self._choose(8)):
            self._step()
        for arc in self.arcs:
            arc.punctuate(Punctuation(MAX_TIME))
        self.settle()
        if not self._terms.timeless:
            assert self.operator.output.heartbeat == MAX_TIME, "the end is passed on"
        return self.watch.batches

    def _step(self) -> None:
        rare = (self.punctuate, self.save, self.restore, self.settle, self.spill)
        actions = (self.push, self.push, self.execute, self.beat, *rare)
        actions[self._choose(len(actions))]()

    # ------------------------------------------------------------------------------------------- feeding

    def push(self) -> None:
        """Some more rows on one input, with their arrivals or without, as after a restart."""
        left = [i for i, b in enumerate(self._case.inputs) if self._pushed[i] < len(b)]
        if not left:
            return
        i = left[self._choose(len(left))]
        batch, at = self._case.inputs[i], self._pushed[i]
        count = min(len(batch) - at, 1 + self._choose(1 + self._choose(8)))
        rows = batch.slice(at, at + count)
        self.arcs[i].append(rows if self._choose(2) else replace(rows, arrival=rows.start.copy()))
        self._pushed[i] += count

    def beat(self) -> None:
        """A heartbeat that the rows to come on an input allow, in-band or by register."""
        i = self._choose(len(self.arcs))
        batch, at = self._case.inputs[i], self._pushed[i]
        last = int(batch.start[at:].min()) - 1 if at < len(batch) else 40
        value = last - self._choose(4)
        if self._terms.timeless or value <= self.arcs[i].heartbeat:
            return
        if isinstance(self.operator, Waiting) and self._choose(2):
            self.operator.registers[i].offer(value)
        else:
            self.told[i] = value
            self.arcs[i].punctuate(Punctuation(value))

    def punctuate(self) -> None:
        """A punctuation on an attribute that the rows to come on an input keep."""
        i = self._choose(len(self.arcs))
        batch, at = self._case.inputs[i], self._pushed[i]
        if len(batch) == 0 or not batch.data.num_columns:
            return
        column = self._choose(batch.data.num_columns)
        value = batch.data.column(column)[self._choose(len(batch))].as_py()
        until = MAX_TIME if self._choose(2) else int(batch.start[self._choose(len(batch))])
        promise = Punctuation(until, ((batch.data.schema.names[column], Constant(value)),))
        rest = batch.slice(at, len(batch))
        if not promise.matches(rest.start, rest.data).any():
            self.arcs[i].punctuate(promise)

    # ----------------------------------------------------------------------------------------- executing

    def execute(self) -> None:
        """Run the operator once, on some number of rows."""
        self.operator.execute(LIMITS[self._choose(len(LIMITS))])
        self.look()

    def settle(self) -> None:
        """Run the operator until it has nothing to do; then it has passed on what its inputs promise."""
        for _ in range(PATIENCE):
            if not self.operator.more:
                break
            self.execute()
        assert not self.operator.more, "an operator comes to rest"
        if not self._terms.timeless:
            self._check_passed_on()

    def _check_passed_on(self) -> None:
        """What rows imply is told to a waiting operator only: another hears of punctuations alone."""
        promised = self.told
        if isinstance(self.operator, Waiting):
            promised = [self.operator.heartbeat(i) for i in range(len(self.arcs))]
        passed = self.operator.output.heartbeat
        assert passed >= self.operator.map_heartbeat(min(promised)), "heartbeats are passed on"

    def look(self) -> None:
        """Watch what has come out."""
        while (item := self._reader.take(1 << 30)) is not None:
            self.watch.see(item)
        held = self.operator.memory.bytes()
        assert held >= 0
        self.peak = max(self.peak, held)

    def spill(self) -> None:
        """Put some of the state on disk."""
        self.operator.memory.spill(1 + self._choose(4) * self.operator.memory.bytes() // 3)

    # ----------------------------------------------------------------------------------------- snapshots

    def save(self) -> None:
        """One more snapshot: the first is full, later ones are of the change."""
        full = not self._chain or self._choose(6) == 0
        chunks = {name: encode(part.changes(full)) for name, part in self.operator.state().items()}
        self._chain = [chunks] if full else [*self._chain, chunks]

    def restore(self) -> None:
        """Go on with a new instance made from the snapshots."""
        self.save()
        old, new = self.operator, self._build(self._case.plan)
        parts = new.state()
        for chunks in self._chain:
            for name, part in parts.items():
                part.apply(decode(chunks[name]))
        new.inputs, new.registers, new.output = old.inputs, old.registers, old.output
        new.promise, new.promised, new.rows_out = self._promise, old.promised, old.rows_out
        if isinstance(new, Waiting) and isinstance(old, Waiting):
            new.frontier = old.frontier
        self.operator = new


# ------------------------------------------------------------------------------------------------ meaning


def assert_means(batches: Sequence[Batch], case: Case) -> None:
    """Fail unless the output is what the oracle says the plan means."""
    plan = case.meaning or case.plan
    if not plan.is_relation:
        events = sorted(events_of(batches), key=lambda event: event[0])
        assert_same_stream(events, oracle.stream(plan, case.sources))
        return
    elements = [e for batch in batches for e in signed_of(batch)]
    expected = oracle.relation(plan, case.sources)
    instants = {t for e in elements for t in (e.start, e.end) if t is not None}
    for instant in sorted(instants | set(expected.instants)):
        if instant < MAX_TIME:
            missing, unexpected = unmatched(expected.at(instant), content(elements, instant))
            assert not missing, f"missing at {instant}: {missing}; unexpected: {unexpected}"
            assert not unexpected, f"unexpected at {instant}: {unexpected}"


def assert_same_rows(batches: Sequence[Batch], case: Case) -> None:
    """Fail unless the output has the rows of all inputs, whatever their times."""
    came = Counter(row for _, row in events_of(case.inputs))
    assert Counter(row for _, row in events_of(batches)) == came


def content(elements: Sequence[Signed], instant: int) -> Bag:
    """The bag at an instant: the sum of the signs of the elements that cover it; none is negative."""
    bag: Bag = Counter()
    for e in elements:
        if e.end is not None and e.start <= instant < e.end:
            bag[e.row] += e.sign
    assert all(n >= 0 for n in bag.values()), f"more withdrawn than there was at {instant}: {bag}"
    return +bag


def signed_of(batch: Batch) -> list[Signed]:
    """The elements of a relation's batch."""
    assert batch.end is not None
    columns = [column.to_pylist() for column in batch.data.columns]
    rows = [canonical_row(row) for row in zip(*columns, strict=True)] if columns else [()] * len(batch)
    times = zip(batch.start.tolist(), batch.end.tolist(), batch.signs().tolist(), strict=True)
    return [Signed(row, *each) for row, each in zip(rows, times, strict=True)]
