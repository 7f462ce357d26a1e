"""Punctuations that wait in an operator until the last result that they speak of has left."""

from __future__ import annotations

from abc import abstractmethod

from headrace.operators.contract import Waiting
from headrace.state.promises import Held
from headrace.time.punctuation import Punctuation
from headrace.time.timestamp import MIN_TIME


class HoldsPromises(Waiting):
    """Passes a punctuation on after the last matching result: none that comes later can match."""

    def __init__(self) -> None:
        super().__init__()
        self._promises = Held()

    @abstractmethod
    def _last(self, punctuation: Punctuation) -> int | None:
        """The instant of the last matching result that is still to come, MIN_TIME if there is none.

        None if the punctuation does not hold for results.
        """

    def on_punctuation(self, input: int, punctuation: Punctuation) -> Punctuation | None:
        last = self._last(punctuation)
        if last == MIN_TIME:
            return punctuation
        if last is not None:
            self._promises.hold(last, punctuation)
        return None

    def _pass_on(self) -> None:
        released = self._promises.take(self.frontier)
        for punctuation in released:
            self.output.punctuate(punctuation)
        if released:
            self._forget_closed(len(released))
        super()._pass_on()

    def _forget_closed(self, promises: int) -> None:
        """Free what is kept for groups that some promises have closed, and that have no results to come."""
