"""Tables of databases as targets: PostgreSQL, SQLite and DuckDB.

The rows of a commit and its number, in the table `headrace_commits`, are one transaction of the database. The
row of the run is locked first, so a session that a killed process left behind has ended before it is read.
"""

from __future__ import annotations

import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.connectors.encode import csv_lines, json_values
from headrace.errors import ConnectorError
from headrace.schema import DataType, Schema
from headrace.time.clock import seconds

COMMITS: Final = "headrace_commits"
DELETE: Final = "-D"
_EXTRA: Final = "pip install 'headrace[{extra}]'"


class Database(ABC):
    """What differs between databases. SQL texts have `?` for values."""

    name: str
    types: Sequence[tuple[Callable[[DataType], bool], str]]
    other = "TEXT"
    lock = ""
    begin = "BEGIN"

    @abstractmethod
    def connect(self, to: str) -> Any:
        """Open a connection that begins no transactions by itself."""

    @abstractmethod
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions of its driver."""

    def is_away(self, error: Exception) -> bool:
        """Whether the database may be there again after a while."""
        return False

    def execute(self, session: Any, text: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement; returns its rows."""
        found = session.execute(text, tuple(values))
        return list(found.fetchall()) if found is not None and found.description else []

    @abstractmethod
    def insert(self, session: Any, into: str, rows: pa.Table, upsert: str) -> None:
        """Insert rows into a table; `upsert` is what follows INSERT … ."""

    def delete(self, session: Any, table: str, keys: pa.Table) -> None:
        """Delete the rows with these keys."""
        same = " AND ".join(f"{quoted(name)} = ?" for name in keys.schema.names)
        self.execute_many(session, f"DELETE FROM {table} WHERE {same}", _values(keys))

    def execute_many(self, session: Any, text: str, values: list[tuple[Any, ...]]) -> None:
        """Run a statement for each of some values."""
        session.executemany(text, values)

    def type_of(self, of: DataType) -> str:
        """The type of a column."""
        if pt.is_decimal(of):
            return f"NUMERIC({of.precision},{of.scale})"
        return next((name for holds, name in self.types if holds(of)), self.other)


def _is_small(of: DataType) -> bool:
    return bool(pt.is_int8(of) or pt.is_int16(of) or pt.is_uint8(of))


def _is_text(of: DataType) -> bool:
    return bool(pt.is_string(of) or pt.is_large_string(of))


def _is_bytes(of: DataType) -> bool:
    return bool(pt.is_binary(of) or pt.is_large_binary(of))


class Postgres(Database):
    """PostgreSQL through psycopg 3; rows go by COPY."""

    name = "PostgreSQL"
    lock = " FOR UPDATE"
    other = "JSONB"
    types = (
        (pt.is_boolean, "BOOLEAN"),
        (_is_small, "SMALLINT"),
        (pt.is_int32, "INTEGER"),
        (pt.is_integer, "BIGINT"),
        (pt.is_float32, "REAL"),
        (pt.is_floating, "DOUBLE PRECISION"),
        (_is_text, "TEXT"),
        (_is_bytes, "BYTEA"),
        (lambda of: pt.is_timestamp(of) and of.tz is not None, "TIMESTAMPTZ"),
        (pt.is_timestamp, "TIMESTAMP"),
        (pt.is_date, "DATE"),
        (pt.is_time, "TIME"),
        (pt.is_null, "TEXT"),
    )

    def connect(self, to: str) -> Any:
        import psycopg

        return psycopg.connect(to, autocommit=True, connect_timeout=10)

    def errors(self) -> tuple[type[Exception], ...]:
        import psycopg

        return (psycopg.Error,)

    def is_away(self, error: Exception) -> bool:
        import psycopg

        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)

    def execute(self, session: Any, text: str, values: Sequence[Any] = ()) -> list[Any]:
        return super().execute(session, text.replace("?", "%s"), values)

    def execute_many(self, session: Any, text: str, values: list[tuple[Any, ...]]) -> None:
        session.cursor().executemany(text.replace("?", "%s"), values)

    def insert(self, session: Any, into: str, rows: pa.Table, upsert: str) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        to = f"{into} ({names})"
        if upsert:
            session.execute(
                f"CREATE TEMP TABLE headrace_rows ON COMMIT DROP AS SELECT {names} FROM {into} LIMIT 0"
            )
            to = "headrace_rows"
        with session.cursor().copy(f"COPY {to} FROM STDIN (FORMAT csv)") as copy:
            for batch in rows.to_batches(max_chunksize=65_536):
                copy.write(csv_lines(_as_text(batch)))
        if upsert:
            session.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM headrace_rows {upsert}")


