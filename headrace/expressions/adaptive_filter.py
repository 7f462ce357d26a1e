"""Conditions that must all be true, tested in the cheapest order according to measurements.

A condition that is cheap and selective comes first; an expensive one is then computed only for the remaining
rows. Built-in functions are total and deterministic, so it is not visible on which rows they were computed. A
user's function that is not declared deterministic may raise or count its calls, and always gets every row.
Costs come from a table and selectivities are counted: the order does not depend on a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace import tuning
from headrace.arrays import Mask
from headrace.expressions.bound import Bound, Call
from headrace.expressions.compile import compile_predicate
from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.nodes import And
from headrace.expressions.scope import Scope
from headrace.expressions.substitution import conjuncts, is_movable

_CHEAP, _NUMBERS, _TEXTS, _ROW_BY_ROW = 1, 2, 12, 200
"""The approximate cost of an operation per row: a comparison in NumPy, in Arrow, on texts, in Python."""


class AdaptiveFilter:
    """The rows of a batch for which every condition of a predicate is true.

    Laws: the mask is that of the predicate, in any order; the order is a function of the rows seen. `every`
    is the number of rows between two checks of the order; None, the default: the order stays as written.
    """

    def __init__(self, predicate: Expression, schema: pa.Schema) -> None:
        self._whole = compile_predicate(predicate, schema)
        written = conjuncts(predicate)
        free = [each for each in dict.fromkeys(written) if is_movable(each) and each.columns()]
        fixed = tuple(each for each in written if each not in free)
        self._fixed = compile_predicate(And(fixed), schema) if fixed else None
        self._parts = [_Condition(each, schema) for each in free]
        self.order = list(range(len(free)))
        self.every: int | None = None
        self._passed = [0.0] * len(free)
        self._sampled = 0.0
        self._seen = self._due = 0

    def __call__(self, batch: pa.RecordBatch) -> Mask:
        if self.every is None or len(self._parts) < 2 or batch.num_rows < tuning.current.filter_rows:
            return self._whole(batch)
        self._seen += batch.num_rows
        if self._seen >= self._due:
            self._due = self._seen + self.every
            self._measure(batch.slice(0, tuning.current.filter_sample))
        mask = None if self._fixed is None else self._fixed(batch)
        for at in self.order:
            mask = self._parts[at].sift(batch, mask)
        assert mask is not None
        return mask

    # ------------------------------------------------------------------------------------------- the order

    def _measure(self, sample: pa.RecordBatch) -> None:
        """Count the rows that each condition passes, halving older counts; adopt a better order."""
        self._sampled = self._sampled / 2 + sample.num_rows
        for i, part in enumerate(self._parts):
            self._passed[i] = self._passed[i] / 2 + int(np.count_nonzero(part(sample)))
        best = sorted(range(len(self._parts)), key=self._rank)
        if self._cost(best) < tuning.current.filter_gain * self._cost(self.order):
            self.order = best

    def share(self, condition: int) -> float:
        """The share of rows that a condition passes, as far as known."""
        return self._passed[condition] / self._sampled if self._sampled else 1.0

    def _rank(self, condition: int) -> float:
        """Cost per row that is ruled out; this order is optimal if conditions are independent."""
        return self._parts[condition].cost / max(1e-6, 1 - self.share(condition))

    def _cost(self, order: Sequence[int]) -> float:
        """The expected cost per row of testing the conditions in this order."""
        shares = np.cumprod([1.0, *(self.share(i) for i in order)])
        return float(sum(self._parts[i].cost * left for i, left in zip(order, shares, strict=False)))

    @property
    def is_changed(self) -> bool:
        """Whether the conditions are tested in a different order from the one written."""
        return self.order != sorted(self.order)

    def __str__(self) -> str:
        return ", ".join(f"{self._parts[i].written} ({self.share(i):.0%})" for i in self.order)

    # ----------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """The measurements, as plain values."""
        known = {"order": self.order, "passed": self._passed, "sampled": self._sampled}
        return {**known, "seen": self._seen, "due": self._due}

    def restore(self, known: Mapping[str, Any]) -> None:
        """Continue from what `state` returned."""
        self.order, self._passed, self._sampled = (
            list(known["order"]),
            list(known["passed"]),
            known["sampled"],
        )
        self._seen, self._due = known["seen"], known["due"]


class _Condition:
    """One condition over the columns that it reads, with its approximate cost per row."""

    def __init__(self, written: Expression, schema: pa.Schema) -> None:
        self.written = written
        self._columns = [i for i, name in enumerate(schema.names) if name in written.columns()]
        self._schema = pa.schema([schema.field(i) for i in self._columns])
        self._holds = compile_predicate(written, self._schema)
        self.cost = _cost(written.bind(Scope(self._schema, FUNCTIONS)))

    def __call__(self, batch: pa.RecordBatch) -> Mask:
        columns = [batch.column(i) for i in self._columns]
        return self._holds(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def sift(self, batch: pa.RecordBatch, mask: Mask | None) -> Mask:
        """The rows of `mask` for which it is true.

        If it is expensive, only few rows are taken out and tested.
        """
        if mask is None:
            return self(batch)
        if self.cost > _NUMBERS:
            left = np.flatnonzero(mask)
            if tuning.current.filter_gather * len(left) < len(mask):
                return self._picked(batch, left)
        return mask & self(batch)

    def _picked(self, batch: pa.RecordBatch, left: Any) -> Mask:
        """Test only the rows at the positions `left`."""
        found = np.zeros(batch.num_rows, np.bool_)
        at = pa.array(left)
        columns = [batch.column(i).take(at) for i in self._columns]
        found[left] = self._holds(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return found


def _cost(bound: Bound) -> int:
    """The cost per row of an expression."""
    if not isinstance(bound, Call):
        return 0
    return max(_CHEAP, _own_cost(bound) + sum(map(_cost, bound.args)))


def _own_cost(call: Call) -> int:
    """The cost per row of a call, without its arguments."""
    if call.kernel.lower is None:
        return _ROW_BY_ROW
    types = [call.type, *(each.type for each in call.args)]
    return _NUMBERS if all(map(pt.is_primitive, types)) else _TEXTS
