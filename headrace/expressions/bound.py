"""The typed form of every expression: inputs, constants and calls, with all coercions explicit.

Two evaluators share it: `compile` turns it into Arrow calls, `evaluate` walks it row by row in plain Python.
They share what an expression *is* (its types); what it *computes*, each gets from its own half of a `Kernel`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.expressions.growth import LONGEST, Growth, refuse_constant

Datum = Any
"""A `pa.Array`, or a `pa.Scalar` that represents a column of equal values."""

Vector = Callable[..., Datum]
"""The compiled half of a call: data in, datum out."""


@dataclass(frozen=True, slots=True)
class Input:
    """A column of the batch."""

    name: str
    index: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known before the first row; None is NULL."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel applied to arguments that already have the required types."""

    kernel: Kernel
    args: tuple[Bound, ...]
    type: pa.DataType


Bound = Input | Constant | Call


@dataclass(frozen=True, eq=False)
class Kernel:
    """One operation with its two independent halves.

    `naive(type, *values)` computes one row in plain Python. `lower(call)` prepares the Arrow form once; None
    means that the operation runs row by row (`arrow.rowwise`). Both are total: a result that does not exist
    is NULL, and nothing raises. A `strict` kernel returns NULL as soon as one argument is NULL, and its naive
    half never sees one. `given` is what it was created with besides its arguments. `growth` gives the size of
    its texts, if they can be much longer than its arguments: a text that is too long is NULL.
    """

    name: str
    naive: Callable[..., Any]
    lower: Callable[[Call], Vector] | None = None
    strict: bool = True
    folds: bool = field(default=True)
    given: Any = None
    growth: Growth | None = None

    def row(self, of: pa.DataType, values: tuple[Any, ...]) -> Any:
        """The naive value on one row."""
        if self.strict and None in values:
            return None
        if self.growth is not None and self.growth.of_row(*values) > LONGEST:
            return None
        return self.naive(of, *values)


def call(kernel: Kernel, args: tuple[Bound, ...], of: pa.DataType) -> Bound:
    """The call, or a constant if its value is already known."""
    constants = [each.value for each in args if isinstance(each, Constant)]
    if kernel.strict and any(value is None for value in constants):
        return Constant(None, of)
    if kernel.growth is not None:
        known = (each.value if isinstance(each, Constant) else None for each in args)
        refuse_constant(kernel.name, kernel.growth.of_row(*known))
    if kernel.folds and len(constants) == len(args):
        return Constant(kernel.row(of, tuple(constants)), of)
    return Call(kernel, args, of)
