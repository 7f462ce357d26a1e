"""Other orders of the rows of a stream: what is read once comes to each of them, with its own times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.connectors.contract import Code
from headrace.pipeline import Pipeline, PipelineStream
from headrace.runtimes.embedded.feeds import Step
from headrace.runtimes.embedded.inflow import Piece
from headrace.runtimes.embedded.timing import Timing


def timing_of(stream: PipelineStream) -> Timing | None:
    """How to read the times of an order; None if its rows do not bring them."""
    column = stream.definition.time_column
    if column is None:
        return None
    return Timing(column, stream.unit, tuple(stream.schema.names), stream.earliest)


@dataclass(frozen=True)
class Order:
    """A stream that has the rows of another."""

    name: str
    timing: Timing | None

    def piece(self, read: Piece) -> Piece:
        """The rows as those of this stream. Input that cannot be read is bad here too."""
        bad = tuple(each for each in read.bad if each.code != Code.IMPLAUSIBLE)
        if self.timing is None:
            return Piece(self.name, read.data, None, bad)
        timed = self.timing.of(read.data)
        return Piece(self.name, timed.data, timed.times, (*bad, *timed.bad))


@dataclass
class Orders:
    """The orders of all streams of a pipeline, found again when the pipeline has changed."""

    _pipeline: Pipeline | None = None
    _orders: Mapping[str, tuple[Order, ...]] = field(default_factory=dict)

    def whole(self, step: Step, pipeline: Pipeline) -> Step:
        """The step, with the rows of each stream also in its other orders."""
        if self._pipeline is not pipeline:
            self._pipeline, self._orders = pipeline, orders_of(pipeline)
        if not self._orders:
            return step
        pieces = [
            *step.pieces,
            *(order.piece(each) for each in step.pieces for order in self._of(each.stream)),
        ]
        ends = [*step.ends, *(order.name for name in step.ends for order in self._of(name))]
        read = {order.name: at for name, at in step.read.items() for order in self._of(name)}
        return replace(step, pieces=tuple(pieces), ends=tuple(ends), read={**step.read, **read})

    def _of(self, name: str) -> Iterator[Order]:
        yield from self._orders.get(name, ())


def orders_of(pipeline: Pipeline) -> dict[str, tuple[Order, ...]]:
    """By stream, the other orders of its rows that are read."""
    found: dict[str, tuple[Order, ...]] = {}
    for name, stream in pipeline.read.items():
        if stream.of is not None:
            found[stream.of] = (*found.get(stream.of, ()), Order(name, timing_of(stream)))
    return found
