"""What values fit which type, in plain Python: the ground that every naive evaluation stands on."""

from __future__ import annotations

import ctypes
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Final

import pyarrow as pa

WIDE: Final = Context(prec=120)
"""Digits enough for any product or quotient of two decimals of 38 digits before it is rounded."""


def in_range(of: pa.DataType, value: int) -> int | None:
    """`value`, or NULL where the integer type `of` cannot hold it."""
    limit = 1 << (of.bit_width - 1)
    return value if -limit <= value < limit else None


def as_float(of: pa.DataType, value: float) -> float:
    """`value` rounded to the precision of `of`."""
    return ctypes.c_float(value).value if of == pa.float32() else value


def as_scaled(of: pa.DataType, value: Decimal) -> Decimal | None:
    """`value` rounded half up to the scale of `of`, or NULL where its precision does not suffice."""
    if not value.is_finite() or value.adjusted() > of.precision:
        return None
    scaled = value.quantize(Decimal(1).scaleb(-of.scale), ROUND_HALF_UP, WIDE)
    if not scaled:
        return abs(scaled)
    return scaled if scaled.adjusted() < of.precision - of.scale else None
