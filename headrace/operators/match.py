"""MATCH_RECOGNIZE: conditions on rows are evaluated batch by batch, and automata read the results.

A variable whose condition depends on the rows matched before is tested for each partial match: then the k-th
rows of all partitions are taken together, one round after the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace import tuning
from headrace.arrays import Ids, Ints, Lines, Mask
from headrace.expressions import compile_predicate
from headrace.flow.batch import Batch, concat, sort_by_start
from headrace.operators.content_order import by_content
from headrace.operators.contract import Waiting
from headrace.operators.state.match_attempts import Attempts, Rows, Step
from headrace.operators.state.match_paths import Paths
from headrace.plan.analysis.ordering import keeps_arrival_order
from headrace.plan.nodes.match import Match
from headrace.state.part import Part
from headrace.state.rows import RowStore, bare_rows
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

_TIME = "\0time"


class MatchOperator(Waiting):
    """Answers a match when it is certain. Matches wait for uncertain ones that would be before them.

    If rows are ordered by arrival, a row is taken one tick before its instant is complete.
    """

    def __init__(self, plan: Match) -> None:
        super().__init__()
        self._plan = plan
        self._by_content = not keeps_arrival_order(plan.input)
        self.eager = not self._by_content
        below = plan.input.schema
        conditions = [variable.condition for variable in plan.variables]
        conditions += [] if plan.gate is None else [plan.gate]
        self._conditions = [None if c is None else compile_predicate(c, below) for c in conditions]
        self._tests = {
            i: compile_predicate(v.test, plan.seen_by(v))
            for i, v in enumerate(plan.variables)
            if v.test is not None
        }
        self._paths = Paths(plan)
        self._attempts = Attempts(plan, self._paths.kept)
        self._certain = RowStore(pa.schema([*plan.schema, pa.field(_TIME, pa.int64())]))
        self._taken: list[Batch] = []
        self._checked = 0

    def ingest(self, input: int, batch: Batch) -> None:
        self._taken.append(by_content(batch) if self._by_content else batch)

    def answer(self, frontier: int) -> Batch | None:
        taken, self._taken = self._taken, []
        found = [self._advance(concat(taken))] if taken else []
        found.append(self._attempts.settle(frontier))
        made = self._make(np.concatenate(found))
        self._tidy(frontier)
        return self._release(made)

    def _advance(self, batch: Batch) -> Lines:
        """The matches that some rows make certain: the last node, the time and the partition of each."""
        keys = [batch.data.column(key) for key in self._plan.keys]
        rows = Rows(self._attempts.codes(keys, len(batch)), batch.start, self._masks(batch.data))
        if self._tests:
            return self._in_rounds(rows, batch.data)
        step = self._attempts.advance(rows, np.empty(0, np.bool_), len(self._paths.nodes))
        used, places = np.unique(step.nodes[:, 1], return_inverse=True)
        if len(used):
            first = self._paths.keep_rows(batch.data.take(pa.array(used)))
            self._paths.add(step.nodes, first + places)
        return step.matches

    def _masks(self, data: pa.RecordBatch) -> Ints:
        """For each row, the variables whose conditions hold for it, and the gate, as bits."""
        always = sum(1 << i for i, condition in enumerate(self._conditions) if condition is None)
        masks = np.full(data.num_rows, always, np.int64)
        for i, condition in enumerate(self._conditions):
            if condition is not None:
                masks |= condition(data).astype(np.int64) << i
        return masks

    # ---------------------------------------------------------------------------------------------- tests

    def _in_rounds(self, rows: Rows, data: pa.RecordBatch) -> Lines:
        """Take the first row of each partition, then the second ones, and so on."""
        first = self._paths.keep_rows(data)
        matches: list[Lines] = []
        for those in _rounds(rows.codes):
            some = Rows(rows.codes[those], rows.times[those], rows.masks[those])
            answers = self._answers(some, data, those, first)
            step: Step = self._attempts.advance(some, answers, len(self._paths.nodes))
            self._paths.add(step.nodes, first + those[step.nodes[:, 1]])
            matches.append(step.matches)
        return np.concatenate(matches)

    def _answers(self, rows: Rows, data: pa.RecordBatch, those: Ids, first: int) -> Mask:
        """For each thread to which a row comes, whether the test of its variable holds."""
        candidates = self._attempts.candidates(rows)
        answers = np.zeros(len(candidates.rows), np.bool_)
        for i, holds in self._tests.items():
            wanted = (candidates.variables == i) & ((rows.masks[candidates.rows] >> i) & 1 == 1)
            if not wanted.any():
                continue
            variable, at = self._plan.variables[i], those[candidates.rows[wanted]]
            values = self._paths.values(variable.terms, candidates.paths[wanted], (first + at, i))
            columns = [*data.take(pa.array(at)).columns, *values]
            answers[wanted] = holds(pa.RecordBatch.from_arrays(columns, schema=self._plan.seen_by(variable)))
        return answers

    # ------------------------------------------------------------------------------------------- answering

    def _make(self, matches: Lines) -> Batch | None:
        """Matches as rows, in order of time."""
        if not len(matches):
            return None
        matches = matches[np.argsort(matches[:, 1], kind="stable")]
        keys = self._attempts.index.keys.take(matches[:, 2])
        columns = [*keys, *self._paths.values(self._plan.measures, np.ascontiguousarray(matches[:, 0]))]
        if not columns:
            data = bare_rows(len(matches))
        else:
            data = pa.RecordBatch.from_arrays(columns, schema=self._plan.schema)
        return Batch(data, np.ascontiguousarray(matches[:, 1]))

    def _release(self, made: Batch | None) -> Batch | None:
        """The certain matches before which there is no uncertain one; the others are kept."""
        if not len(self._certain) and (made is None or self._attempts.earliest() >= made.last):
            return made
        kept = self._certain.rows(np.arange(self._certain.base, self._certain.next))
        times = kept.column(_TIME).to_numpy()
        batch = Batch(kept.select(self._plan.schema.names), times)
        if made is not None:
            batch = sort_by_start(concat([batch, made]))
        self._certain.drop_before(self._certain.next)
        leaving = int(np.searchsorted(batch.start, self._attempts.earliest(), "right"))
        rest = batch.slice(leaving, len(batch))
        if len(rest):
            columns = [*rest.data.columns, pa.array(rest.start)]
            self._certain.append(pa.RecordBatch.from_arrays(columns, schema=self._certain.schema))
        return batch.slice(0, leaving) if leaving else None

    def _first_certain(self) -> int:
        """The time of the first match that is certain and still here."""
        if not len(self._certain):
            return MAX_TIME
        return int(self._certain.take(np.array([self._certain.base]))[-1][0].as_py())

    def due(self) -> int:
        return self._attempts.due()

    def _wanted(self) -> int:
        """A match that only the end of the stream makes certain asks for no heartbeat."""
        wanted = super()._wanted()
        return MAX_TIME if wanted == MAX_TIME - 1 else wanted

    def map_heartbeat(self, heartbeat: int) -> int:
        """Not past matches that are still here."""
        first = min(self._attempts.earliest(), self._first_certain())
        return heartbeat if first == MAX_TIME else min(heartbeat, first - 1)

    # ----------------------------------------------------------------------------------------- forgetting

    def _tidy(self, frontier: int) -> None:
        """Free what no attempt needs, once it may be half of all."""
        if len(self._attempts) + len(self._paths) <= 2 * self._checked + tuning.current.compact_after:
            return
        self._attempts.drop_expired(frontier)
        needed = self._attempts.needed(self._paths.nodes["parent"])
        self._attempts.compact(self._paths.compact(needed))
        self._checked = len(self._attempts) + len(self._paths)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        """No rows come in some partitions: their matches are certain. It passes if none is still here."""
        if not set(punctuation.columns) <= set(self._plan.keys):
            return None
        if punctuation.until == MAX_TIME:
            out = self._release(self._make(self._attempts.end(punctuation)))
            if out is not None:
                self.emit(out)
        waits = len(self._certain) or len(self._attempts.pending())
        return None if waits else punctuation

    def state(self) -> dict[str, Part]:
        return {**self._attempts.parts(), **self._paths.parts(), "certain": self._certain}


def _rounds(codes: Ids) -> Iterator[Ids]:
    """The places of the first row of each partition, of the second, and so on, each in order."""
    order = np.argsort(codes, kind="stable")
    firsts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(firsts, np.diff(firsts, append=len(codes)))
    by_rank = np.argsort(ranks, kind="stable")
    ends = np.cumsum(np.bincount(ranks))
    yield from np.split(by_rank, ends[:-1])
