"""Values of rows as plain Python: one NaN, and the order in which contents are taken."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

Row = tuple[Any, ...]
Bag = Counter[Row]
Event = tuple[int, Row]

NAN: Final = math.nan


def canonical(value: Any) -> Any:
    """The value itself, but every NaN as the same object, so that rows with NaN are equal and hash alike."""
    return NAN if isinstance(value, float) and math.isnan(value) else value


def canonical_row(values: Iterable[Any]) -> Row:
    """The row of these values."""
    return tuple(map(canonical, values))


def order_key(value: Any) -> tuple[Any, ...]:
    """Sorts values of one type: nulls first, NaN last (`headrace.plan.order`)."""
    if value is None:
        return (0,)
    return (2,) if canonical(value) is NAN else (1, value)


def row_order(row: Row) -> tuple[tuple[Any, ...], ...]:
    """Sorts rows of one schema by content, column by column."""
    return tuple(map(order_key, row))
