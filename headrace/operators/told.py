"""The quality that each row was given, as a column (Cammert et al., §3.3: the exact QoS of each result)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.flow.batch import Times
from headrace.plan.nodes import Granularity, Window


class Told:
    """Puts the sizes, or the grains, beside the rows where the plan says so; else rows stay as they are."""

    def __init__(self, plan: Window | Granularity) -> None:
        self._schema = None if plan.shown is None else plan.schema

    def beside(self, rows: pa.RecordBatch, values: Times | int) -> pa.RecordBatch:
        """The rows, each with its value."""
        if self._schema is None:
            return rows
        told = pa.array(np.broadcast_to(np.asarray(values, np.int64), rows.num_rows))
        return pa.RecordBatch.from_arrays([*rows.columns, told], schema=self._schema)