def _values(
    rows: pa.Table | pa.RecordBatch, converted: Callable[[pa.Array], pa.Array] = lambda column: column
) -> list[tuple[Any, ...]]:
    """Rows as tuples."""
    return list(zip(*(converted(each).to_pylist() for each in rows.columns), strict=True))


def _as_text(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Columns that CSV cannot write as PostgreSQL reads them: bytes as hexadecimal, nested ones as JSON."""
    columns = [_hex(each) if _is_bytes(each.type) else _plain(each) for each in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


def _hex(column: pa.Array) -> pa.Array:
    return pa.array([None if v is None else "\\x" + v.hex() for v in column.to_pylist()], pa.string())


def _plain(column: pa.Array) -> pa.Array:
    """A column of plain values; nested ones as JSON."""
    if not pt.is_nested(column.type):
        return column
    return pc.if_else(column.is_valid(), json_values(column), pa.scalar(None, pa.string()))


class Sqlite(Database):
    """SQLite from Python's own library; times are text in ISO 8601."""

    name = "SQLite"
    begin = "BEGIN IMMEDIATE"
    types = (
        (lambda of: pt.is_integer(of) or pt.is_boolean(of), "INTEGER"),
        (pt.is_floating, "REAL"),
        (_is_bytes, "BLOB"),
    )

    def connect(self, to: str) -> Any:
        import sqlite3

        session = sqlite3.connect(to, timeout=60, isolation_level=None, check_same_thread=False)
        session.execute("PRAGMA synchronous = FULL")
        return session

    def errors(self) -> tuple[type[Exception], ...]:
        import sqlite3

        return (sqlite3.Error,)

    def is_away(self, error: Exception) -> bool:
        return "locked" in str(error)

    def insert(self, session: Any, into: str, rows: pa.Table, upsert: str) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        places = ", ".join("?" * rows.num_columns)
        for batch in rows.to_batches(max_chunksize=65_536):
            values = _values(batch, _for_sqlite)
            session.executemany(f"INSERT INTO {into} ({names}) VALUES ({places}) {upsert}", values)

    def delete(self, session: Any, table: str, keys: pa.Table) -> None:
        columns = [pa.chunked_array([_for_sqlite(c) for c in column.chunks]) for column in keys.columns]
        super().delete(session, table, pa.table(columns, keys.schema.names))

    def type_of(self, of: DataType) -> str:
        return next((name for holds, name in self.types if holds(of)), self.other)


def _for_sqlite(column: pa.Array) -> pa.Array:
    """A column in the types that SQLite has."""
    of = column.type
    if pt.is_timestamp(of):
        return pc.replace_substring(column.cast(pa.string()), " ", "T")
    if pt.is_boolean(of):
        return column.cast(pa.int8())
    if pt.is_integer(of) or pt.is_floating(of) or _is_bytes(of) or _is_text(of):
        return column
    return _plain(column) if pt.is_nested(of) else column.cast(pa.string())


class DuckDB(Database):
    """DuckDB reads the rows as Arrow data."""

    name = "DuckDB"
    other = "VARCHAR"
    types = tuple(
        (holds, {"JSONB": "VARCHAR", "TEXT": "VARCHAR", "BYTEA": "BLOB"}.get(name, name))
        for holds, name in Postgres.types
    )

    def connect(self, to: str) -> Any:
        import duckdb

        return duckdb.connect(to)

    def errors(self) -> tuple[type[Exception], ...]:
        import duckdb

        return (duckdb.Error,)

    def insert(self, session: Any, into: str, rows: pa.Table, upsert: str) -> None:
        names = ", ".join(quoted(name) for name in rows.schema.names)
        columns = [pa.chunked_array([_plain(c) for c in column.chunks]) for column in rows.columns]
        session.register("headrace_rows", pa.table(columns, rows.schema.names))
        try:
            session.execute(f"INSERT INTO {into} ({names}) SELECT {names} FROM headrace_rows {upsert}")
        finally:
            session.unregister("headrace_rows")


DATABASES: Final[dict[str, Database]] = {"postgres": Postgres(), "sqlite": Sqlite(), "duckdb": DuckDB()}
"""By type of a sink. The names are those of the extras that install the drivers, too."""


def quoted(name: str) -> str:
    """A name of a table or column, in quotes; parts of a qualified name are quoted one by one."""
    return '"' + name.replace('"', '""') + '"'


@dataclass
class DatabaseTarget:
    """A table of a database. With a `key`, a row replaces the one with the same values in these columns.

    `operation` names a column that is not stored: a row in which it is `-D` deletes the one with its key.
    `existing`: whether rows that are there at the first start stay (`append`), go (`replace`), or are an
    error. `patience`: for how many seconds a database that is away is waited for.
    """

    type: str
    connect_to: str
    table: str
    key: tuple[str, ...] = ()
    existing: str = "append"
    patience: float = 60.0
    place: str = ""
    operation: str | None = None

    def __post_init__(self) -> None:
        self._database = DATABASES[self.type]
        self._session: Any = None
        self._table = ".".join(quoted(part) for part in self.table.split("."))
        schema = self.table.rpartition(".")[0]
        self._commits = f"{quoted(schema)}.{COMMITS}" if schema else COMMITS

    # --- the target

    def begin(self) -> None:
        has_rows = self.existing == "error" and self._patiently(self._has_rows)
        self.close()
        if has_rows:
            raise ConnectorError(
                "HR-C010",
                f"the table {self.table} has rows, and there is no checkpoint to continue from",
                place=self.place,
                hint='empty the table, or set on the sink: existing = "append" or "replace"',
            )

    def open(self, schema: Schema, run: str) -> None:
        self._check_key(schema)
        stored = pa.schema([each for each in schema if each.name != self.operation])
        self._patiently(lambda: self._begin_run(stored, run))

    def last(self, run: str) -> int | None:
        found: int = self._patiently(lambda: self._number(run))
        return found

    def apply(self, run: str, number: int, rows: pa.Table) -> None:
        self._patiently(lambda: self._apply(run, number, rows))

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    # --- statements

    def _do(self, text: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._database.execute(self._session, text, values)

    def _has_rows(self) -> bool:
        """Whether the table exists and is not empty."""
        try:
            return bool(self._do(f"SELECT 1 FROM {self._table} LIMIT 1"))
        except self._database.errors() as error:
            if self._database.is_away(error) and not _is_missing(error):
                raise
            return False

    def _begin_run(self, schema: Schema, run: str) -> None:
        """Create what is missing, and note a run that is not known yet as commit 0."""
        with self._transaction():
            self._create(self._commits, "run VARCHAR(64) PRIMARY KEY, number BIGINT NOT NULL")
            columns = [f"{quoted(each.name)} {self._database.type_of(each.type)}" for each in schema]
            if self.key:
                columns.append(f"PRIMARY KEY ({', '.join(quoted(each) for each in self.key)})")
            self._create(self._table, ", ".join(columns))
            if not self._do(f"SELECT number FROM {self._commits} WHERE run = ?", [run]):
                if self.existing == "replace":
                    self._do(f"DELETE FROM {self._table}")
                self._do(f"INSERT INTO {self._commits} (run, number) VALUES (?, 0)", [run])

    def _create(self, table: str, columns: str) -> None:
        self._do(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")

    def _number(self, run: str) -> int:
        """The last commit of a run; waits for a transaction that is still under way."""
        with self._transaction():
            found = self._do(f"SELECT number FROM {self._commits} WHERE run = ?{self._database.lock}", [run])
            return int(found[0][0]) if found else 0

    def _apply(self, run: str, number: int, rows: pa.Table) -> None:
        """Insert the rows and note the commit, unless it is noted already."""
        with self._transaction():
            found = self._do(f"SELECT number FROM {self._commits} WHERE run = ?{self._database.lock}", [run])
            if found and int(found[0][0]) >= number:
                return
            self._change(newest(rows, self.key))
            self._do(f"UPDATE {self._commits} SET number = ? WHERE run = ?", [number, run])

    def _change(self, rows: pa.Table) -> None:
        """Insert rows, and delete those whose operation says so."""
        if self.operation is not None:
            gone = pc.fill_null(pc.equal(rows.column(self.operation), DELETE), False)
            deleted, rows = rows.filter(gone), rows.filter(pc.invert(gone)).drop_columns(self.operation)
            if deleted.num_rows:
                self._database.delete(self._session, self._table, deleted.select(list(self.key)))
        if rows.num_rows:
            self._database.insert(self._session, self._table, rows, self._upsert(rows.schema))

    def _upsert(self, schema: Schema) -> str:
        """What an INSERT does with a key that is there."""
        if not self.key:
            return ""
        keys = ", ".join(quoted(each) for each in self.key)
        others = [quoted(each) for each in schema.names if each not in self.key]
        if not others:
            return f"ON CONFLICT ({keys}) DO NOTHING"
        return (
            f"ON CONFLICT ({keys}) DO UPDATE SET {', '.join(f'{each} = excluded.{each}' for each in others)}"
        )

    # --- sessions

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._do(self._database.begin)
        try:
            yield
        except BaseException:
            with suppress(Exception):
                self._do("ROLLBACK")
            raise
        self._do("COMMIT")

    def _patiently(self, do: Callable[[], Any]) -> Any:
        """Do something with the database; if it is away, wait and do it again, each time from the start."""
        until, pause = seconds() + self.patience, 0.1
        while True:
            try:
                if self._session is None:
                    self._session = self._connected()
                return do()
            except ConnectorError:
                raise
            # Its driver raises many kinds of exceptions; all of them become one error of Headrace.
            except Exception as error:
                if not isinstance(error, self._database.errors()):
                    raise
                away = self._database.is_away(error)
                self.close()
                if not away or seconds() + pause > until:
                    raise self._failed(error, away) from None
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _connected(self) -> Any:
        try:
            return self._database.connect(self.connect_to)
        except ImportError:
            extra = _EXTRA.format(extra=self.type)
            raise ConnectorError(
                "HR-C021",
                f"the driver for {self._database.name} is not installed",
                place=self.place,
                hint=extra,
            ) from None

    def _failed(self, error: Exception, away: bool) -> ConnectorError:
        said = re.sub(r"\s+", " ", str(error)).strip()
        return ConnectorError(
            "HR-C022",
            f"{self._database.name} refused the table {self.table}: {said}"
            if not away
            else f"{self._database.name} cannot be reached: {said}",
            place=self.place,
            hint="everything that was committed is safe: repair it, and run again",
        )

    def _check_key(self, schema: Schema) -> None:
        missing = next((each for each in self.key if each not in schema.names), None)
        if missing is not None:
            raise ConnectorError(
                "HR-C023",
                f"the key has a column {missing!r} that the rows do not have",
                place=self.place,
                hint=f"columns: {', '.join(schema.names)}",
            )
        if self.operation is not None and (not self.key or self.operation not in schema.names):
            raise ConnectorError(
                "HR-C023",
                f"operation = {self.operation!r} needs a key, and a column of this name",
                place=self.place,
                hint='write CHANGELOG(SELECT …) PRIMARY KEY (k), and set on the sink: key = "k"',
            )


def _is_missing(error: Exception) -> bool:
    """Whether the reason is that there is no such table."""
    return any(words in str(error).lower() for words in ("does not exist", "no such table"))


def newest(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """The last row of each key; an upsert may not touch a row twice."""
    if not key:
        return rows
    numbered = rows.select(list(key)).append_column("\0row", pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(key), use_threads=False).aggregate([("\0row", "max")])
    return rows.take(last.column("\0row_max").sort())
