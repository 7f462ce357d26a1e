"""Functions that make texts longer: the size of a result is known before it is computed.

A text longer than `LONGEST` is NULL, or an error if that is known before the first row. All texts of a batch
together may take `TOTAL` bytes: an Arrow array holds at most twice that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ExpressionError

LONGEST: Final = 16 << 20
"""Maximum size in bytes of one text that a function produces."""
TOTAL: Final = 1 << 30
"""Maximum size in bytes of all texts that a function produces from one batch."""

Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Growth:
    """The maximum size of a result in bytes.

    For one row (None is not known yet), and for each row of a batch.
    """

    of_row: Callable[..., int]
    of_batch: Callable[..., Sizes]
    """Empty: no row can be too long."""


def refuse_constant(name: str, size: int) -> None:
    """Raise an error if a function always produces a text that is too long."""
    if size > LONGEST:
        message = f"{name} would return a string of {size:,} bytes; the limit is {LONGEST:,}"
        raise ExpressionError("HR-E015", message, hint="make the string shorter")


def refuse_total(name: str, total: int, rows: int) -> None:
    """Raise an error if the texts of a batch are too long in total."""
    if total > TOTAL:
        message = f"{name} would return {total:,} bytes of strings for {rows:,} rows; the limit is {TOTAL:,}"
        raise ExpressionError(
            "HR-E016", message, place=name, hint="make the strings shorter, or read smaller blocks"
        )


def guarded(name: str, growth: Growth, run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, with NULL for rows whose text would be too long."""

    def checked(*args: Any) -> Any:
        sizes = growth.of_batch(*args)
        if not len(sizes) or int(sizes.sum()) <= LONGEST:
            return run(*args)
        fits = sizes <= LONGEST
        refuse_total(name, int(sizes[fits].sum()), len(sizes))
        if fits.all():
            return run(*args)
        # The functions are strict: where the first argument is NULL, so is the result.
        first = args[0] if isinstance(args[0], pa.Array) else pa.repeat(args[0], len(sizes))
        return run(pc.if_else(pa.array(fits), first, pa.scalar(None, first.type)), *args[1:])

    return checked


def lengths(datum: Any) -> Any:
    """Bytes of each text, 0 for NULL; one number for a constant."""
    if isinstance(datum, pa.Scalar):
        return utf8_size(datum.as_py())
    return pc.fill_null(pc.binary_length(datum).cast(pa.int64()), 0).to_numpy(zero_copy_only=False)


def numbers(datum: Any) -> Any:
    """Each integer, 0 for NULL."""
    if isinstance(datum, pa.Scalar):
        return datum.as_py() or 0
    return pc.fill_null(datum, 0).to_numpy(zero_copy_only=False)


def utf8_size(text: str | None) -> int:
    """Bytes of a text in UTF-8; 0 for NULL."""
    return 0 if text is None else len(text.encode("utf-8", "surrogatepass"))


def column(sizes: Any, *args: Any) -> Sizes:
    """Sizes as one number per row of the arguments."""
    rows = next((len(each) for each in args if isinstance(each, pa.Array)), 1)
    return np.broadcast_to(np.asarray(sizes, np.int64), (rows,))
