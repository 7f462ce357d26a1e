"""Conditions that must all be true, tried in the order that what was measured makes cheapest.

A condition that costs little and rules out much comes first; a costly one is then computed for the rows that
are left, and for no other. Built-in functions are total and deterministic, so nobody can see on which rows
they were computed; a user's function that is not declared to be so may raise or count its calls, and is given
every row, as it always is. Costs are a table, shares are counted: no clock decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.expressions.bound import Bound, Call
from headrace.expressions.expression import Expression
from headrace.expressions.functions import FUNCTIONS
from headrace.expressions.nodes import And
from headrace.expressions.predicate import Mask, compile_predicate
from headrace.expressions.rewriting import conjuncts, is_movable
from headrace.expressions.scope import Scope

_SMALL: Final = 256
"""Rows of a batch below which nothing is gained by looking twice."""
_SAMPLE: Final = 1024
"""Rows of which every condition is counted, once in a while."""
_FEW: Final = 4
"""Where fewer than one row in so many is left, these are picked out."""
_GAIN: Final = 0.9
"""A new order must cost less than this share of the one in force."""
_CHEAP, _NUMBERS, _TEXTS, _ROW_BY_ROW = 1, 2, 12, 200
"""About what an operation costs on a row: a comparison in NumPy, in Arrow, on texts, in Python."""


class Sieve:
    """The rows of a batch for which every condition of a predicate is true.

    Laws: the mask is that of the predicate, whatever the order; the order is a function of the rows seen.
    `every` is how many rows pass between two looks at the order; None, as at first: it stays as written.
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
        if self.every is None or len(self._parts) < 2 or batch.num_rows < _SMALL:
            return self._whole(batch)
        self._seen += batch.num_rows
        if self._seen >= self._due:
            self._due = self._seen + self.every
            self._measure(batch.slice(0, _SAMPLE))
        mask = None if self._fixed is None else self._fixed(batch)
        for at in self.order:
            mask = self._parts[at].sift(batch, mask)
        assert mask is not None
        return mask

    # ------------------------------------------------------------------------------------------- the order

    def _measure(self, sample: pa.RecordBatch) -> None:
        """Count what each condition lets pass, older counts for half; take a better order if there is one."""
        self._sampled = self._sampled / 2 + sample.num_rows
        for i, part in enumerate(self._parts):
            self._passed[i] = self._passed[i] / 2 + int(np.count_nonzero(part(sample)))
        best = sorted(range(len(self._parts)), key=self._rank)
        if self._cost(best) < _GAIN * self._cost(self.order):
            self.order = best

    def share(self, condition: int) -> float:
        """The share of rows that a condition lets pass, as far as is known."""
        return self._passed[condition] / self._sampled if self._sampled else 1.0

    def _rank(self, condition: int) -> float:
        """Cost for each row that is ruled out: in this order all is cheapest, if they are independent."""
        return self._parts[condition].cost / max(1e-6, 1 - self.share(condition))

    def _cost(self, order: Sequence[int]) -> float:
        shares = np.cumprod([1.0, *(self.share(i) for i in order)])
        return float(sum(self._parts[i].cost * left for i, left in zip(order, shares, strict=False)))

    @property
    def is_changed(self) -> bool:
        """Whether conditions are tried in another order than they were written in."""
        return self.order != sorted(self.order)

    def __str__(self) -> str:
        return ", ".join(f"{self._parts[i].written} ({self.share(i):.0%})" for i in self.order)

    # ----------------------------------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What was measured, as plain values."""
        known = {"order": self.order, "passed": self._passed, "sampled": self._sampled}
        return {**known, "seen": self._seen, "due": self._due}

    def restore(self, known: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.order, self._passed, self._sampled = (
            list(known["order"]),
            list(known["passed"]),
            known["sampled"],
        )
        self._seen, self._due = known["seen"], known["due"]


class _Condition:
    """One condition over the columns that it reads, and about what it costs on a row."""

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
        """Of the rows in `mask`, those for which it is true; few of them are picked out if it is dear."""
        if mask is None:
            return self(batch)
        if self.cost > _NUMBERS:
            left = np.flatnonzero(mask)
            if _FEW * len(left) < len(mask):
                return self._picked(batch, left)
        return mask & self(batch)

    def _picked(self, batch: pa.RecordBatch, left: Any) -> Mask:
        found = np.zeros(batch.num_rows, np.bool_)
        at = pa.array(left)
        columns = [batch.column(i).take(at) for i in self._columns]
        found[left] = self._holds(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        return found


def _cost(bound: Bound) -> int:
    if not isinstance(bound, Call):
        return 0
    return max(_CHEAP, _own_cost(bound) + sum(map(_cost, bound.args)))


def _own_cost(call: Call) -> int:
    if call.kernel.lower is None:
        return _ROW_BY_ROW
    types = [call.type, *(each.type for each in call.args)]
    return _NUMBERS if all(map(pt.is_primitive, types)) else _TEXTS
