"""Lookup tables: all rows of a file, or of a query of a database."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from headrace.connectors.databases import DATABASES, Database
from headrace.connectors.tables import conformed
from headrace.errors import ConnectorError, InputError
from headrace.schema import Schema


def read_query(type: str, connect_to: str, text: str, schema: Schema, place: str = "") -> pa.Table:
    """The rows of a query of a database, with the columns of `schema`, matched by name and cast."""
    database = DATABASES[type]
    try:
        session = database.connect(connect_to)
    except ImportError:
        raise ConnectorError(
            "HR-C021",
            f"the driver for {database.name} is not installed",
            place=place,
            hint=f"pip install 'headrace[{type}]'",
        ) from None
    except database.errors() as error:
        raise _failed(database, "cannot be reached", error, place) from None
    with closing(session):
        try:
            found = ROWS.get(type, _by_rows)(database, session, text)
        except database.errors() as error:
            raise _failed(database, "refused the query of the table", error, place) from None
        except pa.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise InputError("HR-I022", f"the rows cannot be read: {reason}", place=place) from None
    return conformed(found, schema, place, "query")


def _failed(database: Database, what: str, error: Exception, place: str) -> ConnectorError:
    said = re.sub(r"\s+", " ", str(error)).strip()
    return ConnectorError(
        "HR-C026",
        f"{database.name} {what}: {said}",
        place=place,
        hint="check the address, the permissions and the query",
    )


def _by_rows(database: Database, session: Any, text: str) -> pa.Table:
    """The rows of a driver that returns tuples."""
    cursor = session.execute(text)
    names = [each[0] for each in cursor.description or ()]
    rows = cursor.fetchall()
    return pa.table({name: pa.array([row[i] for row in rows]) for i, name in enumerate(names)})


def _by_arrow(database: Database, session: Any, text: str) -> pa.Table:
    """The rows of a driver that returns Arrow data."""
    return session.sql(text).to_arrow_table()


ROWS: Final[dict[str, Callable[[Database, Any, str], pa.Table]]] = {"duckdb": _by_arrow}
"""Databases whose driver has a faster way than tuples."""
