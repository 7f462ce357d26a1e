"""Sequences: rows of several streams that follow each other (Bai et al., §5, Figures 12 and 13).

An asymmetric join: rows of the last step are answered and forgotten, rows of other steps wait. A row is taken
once no earlier row can come. So simultaneous rows wait only for the steps that come first at an instant, and
an answer is out as soon as it is proven, not a tick later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.aggregates.runs import fold_runs
from headrace.arrays import Ids, Mask
from headrace.expressions import compile_predicate
from headrace.flow.batch import Batch
from headrace.operators.content_order import by_content
from headrace.operators.contract import Need, Waiting
from headrace.operators.sequence_consecutive import ConsecutiveMatcher
from headrace.operators.state.sequence_stage import REPEATED, SINGLE, Ending, Entries, Pairs, Probes, Stage
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.sequence import Mode, StepKind
from headrace.plan.nodes.sequence import Sequence as SequenceNode
from headrace.schema import Schema
from headrace.state.part import Part
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, plus


class Matcher(Protocol):
    """The partial matches of all partitions, and how the next rows extend them."""

    def answer(self, taken: list[Batch | None], frontier: int) -> Batch | None:
        """The matches that the rows taken, one batch a step, complete."""
        ...

    def close(self, input: int, names: tuple[str, ...], punctuation: Punctuation) -> None:
        """No more rows of a step will come in the partitions that match a punctuation on its keys."""
        ...

    def parts(self) -> dict[str, Part]:
        """The state."""
        ...


class SequenceOperator(Waiting):
    """Takes the rows of all steps in order, and answers at the time of the last.

    If the order of a step's simultaneous rows matters and is by content, an instant is taken as a whole.
    """

    keeps_to_labels = False

    def __init__(self, plan: SequenceNode) -> None:
        super().__init__()
        self.arity = len(plan.steps)
        self._plan = plan
        self._matcher: Matcher = (
            ConsecutiveMatcher(plan) if plan.mode is Mode.CONSECUTIVE else StepMatcher(plan)
        )
        self._by_content = [
            plan.order_matters(i) and not keeps_arrival_order(stream) for i, stream in enumerate(plan.streams)
        ]
        self._taken: list[Batch | None] = [None] * self.arity

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken[input] = by_content(batch) if self._by_content[input] else batch

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, [None] * self.arity
        return self._matcher.answer(taken, frontier)

    # --------------------------------------------------------------------------------------------- waiting

    def _slack(self, input: int, other: int) -> int:
        """How many ticks a row of `input` may be past the heartbeat of `other`: 0 if `other` is first."""
        if input == other:
            return 0 if self._by_content[input] else 1
        return int((other < input) == self._plan.strict)

    def _limit(self, input: int) -> int:
        """The latest time of a row that may be taken: no row that comes before it is missing."""
        return min(plus(self.heartbeat(i), self._slack(input, i)) for i in range(self.arity))

    @property
    def more(self) -> bool:
        if self._idle():
            return False
        for i, reader in enumerate(self.inputs):
            head = reader.head()
            if (head is None and reader.punctuations) or (head is not None and head <= self._limit(i)):
                return True
        return self._may_promise(self.reach())

    def execute(self, limit: int) -> int:
        reach, cut = self.reach(), MAX_TIME
        for reader in self.inputs:
            if reader.rows > limit:
                cut = min(cut, reader.time_at(limit - 1))
        limits = [min(self._limit(i), cut) for i in range(self.arity)]
        promises: list[tuple[int, Punctuation]] = []
        taken = sum(self._take(i, r, limits[i], promises) for i, r in enumerate(self.inputs))
        self.frontier = max(self.frontier, min(reach, cut))
        out = self.answer(self.frontier)
        if out is not None:
            self.emit(out)
        for i, punctuation in promises:
            self._use(i, punctuation)
        self._pass_on()
        return taken

    def _leaving(self, frontier: int) -> int:
        """Answers have the times of the last step, so none is earlier than its waiting or future rows."""
        last = self.arity - 1
        head = self.inputs[last].head()
        of_last = self.heartbeat(last)
        return max(frontier, of_last if head is None else min(of_last, head - 1))

    def needs(self) -> list[Need]:
        """The heartbeats that let the earliest row of the last step be taken, or else of any step."""
        last, heads = self.arity - 1, [reader.head() for reader in self.inputs]
        waiting = [
            (head, -i if self._plan.strict else i, i) for i, head in enumerate(heads) if head is not None
        ]
        if not waiting:
            return []
        input = last if heads[last] is not None else min(waiting)[2]
        time = heads[input]
        assert time is not None
        wanted = [time - self._slack(input, i) for i in range(self.arity)]
        return [Need(i, each) for i, each in enumerate(wanted) if self.heartbeat(i) < each]

    # ---------------------------------------------------------------------------------------- punctuations

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """A partition closed at a step frees the matches that wait for it; only the last step's passes on."""
        keys = self._plan.steps[input].keys
        if punctuation.until == MAX_TIME and set(punctuation.columns) <= set(keys):
            self._matcher.close(input, keys, punctuation)
        return punctuation if input == self.arity - 1 else None

    def state(self) -> dict[str, Part]:
        return self._matcher.parts()


# Sequences step by step: a stage of matches that wait between each bound step and the next.


