"""Sequences: rows of several streams that follow each other (Bai et al., §5, Figures 12 and 13).

An asymmetric join: rows of the last step are answered and forgotten, those of the others wait. A row is taken
once no row that comes before it is still to come, so simultaneous rows wait for the steps that come first at
an instant, and not for the others: an answer is out as soon as it is proven, and not a tick later.
"""

from __future__ import annotations

from typing import Protocol

from headrace.flow.batch import Batch
from headrace.flow.state import Part
from headrace.operators.content_order import by_content
from headrace.operators.contract import Need, Waiting
from headrace.operators.sequence_consecutive import ConsecutiveMatcher
from headrace.operators.sequence_steps import StepMatcher
from headrace.plan.order import keeps_arrival_order
from headrace.plan.sequence import Mode, Sequence
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MAX_TIME, plus


class Matcher(Protocol):
    """What waits in the partitions, and what the next rows make of it."""

    def answer(self, taken: list[Batch | None], frontier: int) -> Batch | None:
        """The matches that the rows taken, one batch a step, complete."""
        ...

    def close(self, input: int, names: tuple[str, ...], punctuation: Punctuation) -> None:
        """No row of a step will come in some partitions, told by the names of its keys."""
        ...

    def parts(self) -> dict[str, Part]:
        """The state."""
        ...


class SequenceOperator(Waiting):
    """Takes the rows of all steps in order, and answers at the time of the last.

    Of a step whose simultaneous rows go by content and whose order matters, an instant is taken as a whole.
    """

    def __init__(self, plan: Sequence) -> None:
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
        """How far, in ticks, a row of `input` may be past the heartbeat of `other`: 0 where that is first."""
        if input == other:
            return 0 if self._by_content[input] else 1
        return int((other < input) == self._plan.strict)

    def _limit(self, input: int) -> int:
        """The latest time of a row that may be taken: nothing that comes before it is still to come."""
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
        """Answers have the times of the last step: none is earlier than its rows that wait or are to come."""
        last = self.arity - 1
        head = self.inputs[last].head()
        of_last = self.heartbeat(last)
        return max(frontier, of_last if head is None else min(of_last, head - 1))

    def needs(self) -> list[Need]:
        """What lets the earliest row of the last step out; if none waits, what lets the earliest row in."""
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
        """A partition closed at a step frees what waits for it; what the last step promises passes on."""
        keys = self._plan.steps[input].keys
        if punctuation.until == MAX_TIME and set(punctuation.columns) <= set(keys):
            self._matcher.close(input, keys, punctuation)
        return punctuation if input == self.arity - 1 else None

    def state(self) -> dict[str, Part]:
        return self._matcher.parts()
