"""`headrace init --from FILE`: a pipeline for a file, with inferred columns and time."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.errors import InputError
from headrace.expressions.types import SQL_NAMES, sql_name
from headrace.frames.files import infer_schema
from headrace.frames.sources import time_candidates
from headrace.schema import Schema
from headrace.sql.fragments import identifier

TEXT: Final = '''\
# A pipeline for {data}. docs/pipelines.md explains every key.
#
#     headrace check {here}      check it without running it
#     headrace run {here}        run it

[pipeline]
name = {name}
runtime = "embedded"        # or "spark"
checkpoint = "state"        # lets a run continue where it stopped

# The columns and their types were inferred from the beginning of the file: check them.
[streams.{key}]
source = {source}
schema = """
{schema}
"""
{time}
bounds = {{ disorder = "10 seconds" }}      # rows that are further behind the newest one are late

# How many rows there are, every minute.
[[queries]]
name = "per_minute"
sql = """
  SELECT timestamp_micros(window_start) AS minute, count(*) AS n
  FROM {stream} [RANGE 1 MINUTE SLIDE 1 MINUTE]
"""
sink = "per_minute.jsonl"
late = "late.jsonl"
rejected = "rejected.jsonl"
'''


def pipeline_text(data: Path, directory: Path, time: str | None) -> str:
    """The text of a pipeline file in `directory` that reads `data`."""
    schema = infer_schema(data, "--from")
    column, others = _time_column(schema, data, time)
    name = re.sub(r"\W+", "_", data.stem) or "rows"
    said = f"time = {json.dumps(column)}"
    said += f"        # other columns with times: {', '.join(others)}" if others else ""
    return TEXT.format(
        data=data.name,
        here=directory / "pipeline.toml",
        name=json.dumps(name),
        key=name if name.isascii() else json.dumps(name),
        source=json.dumps(os.path.relpath(data, directory)),
        schema=_columns(schema),
        time=said,
        stream=identifier(name),
    )


def _time_column(schema: Schema, data: Path, time: str | None) -> tuple[str, list[str]]:
    """The time column, and the others that hold times."""
    found = time_candidates(schema.empty_table())
    if time is not None and time not in schema.names:
        hint = f"columns: {', '.join(schema.names)}"
        raise InputError("HR-I076", f"the time column {time!r} does not exist", place=str(data), hint=hint)
    if time is None and not found:
        raise InputError(
            "HR-I076",
            "no column of the file has times",
            place=str(data),
            hint=f"name the column that orders the rows: --time COLUMN (columns: {', '.join(schema.names)})",
        )
    chosen = found[0] if time is None else time
    return chosen, [each for each in found if each != chosen]


def _columns(schema: Schema) -> str:
    """The columns as a schema is written; those of types that CQL cannot declare are left out."""
    known = [field for field in schema if _has_name(field.type)]
    return ",\n".join(f"  {identifier(field.name)} {sql_name(field.type).upper()}" for field in known)


def _has_name(of: pa.DataType) -> bool:
    return bool(pa.types.is_decimal128(of)) or (of in SQL_NAMES and not pa.types.is_null(of))
