"""Rows as messages: their keys and values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.connectors.encode import json_objects
from headrace.errors import ConnectorError
from headrace.schema import Schema

BYTES: Final = pa.large_binary()
ENCODERS: Final[dict[str, Callable[[pa.RecordBatch], Any]]] = {
    "json": json_objects,
    "raw": lambda rows: rows.column(0),
}


@dataclass(frozen=True)
class MessageFormat:
    """How rows become messages: the format of the value, the columns of the key, and the column of the id."""

    name: str = "json"
    key: tuple[str, ...] = ()
    id: str | None = None

    def check(self, schema: Schema, place: str) -> None:
        """The columns of the key must exist; a raw value is the only column besides the key."""
        missing = next((name for name in self.key if name not in schema.names), None)
        rest = [f for f in schema if f.name not in self.key]
        texts = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary)
        code, message = "HR-C032", None
        if missing is not None:
            code, message = "HR-C023", f"the key has a column {missing!r} that the rows do not have"
        elif self.name == "raw" and (len(rest) != 1 or not any(fits(rest[0].type) for fits in texts)):
            message = "the format raw needs exactly one column besides the key, BINARY or STRING"
        elif self.id is not None and (self.name == "raw" or self.id in schema.names):
            message = f"the column of the id, {self.id!r}, must be a new one, and the format json"
        if message is not None:
            raise ConnectorError(code, message, place=place, hint=f"columns: {', '.join(schema.names)}")

    def messages(
        self, rows: pa.RecordBatch, sent: str = "", first: int = 0
    ) -> tuple[list[bytes | None], list[bytes | None]]:
        """The keys and values of rows; `sent` names what they are sent with, and `first` is their number."""
        if self.id is not None:
            ids = pa.array([f"{sent}-{first + i}" for i in range(rows.num_rows)], pa.string())
            rows = rows.append_column(self.id, ids)
        others = [name for name in rows.schema.names if name not in self.key]
        value = ENCODERS[self.name](rows.select(others) if self.name == "raw" else rows)
        return self._keys(rows), _bytes(value)

    def _keys(self, rows: pa.RecordBatch) -> list[bytes | None]:
        """The keys: one column as text, or several as JSON."""
        if not self.key:
            return [None] * rows.num_rows
        if len(self.key) > 1:
            return _bytes(json_objects(rows.select(self.key)))
        column = rows.column(rows.schema.get_field_index(self.key[0]))
        plain = pt.is_binary(column.type) or pt.is_large_binary(column.type)
        return _bytes(column if plain else pc.cast(column, pa.large_string()))


def _bytes(column: Any) -> list[bytes | None]:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found: list[bytes | None] = whole.cast(BYTES).to_pylist()
    return found
