"""What a job notes beside its checkpoint, so that a changed job finds its state at the next start.

The record says in which shards each query is and of which generation it is. It has an empty snapshot of each
host, with which a changed job is compared before anything runs. It is written before the first micro-batch,
so after a crash it may be ahead of the state: the comparison with the state itself is made by each shard.
"""

from __future__ import annotations

import json
import shutil
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from headrace import disk
from headrace.errors import SparkError
from headrace.runtimes.spark.driver.lock import local_directory
from headrace.runtimes.spark.driver.topology import Placed
from headrace.runtimes.spark.versions import jvm, refuse_connect

FORMAT: Final = 2
_READABLE: Final = (1, 2)
"""Format 1 has no `shards` and no `moving`."""
NAME: Final = "_headrace.job.json"
"""Spark does not read files whose names begin with `_`."""
LOG: Final = "the control log"
"""The name of the log among the sources of a Spark plan."""


@dataclass(frozen=True)
class Record:
    """A start of a job: its number, Spark's partitions, the hosts, and the generation of each query.

    `together` has, by generation, the queries that started together and their text
    (`headrace.pipeline.sharing`). `snapshots` has one snapshot for each host of `placed`, without any rows.
    """

    generation: int = 0
    partitions: int = 0
    placed: tuple[Placed, ...] = ()
    since: Mapping[str, int] = field(default_factory=dict)
    together: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    snapshots: tuple[bytes, ...] = ()
    position: int = 0
    """The last command of the control log that this start contains."""
    sources: tuple[str, ...] = ()
    """The sources of the Spark plan, in order."""
    definition: Mapping[str, Any] = field(default_factory=dict)
    """The pipeline file as plain data; empty for a job that was made in Python."""
    shards: int = 0
    """The number of shards of hosts with a key; it never changes."""
    moving: int = 0
    """The number of partitions that the state is being moved to, while it is."""

    @property
    def most_shards(self) -> int:
        """The largest number of shards of a host: more of Spark's partitions would have no state."""
        return max((len(each.shard_keys) for each in self.placed), default=max(1, self.shards))

    @property
    def queries(self) -> frozenset[str]:
        """The queries that have state."""
        return frozenset(name for each in self.placed for name in each.queries)

    @property
    def follows(self) -> bool:
        """Whether the job follows its control log; else a start has all commands that were there."""
        return LOG in self.sources

    @property
    def streams(self) -> frozenset[str]:
        """The streams that were read, which have a position in the checkpoint."""
        return frozenset(name for each in self.placed for name in each.streams)

    def with_added(self, homes: Mapping[str, tuple[int, ...]]) -> Record:
        """The record with queries that were added while the job ran, by the shards of their homes."""
        placed = []
        for each in self.placed:
            new = [name for name, shard_keys in homes.items() if shard_keys == each.shard_keys]
            placed.append(replace(each, queries=tuple(dict.fromkeys((*each.queries, *new)))))
        return replace(self, placed=tuple(placed))

    def without(self, queries: frozenset[str]) -> Record:
        """The record as if these queries had never run."""
        placed = tuple(
            replace(each, queries=tuple(name for name in each.queries if name not in queries))
            for each in self.placed
        )
        return replace(self, placed=placed)

    def text(self) -> str:
        """As JSON, with a checksum in the first line."""
        plain = asdict(self) | {"snapshots": [b64encode(each).decode() for each in self.snapshots]}
        body = json.dumps({"format": FORMAT, **plain})
        return f"{zlib.crc32(body.encode()):08x}\n{body}\n"

    @staticmethod
    def of(text: str, place: str) -> Record:
        """The record that `text` wrote."""
        crc, _, body = text.partition("\n")
        body = body.removesuffix("\n")
        try:
            if int(crc, 16) != zlib.crc32(body.encode()):
                raise ValueError
            plain: dict[str, Any] = json.loads(body)
        except ValueError:
            raise SparkError(
                "HR-SP21",
                "the record of the job is damaged",
                place=place,
                hint="restore a copy of the checkpoint, or start with a new one",
            ) from None
        if (found := plain.pop("format")) not in _READABLE:
            readable = " and ".join(map(str, _READABLE))
            raise SparkError(
                "HR-SP21",
                f"the record of the job has format {found}, and this version of Headrace reads {readable}",
                place=place,
                hint="continue with the version that wrote it, or start with a new checkpoint",
            )
        placed = tuple(_placed(each) for each in plain.pop("placed"))
        snapshots = tuple(b64decode(each) for each in plain.pop("snapshots"))
        sources = tuple(plain.pop("sources", ()))
        record = Record(**plain, placed=placed, snapshots=snapshots, sources=sources)
        return record if record.shards else replace(record, shards=_shards(record))


