"""Messages of Kafka that Spark's tasks decode: Spark reads the topics, and the decoders are ours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.contract import Block
from headrace.connectors.kafka.messages import PLAIN, MessageRows
from headrace.connectors.kafka.values import ValueFormat
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED
from headrace.schema import Schema

LENGTH = "__headrace_length"
"""How long the value is; one that is too long is cut before it reaches Python."""


@dataclass(frozen=True)
class MessageColumns:
    """Messages as Spark's connector returns them, in an Arrow batch."""

    batch: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def values(self) -> Sequence[bytes | None]:
        found: list[bytes | None] = self.batch.column("value").to_pylist()
        return found

    def lengths(self) -> Sequence[int]:
        found: list[int] = self.batch.column(LENGTH).to_pylist()
        return found

    def column(self, what: str) -> pa.Array:
        return self.batch.column(what).cast(PLAIN[what])

    def take(self, rows: Sequence[int]) -> MessageColumns:
        return MessageColumns(self.batch.take(pa.array(rows, pa.int64())))


@dataclass(frozen=True)
class MessageReader:
    """Decodes messages: the columns of their values, and those that `metadata` names."""

    schema: Schema
    how: ValueFormat
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: str = ""

    def only(self, needed: frozenset[str]) -> MessageReader:
        """All columns are decoded: a message with a bad value is rejected, even if nothing reads it."""
        return self

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Block]]:
        rows = MessageRows(self.schema, self.how, self.metadata, self.place)
        for batch in batches:
            if batch.num_rows:
                newest = {name: pc.max(batch.column(name)).as_py() for name in _shared(batch)}
                yield newest, rows.block(MessageColumns(batch))


def _shared(batch: pa.RecordBatch) -> list[str]:
    """The clock, which is the same for all rows, and when rows reached the topic: the newest counts."""
    return [name for name in (NOW, REACHED) if name in batch.schema.names]
