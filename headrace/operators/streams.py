"""Back to a stream: what came (IStream), what went (DStream); RStream is a file of its own."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from headrace.flow.batch import Batch, Times
from headrace.flow.state import Part
from headrace.operators.changes import Changes
from headrace.operators.contract import Operator, Stateless, Waiting
from headrace.operators.rstream import RStreamOperator
from headrace.plan.nodes import IStream, RStream, ToStream
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME

__all__ = ["ComingsOperator", "DStreamOperator", "IStreamOperator", "RStreamOperator", "istream", "rstream"]


class NetStream(Waiting):
    """One part of the net change at each instant, each row as often as copies came or went.

    A copy that goes and one that comes at the same instant cancel. Only contents with an end still to
    come are held: what is open is known again by its withdrawal.
    """

    def __init__(self, plan: ToStream) -> None:
        super().__init__()
        self.changes = Changes(plan.schema, carries=True)

    @abstractmethod
    def copies(self, deltas: Times) -> Times:
        """How often to emit a content whose count changes by `deltas`."""

    def ingest(self, input: int, batch: Batch) -> None:
        self.changes.ingest(batch)

    def answer(self, frontier: int) -> Batch | None:
        change = self.changes.take(frontier)
        chosen = np.repeat(np.arange(len(change)), self.copies(change.deltas[:, 0]))
        out = None
        if len(chosen):
            out = Batch(self.changes.rows(change.codes[chosen]), change.times[chosen])
        if self.changes.is_due_to_forget():
            self.changes.forget()
        return out

    def release(self) -> None:
        self.changes.forget(at_once=True)
        super().release()

    def spare_bytes(self) -> int:
        return super().spare_bytes() + self.changes.dead_bytes()

    def spill(self, bytes: int) -> int:
        before = self.state_bytes()
        assert self.changes.far is not None
        self.changes.far.spill(bytes)
        freed = before - self.state_bytes()
        return freed if freed >= bytes else freed + self.move_out(bytes - freed)

    def state(self) -> dict[str, Part]:
        return self.changes.parts()


class IStreamOperator(NetStream):
    """The rows that came. Ends alone never emit anything, so nothing is waited for but rows.

    A punctuation passes, for a row comes only with an element that matches it; and the contents it speaks
    of are forgotten where it holds for ever, for their ends can no longer cancel anything.
    """

    def copies(self, deltas: Times) -> Times:
        return np.maximum(deltas, 0)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        if punctuation.until == MAX_TIME:
            self.changes.drop(~self.changes.matching(punctuation))
        return punctuation


class ComingsOperator(Stateless):
    """The rows that came, where that is all there is to say.

    ISTREAM where no row comes as an equal one goes (`headrace.plan.cancelling`), RSTREAM where each row is
    valid at one tick only (`headrace.plan.reporting`).
    """

    def apply(self, batch: Batch) -> Batch:
        assert batch.sign is None or bool((batch.sign > 0).all()), "what is withdrawn might cancel another"
        return Batch(batch.data, batch.start, arrival=batch.arrival)

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        return punctuation


def istream(plan: IStream) -> Operator:
    """The operator of an ISTREAM: it remembers rows only where they may cancel."""
    return IStreamOperator(plan) if plan.nets else ComingsOperator()


def rstream(plan: RStream) -> Operator:
    """The operator of an RSTREAM: it remembers rows only where they are reported again."""
    return ComingsOperator() if plan.once else RStreamOperator(plan)


class DStreamOperator(NetStream):
    """The rows that went.

    A punctuation passes when no end of a content that it speaks of is still to come.
    """

    def copies(self, deltas: Times) -> Times:
        return np.maximum(-deltas, 0)

    def due(self) -> int:
        return self.changes.next()

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        speaks_of = self.changes.matching(punctuation) & self.changes.pending()
        far = self.changes.far
        return None if speaks_of.any() or (far and far.speaks_of(punctuation)) else punctuation
