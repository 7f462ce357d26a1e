"""A source node: where rows enter, are stamped, and where ETS are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from headrace.errors import InputError
from headrace.flow.arc import Arc
from headrace.flow.batch import Batch, sort_by_start
from headrace.operators.contract import ignore_heartbeat
from headrace.plan.nodes import Source, TimeKind
from headrace.time.ets import ON_DEMAND, ClockPromise, DataPromise, LatentPromise, Policy, Promise
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, MIN_TIME, plus

if TYPE_CHECKING:
    from headrace.graph.node import Node

PROMISES: dict[TimeKind, type[Promise]] = {
    TimeKind.EXTERNAL: DataPromise,
    TimeKind.INTERNAL: ClockPromise,
    TimeKind.LATENT: LatentPromise,
}


class SourceNode:
    """The buffer that wrappers fill, and the promises made on it.

    Law: no row enters the arc with a time ≤ a heartbeat that has left it.
    """

    def __init__(self, plan: Source, policy: Policy = ON_DEMAND, promise: Promise | None = None) -> None:
        self.name = plan.name
        self.kind = plan.time
        self.schema = plan.schema
        self.arc = Arc()
        self.successors: list[Node] = []
        self.tsm_successors: list[Node] = []
        self.policy = policy
        self.promise: Promise = promise or PROMISES[plan.time]()
        self.promised = MIN_TIME
        self.rows_in = 0
        self.ets_made = 0
        self.ended = False
        self._next_period = MIN_TIME
        self.spread: Callable[[int], None] = ignore_heartbeat

    def push(self, data: pa.RecordBatch, times: ArrayLike | None, now: int) -> Batch:
        """Stamp rows and put them into the buffer; returns them as they went in."""
        batch = sort_by_start(self._stamp(data, times, now))
        self._check(batch)
        if len(batch):
            self.rows_in += len(batch)
            self.arc.append(batch)
            self.promise.observe(batch.last, now)
        return batch

    def _stamp(self, data: pa.RecordBatch, times: ArrayLike | None, now: int) -> Batch:
        if self.kind is TimeKind.EXTERNAL:
            if times is None:
                raise InputError(
                    "HR-I001",
                    "rows of an external stream bring their times",
                    place=self.name,
                    hint="pass times=, one int64 per row",
                )
            arrival = np.full(data.num_rows, now, np.int64)
            return Batch(data, np.ascontiguousarray(times, np.int64), arrival=arrival)
        stamp = (
            max(now, plus(self.arc.heartbeat, 1), plus(self.promised, 1))
            if self.kind is TimeKind.INTERNAL
            else now
        )
        start = np.full(data.num_rows, stamp, np.int64)
        return Batch(data, start, arrival=start if stamp == now else np.full(data.num_rows, now, np.int64))

    def _check(self, batch: Batch) -> None:
        if self.ended:
            raise InputError("HR-I002", "the stream has ended", place=self.name, hint="push before end()")
        if not batch.data.schema.equals(self.schema):
            raise InputError(
                "HR-I003",
                f"rows have columns {batch.data.schema.names}, the stream has {self.schema.names}",
                place=self.name,
                hint="names, types and order must be those declared",
            )
        if len(batch) and self.kind is not TimeKind.LATENT and batch.first <= self.promised:
            raise InputError(
                "HR-I004",
                f"a row has time {batch.first}, but {self.promised} was promised to be past",
                place=self.name,
                hint="put an input manager in front: it keeps late rows apart",
            )
        last = self.arc.heartbeat + 1
        if len(batch) and self.kind is TimeKind.EXTERNAL and self.arc.rows_in and batch.first < last:
            raise InputError(
                "HR-I005",
                f"a row has time {batch.first} after one with {last}",
                place=self.name,
                hint="put an input manager in front: it orders rows within their bounds",
            )

    def heartbeat(self, time: int) -> bool:
        """Promise that rows to come are later than `time`, and spread it; true if that is news."""
        if time <= self.promised or self.kind is TimeKind.LATENT:
            return False
        self.promised = time
        self.spread(time)
        return True

    def demand(self, now: int) -> bool:
        """Make an ETS if the policy makes them on demand and it says something new."""
        return self.policy.demand and self._make(now)

    def tick(self, now: int) -> bool:
        """Make the periodic ETS that is due at `now`, if any."""
        if self.policy.interval == MAX_TIME or now < self._next_period:
            return False
        self._next_period = now + self.policy.interval
        return self._make(now)

    def _make(self, now: int) -> bool:
        """Promise what is known: by the promise, and by the rows themselves (all may be filtered out below)."""
        proven = max(self.promise.at(now), self.arc.heartbeat)
        made = not self.ended and self.heartbeat(proven)
        self.ets_made += made
        return made

    def reached(self) -> list[Node]:
        """The nodes that an ETS of this source may have reached first."""
        return [*self.tsm_successors, *self.successors]

    def punctuate(self, punctuation: Punctuation) -> None:
        """Put a punctuation on attributes into the buffer, in-band."""
        self.arc.punctuate(punctuation)

    def end(self) -> None:
        """Nothing more comes: a heartbeat of +∞, whatever the policy."""
        self.heartbeat(MAX_TIME)
        self.ended = True
