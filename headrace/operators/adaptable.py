"""Operators whose quality may be changed while they run, within bounds (Cammert et al., §2)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Times
from headrace.operators.contract import Stateless
from headrace.operators.state.history import History
from headrace.plan.nodes.core import Granularity, Window
from headrace.plan.nodes.quality import Bounds
from headrace.state.part import Part
from headrace.time.timestamp import plus


class Adaptable:
    """An operator with one value that may change, its bounds and its history."""

    history: History

    @property
    def earliest(self) -> int:
        """The first instant from which the value may still be changed."""
        return plus(self.history.answered, 1)

    def change(self, at: int, value: int) -> int:
        """Change the value from `at` on (a granularity rounds it up); returns the instant of the change."""
        assert value in self.history.bounds
        self.history.change(at, value)
        return at


class AdaptableValidity(Adaptable, Stateless):
    """The value decides how long rows are valid. It holds no rows: queries may join in while it runs."""

    keeps_rows = False

    def __init__(self, bounds: Bounds | None) -> None:
        super().__init__()
        assert bounds is not None
        self.history = History(bounds)

    def state(self) -> dict[str, Part]:
        return {"history": self.history}


# The quality that each row was given, as a column (Cammert et al., §3.3: the exact QoS of each result).


class QualityColumn:
    """Adds the quality column (window sizes or grains) to rows if the plan asks for it."""

    def __init__(self, plan: Window | Granularity) -> None:
        self._schema = None if plan.quality_column is None else plan.schema

    def quality_column(self, rows: pa.RecordBatch, values: Times | int) -> pa.RecordBatch:
        """The rows, each with its value."""
        if self._schema is None:
            return rows
        quality = pa.array(np.broadcast_to(np.asarray(values, np.int64), rows.num_rows))
        return pa.RecordBatch.from_arrays([*rows.columns, quality], schema=self._schema)
