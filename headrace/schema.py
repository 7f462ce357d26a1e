"""Schemas are Arrow schemas: one type system from the file to the kernel."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

Schema: TypeAlias = pa.Schema
DataType: TypeAlias = pa.DataType


def concat_schemas(left: Schema, right: Schema) -> Schema:
    """The columns of `left`, then those of `right`; names must be disjoint."""
    return pa.schema([*left, *right])


def show_columns(schema: Schema) -> str:
    """The columns with their types, in words."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)
