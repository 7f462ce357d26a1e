"""Delta tables as sources and sinks, through `deltalake`: no Java, no Spark.

The rows of a commit and its number are one version of the table: the number is an application transaction of
Delta's protocol, `{"txn": {"appId": run, "version": number}}`. If two writers use the same one, Delta refuses
the second.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pf
import pyarrow.parquet as pq

from headrace.connectors.databases import newest
from headrace.connectors.lakes import lake_schema
from headrace.errors import ConnectorError
from headrace.schema import Schema
from headrace.time.clock import seconds

T = TypeVar("T")
FEATURES: Final = frozenset(
    {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "appendOnly", "invariants"}
)
"""Features of a table that do not change how its files are read."""


def missing(name: str, place: str) -> ConnectorError:
    """The error of a package that is not installed."""
    return ConnectorError(
        "HR-C021",
        f"the package for {name} tables is not installed",
        place=place,
        hint=f"pip install 'headrace[{name.lower()}]'",
    )


def refused(name: str, error: Exception, place: str) -> ConnectorError:
    """The error of a table that cannot be reached, or that refuses rows."""
    said = re.sub(r"\s+", " ", str(error).split("\n   0: ")[0]).strip()
    return ConnectorError(
        "HR-C022",
        f"the {name} table cannot be used: {said}",
        place=place,
        hint="everything that was committed is safe: repair it, and run again",
    )


@dataclass
class DeltaTarget:
    """A Delta table. With a `key`, a row replaces the one with the same values in these columns.

    `existing`: whether rows that are there at the first start stay (`append`), go (`replace`), or are an
    error. `patience`: for how many seconds a commit is tried again.
    """

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    existing: str = "append"
    patience: float = 60.0
    place: str = ""

    def __post_init__(self) -> None:
        self._table: Any = None
        self._types: Schema = pa.schema([])

    def begin(self) -> None:
        if self.existing == "error" and self._do(self._has_rows):
            raise ConnectorError(
                "HR-C010",
                "the table has rows, and there is no checkpoint to continue from",
                place=self.place,
                hint='choose another path, or set on the sink: existing = "append" or "replace"',
            )

    def open(self, schema: Schema, run: str) -> None:
        absent = next((each for each in (*self.key, *self.partition_by) if each not in schema.names), None)
        if absent is not None:
            raise ConnectorError(
                "HR-C023",
                f"key or partition_by has a column {absent!r} that the rows do not have",
                place=self.place,
                hint=f"columns: {', '.join(schema.names)}",
            )
        self._types = lake_schema(schema)
        self._do(lambda: self._begin_run(run))

    def last(self, run: str) -> int | None:
        return self._do(lambda: self._number(run) or 0)

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        self._do(lambda: self._apply(run, number, rows.cast(self._types)))

    def close(self) -> None:
        self._table = None

    # --- with deltalake

    def _has_rows(self) -> bool:
        deltalake = self._library()
        if not deltalake.DeltaTable.is_deltatable(self.path, dict(self.storage)):
            return False
        return bool(self._load().get_add_actions().num_rows)

    def _begin_run(self, run: str) -> None:
        """Create the table if there is none; make it empty if the run is new and replaces what is there."""
        deltalake = self._library()
        if not deltalake.DeltaTable.is_deltatable(self.path, dict(self.storage)):
            deltalake.DeltaTable.create(
                self.path,
                self._types,
                mode="ignore",
                partition_by=list(self.partition_by) or None,
                storage_options=dict(self.storage),
            )
        self._table = self._load()
        if self.existing == "replace" and self._number(run) is None:
            deltalake.write_deltalake(
                self._table,
                self._types.empty_table(),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=list(self.partition_by) or None,
                commit_properties=self._noting(run, 0),
            )
            self._table = self._load()

    def _number(self, run: str) -> int | None:
        """The last commit of a run that the newest version of the table has."""
        if self._table is None:
            self._table = self._load()
        self._table.update_incremental()
        found = self._table.transaction_version(run)
        return None if found is None else int(found)

    def _apply(self, run: str, number: int, rows: pa.Table) -> None:
        """Add the rows and note the commit in one version, unless it is noted already."""
        if (self._number(run) or 0) >= number:
            return
        noting = self._noting(run, number)
        if not self.key:
            self._library().write_deltalake(self._table, rows, mode="append", commit_properties=noting)
            return
        same = " AND ".join(f"held.`{each}` = new.`{each}`" for each in self.key)
        merge = self._table.merge(
            newest(rows, self.key), same, source_alias="new", target_alias="held", commit_properties=noting
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _noting(self, run: str, number: int) -> Any:
        deltalake = self._library()
        return deltalake.CommitProperties(app_transactions=[deltalake.Transaction(run, number)])

    def _load(self) -> Any:
        return self._library().DeltaTable(self.path, storage_options=dict(self.storage))

    def _library(self) -> Any:
        try:
            import deltalake
        except ImportError:
            raise missing("Delta", self.place) from None
        return deltalake

    def _do(self, do: Callable[[], T]) -> T:
        """Do something with the table; if another writer was faster or it is away, do it again."""
        until, pause = seconds() + self.patience, 0.1
        while True:
            try:
                return do()
            except ConnectorError:
                raise
            # The library raises many kinds of exceptions; all of them become one error of Headrace.
            except Exception as error:
                self._table = None
                if not self._may_pass(error) or seconds() + pause > until:
                    raise refused("Delta", error, self.place) from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _may_pass(self, error: Exception) -> bool:
        """Whether it may succeed later: a conflict with another writer, or a store that does not answer."""
        from deltalake import exceptions

        return isinstance(error, (exceptions.CommitFailedError, OSError, TimeoutError))


@dataclass
class DeltaLog:
    """The versions of a Delta table. `changes`: a version that removes rows is an error, or skipped."""

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    changes: str = "error"
    block_rows: int = 131_072
    place: str = ""

    def __post_init__(self) -> None:
        self._opened: Any = None
        self._files: Any = None

    def _table(self, version: int | None = None) -> Any:
        """The table, in this version or the newest one."""
        try:
            import deltalake
        except ImportError:
            raise missing("Delta", self.place) from None
        if not deltalake.DeltaTable.is_deltatable(self.path, dict(self.storage)):
            raise ConnectorError(
                "HR-C001",
                f"there is no Delta table at {self.path!r}",
                place=self.place,
                hint="give the path of an existing table, the directory that contains _delta_log",
            )
        table = deltalake.DeltaTable(self.path, version=version, storage_options=dict(self.storage))
        self._check(table.protocol())
        return table

    def _check(self, protocol: Any) -> None:
        """An error if the files of the table cannot be read as they are."""
        features = set(protocol.reader_features or ()) - FEATURES
        if features or protocol.min_reader_version == 2:
            named = ", ".join(sorted(features)) or "columnMapping"
            raise ConnectorError(
                "HR-C025",
                f"the table uses a feature that this source cannot read: {named}",
                place=self.place,
                hint="copy it to a table without this feature, or read it on Spark with Delta's own source",
            )

    @property
    def _store(self) -> pf.FileSystem:
        """The files of the table, with paths relative to it."""
        if self._files is None:
            from deltalake.fs import DeltaStorageHandler

            handler = DeltaStorageHandler.from_table(self._newest()._table)
            self._files = pf.PyFileSystem(handler)
        return self._files

    def _newest(self) -> Any:
        if self._opened is None:
            self._opened = self._table()
        else:
            self._opened.update_incremental()
        return self._opened

    def table(self) -> str:
        return str(self._newest().metadata().id)

    def newest(self) -> int | None:
        return int(self._newest().version())

    def after(self, version: int) -> int | None:
        newest = self.newest()
        return version + 1 if newest is not None and newest > version else None

    def whole(self, version: int) -> Sequence[Any]:
        found = pa.table(self._table(version).get_add_actions(flatten=False)).to_pylist()
        found.sort(key=lambda each: (each["modification_time"], each["path"]))
        return [(each["path"], each.get("partition") or {}) for each in found]

    def added(self, version: int) -> Sequence[Any]:
        actions = self._actions(version)
        removed = [each["remove"] for each in actions if each.get("remove", {}).get("dataChange", False)]
        if removed and self.changes == "error":
            raise ConnectorError(
                "HR-C024",
                f"version {version} of the table deletes or updates rows that may have been read",
                place=self.place,
                hint='a stream has only new rows: set changes = "skip" on the source to skip such versions',
            )
        for each in actions:
            if "protocol" in each:
                self._check(self._newest().protocol())
        if removed:
            return []
        added = [each["add"] for each in actions if each.get("add", {}).get("dataChange", False)]
        return [(unquote(each["path"]), each.get("partitionValues") or {}) for each in added]

    def _actions(self, version: int) -> list[dict[str, Any]]:
        """What a version changes, from the log of the table."""
        path = f"_delta_log/{version:020d}.json"
        try:
            with self._store.open_input_file(path) as file:
                return [json.loads(line) for line in file.read().splitlines() if line.strip()]
        except FileNotFoundError:
            raise ConnectorError(
                "HR-C002",
                f"version {version} of the table is no longer in its log",
                place=self.place,
                hint="set delta.logRetentionDuration to more, and start over with a new checkpoint",
            ) from None

    def batches(self, file: Any) -> Iterator[pa.RecordBatch]:
        path, partition = file
        try:
            opened = self._store.open_input_file(path)
        except FileNotFoundError:
            raise ConnectorError(
                "HR-C002",
                f"the file {path!r} of the table no longer exists",
                place=self.place,
                hint="keep files for longer before VACUUM, and start over with a new checkpoint",
            ) from None
        with opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=self.block_rows):
                yield _with(batch, partition)


def _with(batch: pa.RecordBatch, partition: Mapping[str, Any]) -> pa.RecordBatch:
    """The rows with the columns that are in the path of their file."""
    for name, value in partition.items():
        column = pa.repeat(pa.scalar(value, pa.string() if value is None else None), batch.num_rows)
        batch = batch.append_column(name, column)
    return batch
