"""Iceberg tables as sources and sinks, through `pyiceberg`.

The rows of a commit and its number, a property `headrace-run-<run>` of the table, are one commit of the
catalog. The catalog refuses it if another writer was faster; then the number is looked at again. So rows are
never added twice, not even by a process that was thought dead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import pyarrow as pa

from headrace.connectors.databases import newest
from headrace.connectors.delta import missing, refused
from headrace.connectors.lakes import lake_schema
from headrace.errors import ConnectorError
from headrace.schema import Schema
from headrace.time.clock import seconds

T = TypeVar("T")
RUN: Final = "headrace-run-"
"""The beginning of the properties of a table that have the numbers of commits."""


class _Conflict(Exception):
    """Another writer was faster. Unlike the error of the library, it does not make it try again by itself."""


class _Catalog:
    """A catalog whose commits are tried once."""

    def __init__(self, catalog: Any) -> None:
        self._catalog = catalog

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def commit_table(self, *arguments: Any, **more: Any) -> Any:
        from pyiceberg.exceptions import CommitFailedException

        try:
            return self._catalog.commit_table(*arguments, **more)
        except CommitFailedException as error:
            raise _Conflict(str(error)) from error


def open_catalog(name: str, options: Mapping[str, str], place: str) -> Any:
    """The catalog with these properties; without any, as the configuration of pyiceberg says."""
    try:
        from pyiceberg.catalog import load_catalog
    except ImportError:
        raise missing("Iceberg", place) from None
    try:
        return load_catalog(name, **dict(options))
    # Catalogs raise many kinds of exceptions; all of them become one error of Headrace.
    except Exception as error:
        raise refused("Iceberg", error, place) from None


@dataclass
class IcebergTarget:
    """An Iceberg table. With a `key`, a row replaces the one with the same values in these columns.

    `existing`: whether rows that are there at the first start stay (`append`), go (`replace`), or are an
    error. `patience`: for how many seconds a commit is tried again.
    """

    catalog: str
    options: Mapping[str, str] = field(repr=False)
    table: str
    key: tuple[str, ...] = ()
    existing: str = "append"
    patience: float = 60.0
    place: str = ""

    def __post_init__(self) -> None:
        self._opened: Any = None
        self._types: Schema = pa.schema([])

    def begin(self) -> None:
        if self.existing == "error" and self._do(self._has_rows):
            raise ConnectorError(
                "HR-C010",
                f"the table {self.table} has rows, and there is no checkpoint to continue from",
                place=self.place,
                hint='choose another table, or set on the sink: existing = "append" or "replace"',
            )

    def open(self, schema: Schema, run: str) -> None:
        absent = next((each for each in self.key if each not in schema.names), None)
        if absent is not None:
            raise ConnectorError(
                "HR-C023",
                f"the key has a column {absent!r} that the rows do not have",
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
        self._opened = None

    # --- with pyiceberg

    def _connected(self) -> Any:
        return _Catalog(open_catalog(self.catalog, self.options, self.place))

    def _has_rows(self) -> bool:
        catalog = self._connected()
        return bool(catalog.table_exists(self.table)) and any(
            True for _ in catalog.load_table(self.table).scan().plan_files()
        )

    def _begin_run(self, run: str) -> None:
        """Create the table if there is none; make it empty if the run is new and replaces what is there."""
        self._opened = None
        catalog = self._connected()
        if not catalog.table_exists(self.table):
            catalog.create_namespace_if_not_exists(self.table.rpartition(".")[0])
            catalog.create_table_if_not_exists(self.table, self._types)
        if self.existing == "replace" and self._number(run) is None:
            has_rows = self._has_rows()
            with self._loaded().transaction() as change:
                if has_rows:
                    change.delete("true")
                change.set_properties({RUN + run: "0"})

    def _loaded(self) -> Any:
        """The table as it is now."""
        if self._opened is None:
            catalog = self._connected()
            self._opened = catalog.load_table(self.table)
            self._opened.catalog = catalog
        else:
            self._opened.refresh()
        return self._opened

    def _number(self, run: str) -> int | None:
        """The last commit of a run that the table has."""
        found = self._loaded().properties.get(RUN + run)
        return None if found is None else int(found)

    def _apply(self, run: str, number: int, rows: pa.Table) -> None:
        """Add the rows and note the commit at once, unless it is noted already."""
        if (self._number(run) or 0) >= number:
            return
        with self._opened.transaction() as change:
            if self.key:
                change.upsert(newest(rows, self.key), join_cols=list(self.key))
            else:
                change.append(rows)
            change.set_properties({RUN + run: str(number)})

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
                self._opened = None
                if not isinstance(error, (_Conflict, OSError, TimeoutError)) or seconds() + pause > until:
                    raise refused("Iceberg", error, self.place) from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)


@dataclass
class IcebergLog:
    """The snapshots of an Iceberg table. `changes`: one that removes rows is an error, or skipped."""

    catalog: str
    options: Mapping[str, str] = field(repr=False)
    name: str
    changes: str = "error"
    place: str = ""
    _opened: Any = field(default=None, repr=False)

    def _table(self, *, refresh: bool = True) -> Any:
        if self._opened is None:
            from pyiceberg.exceptions import NoSuchTableError

            catalog = open_catalog(self.catalog, self.options, self.place)
            try:
                self._opened = catalog.load_table(self.name)
            except NoSuchTableError:
                raise ConnectorError(
                    "HR-C001",
                    f"the catalog {self.catalog!r} has no table {self.name!r}",
                    place=self.place,
                    hint="create it first, or correct its name",
                ) from None
        elif refresh:
            self._opened.refresh()
        return self._opened

    def table(self) -> str:
        return str(self._table().metadata.table_uuid)

    def newest(self) -> int | None:
        found = self._table().current_snapshot()
        return None if found is None else int(found.snapshot_id)

    def after(self, version: int) -> int | None:
        table = self._table()
        found = table.current_snapshot()
        later: int | None = None
        while found is not None and found.snapshot_id != version:
            later = int(found.snapshot_id)
            parent = found.parent_snapshot_id
            found = None if parent is None else table.snapshot_by_id(parent)
        if found is None:
            raise ConnectorError(
                "HR-C002",
                f"snapshot {version} of the table expired, or the table was rolled back behind it",
                place=self.place,
                hint="keep snapshots for longer, and start over with a new checkpoint",
            )
        return later

    def whole(self, version: int) -> Sequence[Any]:
        table = self._with(version)
        return _sorted(table.scan(snapshot_id=version).plan_files())

    def added(self, version: int) -> Sequence[Any]:
        table = self._with(version)
        summary = table.snapshot_by_id(version).summary
        operation = "append" if summary is None else summary.operation.value
        if operation in ("overwrite", "delete") and self.changes == "error":
            raise ConnectorError(
                "HR-C024",
                f"snapshot {version} of the table deletes or updates rows that may have been read",
                place=self.place,
                hint='a stream has only new rows: set changes = "skip" on the source to skip such snapshots',
            )
        if operation != "append":
            return []
        scan = table.incremental_append_scan().from_snapshot_id_inclusive(version)
        return _sorted(scan.to_snapshot_id_inclusive(version).plan_files())

    def _with(self, version: int) -> Any:
        """The table, which must have this snapshot."""
        table = self._table(refresh=False)
        if table.snapshot_by_id(version) is None:
            table = self._table()
        if table.snapshot_by_id(version) is None:
            raise ConnectorError(
                "HR-C002",
                f"snapshot {version} of the table expired",
                place=self.place,
                hint="keep snapshots for longer, and start over with a new checkpoint",
            )
        return table

    def batches(self, file: Any) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table(refresh=False)
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        try:
            yield from scan.to_record_batches([file])
        except FileNotFoundError:
            raise ConnectorError(
                "HR-C002",
                f"the file {file.file.file_path!r} of the table no longer exists",
                place=self.place,
                hint="keep snapshots for longer, and start over with a new checkpoint",
            ) from None


def _sorted(files: Any) -> list[Any]:
    return sorted(files, key=lambda each: each.file.file_path)
