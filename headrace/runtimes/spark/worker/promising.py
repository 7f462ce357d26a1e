"""Rows that are punctuations or heartbeats: recognised where Spark reads them, sent to the shards.

A shard gets only a part of a stream's rows, but a promise is about all of them. So each task that reads such
rows sends what they promise to all shards of all hosts that read the stream, in the same micro-batch. If a
punctuation fixes the values by which rows are divided, only one shard of a host can get rows that match it,
and only that shard gets the punctuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, Times
from headrace.expressions import Expression, compile
from headrace.runtimes.spark.worker.packing import Package, Route
from headrace.runtimes.spark.worker.shards import shard_of
from headrace.schema import Schema
from headrace.state.promises import from_bytes, from_plain, to_bytes, to_plain
from headrace.time.punctuation import Constant, Punctuation
from headrace.time.row_promises import RowPromises, Said
from headrace.time.timestamp import MAX_TIME


@dataclass(frozen=True)
class Hearer:
    """A stream as a host reads it, which rows promise something about.

    `number` is its number in the packages of that host, whose shards are at `route`; `keys` divide its rows
    among them. `waits`: rows may still be on their way that reached their source before the promise, because
    it comes from another stream or from a source with a rate limit.
    """

    stream: str
    schema: Schema
    number: int
    route: Route
    keys: tuple[Expression, ...]
    waits: bool

    def placed(self, punctuations: Sequence[Punctuation]) -> list[list[Punctuation]]:
        """By shard, the punctuations that it must get."""
        shards = len(self.route.shard_keys)
        found: list[list[Punctuation]] = [[] for _ in range(shards)]
        for each in punctuations:
            for shard in self._shards_of(each) if self.keys and shards > 1 else range(shards):
                found[shard].append(each)
        return found

    def _shards_of(self, punctuation: Punctuation) -> Iterable[int]:
        """The shards that may get rows that match a punctuation."""
        shards = len(self.route.shard_keys)
        fixed = {name: each.value for name, each in punctuation.patterns if isinstance(each, Constant)}
        if not all(key.columns() <= fixed.keys() for key in self.keys):
            return range(shards)
        schema = pa.schema([self.schema.field(name) for name in fixed])
        row = pa.RecordBatch.from_pylist([fixed], schema=schema)
        return [int(shard_of([compile(key, schema)(row) for key in self.keys], 1, shards)[0])]


@dataclass(frozen=True)
class Speech:
    """What the rows of a stream promise, and who must hear it.

    `schema` are the columns of the rows as a task gets them. `recorded`: a batch may hold rows of several
    instants.
    """

    stream: str
    schema: Schema
    promises: RowPromises
    hearers: tuple[Hearer, ...]
    guard: int = MAX_TIME
    recorded: bool = False

    @cached_property
    def _types(self) -> Mapping[str, Schema]:
        return {hearer.stream: hearer.schema for hearer in self.hearers}

    def said(self, rows: pa.RecordBatch, clocks: Times) -> Iterator[tuple[Mask, int, Said]]:
        """For each instant: its rows, the instant, and what the rows promise."""
        instants = np.unique(clocks) if self.recorded else clocks[-1:]
        for now in instants.tolist():
            mine = clocks == now if self.recorded else np.ones(rows.num_rows, np.bool_)
            most = MAX_TIME if self.guard == MAX_TIME else now + self.guard
            chosen = rows.filter(pa.array(mine)) if len(instants) > 1 else rows
            yield mine, now, self.promises.said(self.stream, chosen, self._types, most)

    def packages(self, now: int, said: Said) -> Iterator[tuple[Hearer, list[Package]]]:
        """The packages for the shards of every host that must hear it."""
        for hearer in self.hearers:
            found = said.about(hearer.stream, hearer.stream == self.stream)
            if found:
                bodies = ([hearer.waits, [*map(to_plain, own)]] for own in hearer.placed(found))
                yield hearer, [Package(hearer.number, now, promises=to_bytes(body)) for body in bodies]


def heard(package: Package) -> tuple[bool, list[Punctuation]]:
    """Whether the promises of a package wait, and the promises."""
    assert package.promises is not None
    waits, found = from_bytes(package.promises)
    return waits, [from_plain(each) for each in found]
