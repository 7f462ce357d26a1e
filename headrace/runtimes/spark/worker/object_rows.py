"""Objects of a store on Spark: which ones are new.

Spark keeps how many objects were listed, and asks a data source in Python, in a process beside the driver,
for more. Which objects they are is in a log beside the checkpoint, because a store does not say what it had
before. Tasks read the objects like other files; no connector of Java is needed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from headrace import disk
from headrace.connectors.pieces import Storage
from headrace.connectors.remote import Listed, Objects
from headrace.errors import DurabilityError
from headrace.time.clock import seconds

LISTED: Final = "path string, written bigint, length bigint"
"""The columns of the stream of objects; `written` in microseconds."""
MOST_FILES: Final = "maxFilesPerTrigger"
"""The option that limits the objects of a micro-batch."""
Offset = dict[str, int]
Line = tuple[str, int, int]


class ObjectLog:
    """The objects that were listed, in the order in which they are read: a line of a file for each.

    Law: lines are only added, and are durable before anyone learns their number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listed: list[Listed] | None = None
        self._bytes = 0

    @property
    def begun(self) -> bool:
        """Whether objects were listed before."""
        return self._path.exists()

    def listed(self) -> list[Listed]:
        """All objects. The end of a line that a crash has cut off does not count."""
        if self._listed is None:
            text = disk.current.read(self._path) if self.begun else b""
            self._bytes = text.rfind(b"\n") + 1
            self._listed = [Listed(*json.loads(line)) for line in text[: self._bytes].splitlines()]
        return self._listed

    def add(self, found: Iterable[Listed]) -> None:
        """Add objects that are not in it."""
        known = {each.key for each in self.listed()}
        new = [each for each in found if each.key not in known]
        lines = "".join(json.dumps([each.key, each.size, each.modified]) + "\n" for each in new).encode()
        if not new and self.begun:
            return
        with disk.coded(DurabilityError, "HR-D004", "write", self._path):
            disk.current.mkdir(self._path.parent)
            with disk.current.open(self._path, "r+b" if self.begun else "wb") as file:
                file.seek(self._bytes)
                file.truncate()
                file.write(lines)
                disk.current.flush(file)
            disk.current.sync(self._path.parent)
        self._bytes += len(lines)
        self.listed().extend(new)


@dataclass(frozen=True)
class Place:
    """A URI, and the log of what was listed there. With `follow`, it is listed again every `poll` seconds."""

    uri: str
    storage: Storage
    log: Path
    follow: bool = False
    poll: float = 1.0
    parts: int = 1


class ObjectFiles(DataSource):
    """The new objects at a URI, one row for each; `for_stream` makes one for a stream.

    What it needs, such as secrets of a store, is part of the class: options of a source are in Spark's plans.
    """

    place: Place

    @classmethod
    def for_stream(cls, stream: str, place: Place) -> type[DataSource]:
        """A data source for one stream, under a name of its own."""
        named = classmethod(lambda _: f"headrace_objects_{stream}")
        return type("Objects", (cls,), {"name": named, "place": place})

    def schema(self) -> str:
        return LISTED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        most = self.options.get(MOST_FILES)
        return Reader(self.place, None if most is None else int(most))


class _Lines(InputPartition):
    """The objects that a task returns."""

    def __init__(self, lines: list[Line]) -> None:
        super().__init__(None)
        self.lines = lines


class Reader(DataSourceStreamReader):
    """Positions are numbers of objects in the log; a micro-batch has at most `most` of them."""

    def __init__(self, place: Place, most: int | None = None) -> None:
        self._place, self._most = place, most
        self._log = ObjectLog(place.log)
        self._objects: Objects | None = None
        self._looked = -place.poll

    def initialOffset(self) -> Offset:
        return {"objects": 0}

    def latestOffset(self, start: Any = None, limit: Any = None) -> Offset:
        if self._is_due():
            self._looked = seconds()
            self._log.add(self._at.found(required=not self._place.follow))
        whole = len(self._log.listed())
        if start is None or self._most is None:
            return {"objects": whole}
        return {"objects": min(whole, start["objects"] + self._most)}

    def _is_due(self) -> bool:
        """Whether to list now: what ends is listed once."""
        if not self._place.follow:
            return not self._log.begun
        return seconds() - self._looked >= self._place.poll

    @property
    def _at(self) -> Objects:
        if self._objects is None:
            self._objects = Objects(self._place.uri, self._place.storage, order="modified")
        return self._objects

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        found = self._log.listed()[start["objects"] : end["objects"]]
        lines = [(self._at.uri_of(each.key), each.modified // 1000, each.size) for each in found]
        share = -(-len(lines) // self._place.parts) or 1
        return [_Lines(lines[i : i + share]) for i in range(0, len(lines), share)]

    def read(self, partition: InputPartition) -> Iterator[Line]:
        assert isinstance(partition, _Lines)
        yield from partition.lines