def _shards(record: Record) -> int:
    """The number of shards of a record of format 1."""
    found = [len(each.shard_keys) for each in record.placed if each.keys is not None]
    return max(found, default=record.partitions)


def _placed(plain: dict[str, Any]) -> Placed:
    keys = plain["keys"]
    return Placed(
        plain["level"],
        None if keys is None else {name: tuple(key) for name, key in keys.items()},
        tuple(plain["shard_keys"]),
        tuple(plain["queries"]),
        plain["reduced"],
        tuple(plain["streams"]),
        tuple(plain["tables"]),
        {kind: tuple(names) for kind, names in plain["reported"].items()},
    )


def read(spark: SparkSession, checkpoint: str) -> Record | None:
    """The record beside a checkpoint; None at the first start."""
    text = read_text(spark, checkpoint, NAME)
    return None if text is None else Record.of(text, f"{checkpoint}/{NAME}")


def write(spark: SparkSession, checkpoint: str, record: Record) -> None:
    """Write the record beside a checkpoint; a crash leaves the old one or the new one."""
    write_text(spark, checkpoint, NAME, record.text())


def read_text(spark: SparkSession, checkpoint: str, name: str) -> str | None:
    """A file beside a checkpoint; None if there is none."""
    local = local_directory(spark, checkpoint)
    if local is not None:
        file = local / name
        return file.read_text() if file.exists() else None
    system, path = _hadoop(spark, f"{checkpoint}/{name}")
    if not system.exists(path):
        return None
    stream = system.open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def write_text(spark: SparkSession, checkpoint: str, name: str, text: str, *, durable: bool = True) -> None:
    """Replace a file beside a checkpoint; a crash leaves the old one or the new one.

    `durable`: the new one is there after a power cut too.
    """
    local = local_directory(spark, checkpoint)
    if local is not None:
        with disk.coded(SparkError, "HR-SP34", f"write {name}", local):
            _replace(local, name, text.encode(), durable)
        return
    system, draft = _hadoop(spark, f"{checkpoint}/{name}.draft")
    stream = system.create(draft, True)
    stream.write(bytearray(text.encode()))
    stream.close()
    _, path = _hadoop(spark, f"{checkpoint}/{name}")
    system.delete(path, False)
    system.rename(draft, path)


def make_directory(spark: SparkSession, path: str) -> None:
    """Make a directory, on whichever file system it is."""
    local = local_directory(spark, path)
    if local is not None:
        disk.current.mkdir(local)
        return
    system, made = _hadoop(spark, path)
    system.mkdirs(made)


def remove_file(spark: SparkSession, folder: str, name: str) -> None:
    """Remove a file, if it is there."""
    local = local_directory(spark, folder)
    if local is not None:
        (local / name).unlink(missing_ok=True)
        return
    system, path = _hadoop(spark, f"{folder}/{name}")
    system.delete(path, False)


def names_in(spark: SparkSession, folder: str) -> list[str]:
    """The names in a directory; none if it is not there."""
    local = local_directory(spark, folder)
    if local is not None:
        return sorted(each.name for each in local.iterdir()) if local.exists() else []
    system, path = _hadoop(spark, folder)
    return sorted(each.getPath().getName() for each in system.listStatus(path)) if system.exists(path) else []


def remove_directory(spark: SparkSession, path: str) -> None:
    """Remove a directory with all that is in it, if it is there."""
    local = local_directory(spark, path)
    if local is not None:
        shutil.rmtree(local, ignore_errors=True)
        return
    system, found = _hadoop(spark, path)
    system.delete(found, True)


def _replace(folder: Path, name: str, data: bytes, durable: bool) -> None:
    """Replace a file in a directory by one rename."""
    files = disk.current
    files.mkdir(folder)
    draft = folder / f"{name}.draft"
    with files.open(draft, "wb", private=True) as file:
        file.write(data)
        if durable:
            files.flush(file)
    files.replace(draft, folder / name)
    if durable:
        files.sync(folder)


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """The file system of a path, and the path, as Hadoop has them."""
    refuse_connect(
        spark,
        f"a job whose checkpoint is not in a directory that this machine and the server share ({path})",
        "use a path that both see, or a session without Spark Connect, or apply, which needs no record",
    )
    found = jvm(spark).org.apache.hadoop.fs.Path(path)
    return found.getFileSystem(spark._jsc.hadoopConfiguration()), found