Taken = list[Batch | None]
Made = tuple[list[pa.Array], Ids, Ids]
"""Matches so far: the columns bound before the newest step, their first times, and their newest rows."""


class StepMatcher:
    """RECENT, CHRONICLE and UNRESTRICTED: the matches of one stage enter the next."""

    def __init__(self, plan: SequenceNode) -> None:
        self._links = [Link(plan, i) for i in range(len(plan.bound) - 1)]

    def answer(self, taken: Taken, frontier: int) -> Batch | None:
        """The matches that the rows taken complete."""
        first = taken[self._links[0].step]
        entries = None if first is None else Entries(first, first.start)
        for link in self._links:
            entries = link.go_on(entries, taken)
            link.stage.expire(frontier)
        return None if entries is None else entries.rows

    def close(self, input: int, names: tuple[str, ...], punctuation: Punctuation) -> None:
        """No row of a step will come in some partitions: drop matches that wait for it or an earlier one."""
        for link in self._links:
            if input in link.awaited:
                renamed = punctuation.rename(dict(zip(names, link.keys, strict=True)))
                assert renamed is not None
                link.stage.close(renamed)

    def parts(self) -> dict[str, Part]:
        return {f"step{link.step}": link.stage for link in self._links}


class Link:
    """From one bound step to the next: which matches wait, which rows end them, which rows extend them."""

    def __init__(self, plan: SequenceNode, index: int) -> None:
        self.step, self._next = plan.bound[index], plan.bound[index + 1]
        self.awaited = frozenset(plan.bound[index + 1 :])
        self.keys = plan.steps[self.step].keys
        of = plan.steps[self.step]
        self._folds = of.folds if of.kind is StepKind.REPEATED else None
        schema = (
            plan.streams[self.step].schema if self._folds is not None else plan.bound_before(self.step + 1)
        )
        choice = (SINGLE if self._folds is None else REPEATED)[plan.mode]
        self.stage = Stage(schema, self.keys, choice, plan.within, plan.strict)
        self._schema = plan.bound_before(self._next + 1)
        self._missing = [(i, _condition(plan, i)) for i in range(self.step + 1, self._next)]
        self._holds = _condition(plan, self._next)
        self._next_keys = plan.steps[self._next].keys
        self._keys_of = {i: plan.steps[i].keys for i, _ in self._missing}

    def go_on(self, entries: Entries | None, taken: Taken) -> Entries | None:
        """The matches made by the rows of the next step."""
        rows = taken[self._next]
        ends = [self._ending(i, condition, batch) for i, condition in self._missing if (batch := taken[i])]
        if entries is None and rows is None and not ends:
            return None
        probes = None if rows is None else _probes(rows, self._next_keys)
        pairs = self.stage.step(entries, ends, probes)
        return None if rows is None or not len(pairs.row) else self._make(pairs, rows)

    def _ending(self, step: int, condition: Condition | None, batch: Batch) -> Ending:
        """The rows of a missing step, and a function that tells which matches each of them ends."""
        probes = _probes(batch, self._keys_of[step])
        if condition is None:
            return probes, None
        holds = condition

        def true_of(matches: Ids, rows: Ids) -> Mask:
            """Whether the condition holds for each pair of a match and a row."""
            columns = [*self.stage.rows.take(matches), *batch.data.take(pa.array(rows)).columns]
            return holds(columns, len(rows))

        return probes, true_of

    def _make(self, pairs: Pairs, rows: Batch) -> Entries | None:
        """The matches made of these pairs that satisfy the condition of the step; None if there are none."""
        columns, first, newest = self._single(pairs) if self._folds is None else self._repeated(pairs)
        whole = len(newest) == len(rows) and bool((newest == np.arange(len(rows))).all())
        last = rows if whole else rows.take(newest)
        data = pa.RecordBatch.from_arrays([*columns, *last.data.columns], schema=self._schema)
        made = Entries(last.with_data(data), first)
        if self._holds is None:
            return made
        mask = self._holds(data.columns, data.num_rows)
        if not mask.any():
            return None
        return Entries(made.rows.filter(mask), first[mask])

    def _single(self, pairs: Pairs) -> Made:
        """The matches that pairs of a match and a single row make."""
        return self.stage.rows.take(pairs.row), self.stage.first(pairs.row), pairs.probe

    def _repeated(self, pairs: Pairs) -> Made:
        """A match for each run: pairs of one probe are next to each other, in order of time."""
        assert self._folds is not None
        begins = np.flatnonzero(np.diff(pairs.probe, prepend=-1))
        runs = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(pairs.probe)))
        columns = fold_runs(self._folds, self.stage.rows.rows(pairs.row), runs, len(begins))
        return columns, self.stage.first(pairs.row[begins]), pairs.probe[begins]


def _probes(batch: Batch, keys: tuple[str, ...]) -> Probes:
    return Probes([batch.data.column(k) for k in keys], batch.start)


Condition = Callable[[list[pa.Array], int], Mask]


def _condition(plan: SequenceNode, step: int) -> Condition | None:
    """The condition of a step over the columns bound so far and its own, compiled; None if it has none."""
    condition = plan.steps[step].condition
    if condition is None:
        return None
    schema = plan.seen_by(step)
    holds = compile_predicate(condition, schema)
    return lambda columns, rows: holds(_batch(columns, schema, rows))


def _batch(columns: list[pa.Array], schema: Schema, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, schema=schema)
