"""Tables of a lake on Spark: which files are new, and their rows in Spark's tasks.

Spark keeps the position, and asks a data source in Python, in a process beside the driver, for the next one.
A task gets the numbers of files and reads them with the code of the embedded runtime; no connector of Java
is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace.connectors.conform import fit
from headrace.connectors.contract import Block
from headrace.connectors.lakes import File, LakeLog, changed
from headrace.runtimes.spark.worker.partitioner import NOW, REACHED
from headrace.schema import Schema
from headrace.time.clock import seconds

PLACES: Final = "version bigint, whole boolean, number int"
"""The columns of the stream of files: the number of a file among those that a version adds, or has."""
Place = tuple[int, bool, int]
MOST_FILES: Final = "maxFilesPerTrigger"
"""The option that limits the files of a micro-batch."""
NOTHING: Final = -1
"""The version before the first one."""
ALL: Final = -1
"""All files of a version."""
Offset = dict[str, Any]


@dataclass(frozen=True)
class LakeOffsets:
    """Positions in a table: a version, and how many of its files were read; `whole`, of all that it has.

    The first micro-batches read the version that is the newest at the first start, or skip it if `new`. With
    `follow`, later ones read what later versions add. Law: the files between two positions are always the
    same ones in the same order.
    """

    log: LakeLog
    follow: bool = False
    new: bool = False

    def start(self) -> Offset:
        """Before everything. Which version comes first is decided by the first position after it."""
        return _at("", NOTHING)

    def latest(self, start: Offset | None, most: int | None = None) -> Offset:
        """The end of a micro-batch, which has at most so many files; `start` is None if it is not known."""
        self._check(start)
        newest = self.log.newest()
        if newest is None:
            return start or self.start()
        if start is None:
            return _at(self.log.table(), newest)
        if start["version"] == NOTHING:
            if self.new or most is None:
                return _at(self.log.table(), newest)
            return self._within(_at(self.log.table(), newest, 0, whole=True), most, last=True)
        if not self.follow:
            return self._within(start, most, last=True)
        return _at(start["table"], newest) if most is None else self._within(start, most, last=False)

    def _within(self, start: Offset, most: int | None, *, last: bool) -> Offset:
        """At most so many files after a position, or to the end of its version if that is the `last`."""
        at, left = start, most
        while True:
            if at["file"] != ALL:
                count = len(files_of(self.log, at["version"], at["whole"]))
                if left is not None and count - at["file"] > left:
                    return {**at, "file": at["file"] + left}
                left = None if left is None else left - (count - at["file"])
                at = _at(at["table"], at["version"])
            later = None if last or left == 0 else self.log.after(at["version"])
            if later is None:
                return at
            at = _at(at["table"], later, 0)

    def files(self, start: Offset, end: Offset) -> list[Place]:
        """The files between two positions."""
        self._check(end)
        if end["version"] == NOTHING:
            return []
        if start["version"] == NOTHING:
            return [] if self.new else self._places(end["version"], True, 0, _stop(end))
        found, at = list[Place](), start
        while True:
            if at["file"] != ALL:
                stop = _stop(end) if at["version"] == end["version"] else None
                found += self._places(at["version"], at["whole"], at["file"], stop)
            if at["version"] == end["version"]:
                return found
            later = self.log.after(at["version"])
            if later is None:
                raise changed(self.log, f"version {end['version']} of the table, which was read, is gone")
            at = _at(at["table"], later, 0)

    def _places(self, version: int, whole: bool, first: int, stop: int | None) -> list[Place]:
        """The numbers of files of a version."""
        count = len(files_of(self.log, version, whole))
        return [(version, whole, number) for number in range(first, count if stop is None else stop)]

    def _check(self, known: Offset | None) -> None:
        """An error if another table has the name now."""
        if known is not None and known["table"] not in ("", self.log.table()):
            raise changed(self.log, "another table has its name now")


def files_of(log: LakeLog, version: int, whole: bool) -> Sequence[File]:
    """The files that a version adds, or the `whole` of them."""
    return log.whole(version) if whole else log.added(version)


def _at(table: str, version: int, file: int = ALL, *, whole: bool = False) -> Offset:
    return {"table": table, "version": version, "whole": whole, "file": file}


def _stop(end: Offset) -> int | None:
    """How many files of the last version count; None: all."""
    return None if end["file"] == ALL else int(end["file"])


class LakeFiles(DataSource):
    """The new files of a table, one row for each; `for_stream` makes one for a stream.

    What it needs, such as secrets of a store, is part of the class: options of a source are in Spark's plans.
    """

    offsets: LakeOffsets
    poll: float
    parts: int

    @classmethod
    def for_stream(cls, stream: str, offsets: LakeOffsets, poll: float, parts: int) -> type[DataSource]:
        """A data source for one stream, under a name of its own."""
        named = classmethod(lambda _: f"headrace_lake_{stream}")
        return type("Lake", (cls,), {"name": named, "offsets": offsets, "poll": poll, "parts": parts})

    def schema(self) -> str:
        return PLACES

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        most = self.options.get(MOST_FILES)
        return _Reader(self.offsets, self.poll, self.parts, None if most is None else int(most))


class _Files(InputPartition):
    """The files that a task reads."""

    def __init__(self, files: list[Place]) -> None:
        super().__init__(None)
        self.files = files


class _Reader(DataSourceStreamReader):
    """Looks for a new version at most once in `poll` seconds, if there was none."""

    def __init__(self, offsets: LakeOffsets, poll: float, parts: int, most: int | None) -> None:
        self._offsets, self._poll, self._parts, self._most = offsets, poll, parts, most
        self._idle: Offset | None = None
        self._looked = -poll

    def initialOffset(self) -> Offset:
        return self._offsets.start()

    def latestOffset(self, start: Any = None, limit: Any = None) -> Offset:
        if self._idle is not None and start in (None, self._idle) and seconds() - self._looked < self._poll:
            return self._idle
        looked = seconds()
        found = self._offsets.latest(start, None if start is None else self._most)
        self._idle, self._looked = (found if start in (None, found) else None), looked
        return found

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        files = self._offsets.files(start, end)
        each = -(-len(files) // self._parts) or 1
        return [_Files(files[i : i + each]) for i in range(0, len(files), each)]

    def read(self, partition: InputPartition) -> Iterator[Place]:
        assert isinstance(partition, _Files)
        yield from partition.files


@dataclass(frozen=True)
class LakeRows:
    """The rows of files of a table, in a task."""

    log: LakeLog
    schema: Schema

    def only(self, needed: frozenset[str]) -> LakeRows:
        """Values of all columns are checked, as on the embedded runtime."""
        return self

    def blocks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[dict[str, int], Block]]:
        files = cache(partial(files_of, self.log))
        for batch in batches:
            for row in batch.to_pylist():
                shared = {name: row[name] for name in (NOW, REACHED) if name in row}
                for found in self.log.batches(files(row["version"], row["whole"])[row["number"]]):
                    yield shared, fit(found, self.schema)
