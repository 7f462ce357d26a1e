"""The cell of each row of a stream with sources by a column (`headrace.time.sources`)."""

from __future__ import annotations

import difflib

import numpy as np
import pyarrow as pa

from headrace.arrays import Ints
from headrace.errors import TimeError
from headrace.schema import Schema
from headrace.state.columns import is_bytes, is_fixed
from headrace.state.keys import hash_rows
from headrace.time.sources import SourcesPromise


def cells_of(column: pa.Array, cells: int, numbered: bool = False) -> Ints:
    """The cell of each value. Equal values have the same cell in every process; nulls are one source.

    `numbered`: small numbers are their own cells.
    """
    if numbered and pa.types.is_integer(column.type):
        numbers: Ints = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return numbers % cells
    high = hash_rows([column], len(column)).view(np.uint64) >> np.uint64(33)
    return (high % np.uint64(cells)).astype(np.int64)


def check_column(promise: SourcesPromise, schema: Schema, stream: str) -> None:
    """Raise HR-T052 if the stream does not have the column, or its values cannot be hashed."""
    column = promise.by.column
    if column not in schema.names:
        near = difflib.get_close_matches(column, schema.names, n=1)
        raise TimeError(
            "HR-T052",
            f"sources by {column!r}, a column that the stream does not have",
            place=stream,
            hint=f"did you mean {near[0]}?" if near else f"columns: {', '.join(schema.names)}",
        )
    of = schema.field(column).type
    if not is_bytes(of) and not (pa.types.is_boolean(of) or (is_fixed(of) and of.bit_width <= 64)):
        raise TimeError(
            "HR-T052",
            f"sources by {column!r}, which is of type {of}",
            place=stream,
            hint="name a column of numbers, times or text",
        )
