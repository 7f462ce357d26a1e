"""Late and rejected rows in the form that every sink gets: the columns, and how the tables are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.connectors.contract import shown
from headrace.connectors.encode import json_objects
from headrace.time.punctuation import Late, Rejected

LATE_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("time", pa.int64()),
        ("heartbeat", pa.int64()),
        ("lateness", pa.int64()),
        ("missed", pa.int64()),
        ("admitted", pa.bool_()),
        ("row", pa.string()),
        ("reason", pa.string()),
    ]
)
"""A late row, the heartbeat at that time, and how far the row was behind it.

`reason` names the punctuation that the row broke; it is null if the row was late by its time.
"""

REJECTED_SCHEMA: Final = pa.schema(
    [("stream", pa.string()), ("code", pa.string()), ("reason", pa.string()), ("row", pa.string())]
)
"""A rejected row, or as much of it as is known, with the code and the reason."""


def late_rows(late: Sequence[Late]) -> pa.RecordBatch:
    """Late rows of any streams in one form: each row as JSON."""
    columns: list[pa.Array] = [
        pa.array([name for each in late for name in [each.stream] * len(each)], pa.string()),
        pa.array(np.concatenate([each.times for each in late]), pa.int64()),
        pa.array(np.concatenate([np.full(len(each), each.heartbeat, np.int64) for each in late])),
        pa.array(np.concatenate([each.lateness for each in late]), pa.int64()),
        pa.array(np.concatenate([each.missed for each in late]), pa.int64()),
        pa.array(np.concatenate([each.admitted for each in late]), pa.bool_()),
        pa.chunked_array([json_objects(each.rows).cast(pa.string()) for each in late]).combine_chunks(),
        pa.array([why for each in late for why in each.reasons or [None] * len(each)], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=LATE_SCHEMA)


def rejected_rows(rejected: Sequence[Rejected]) -> pa.RecordBatch:
    """Rejected rows of any streams in one form: each row as JSON, or as the original text."""
    columns: dict[str, list[str]] = {name: [] for name in REJECTED_SCHEMA.names}
    for each in rejected:
        n = len(each)
        columns["stream"] += [each.stream] * n
        columns["code"] += [str(each.code)] * n
        columns["reason"] += [each.reason] * n
        columns["row"] += each.raw if each.rows is None else map(shown, json_objects(each.rows).to_pylist())
    return pa.RecordBatch.from_pydict(columns, schema=REJECTED_SCHEMA)
