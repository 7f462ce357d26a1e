"""Whether two answers are the same stream: equal bags at every time, floats up to rounding.

Rows that are equal as they stand cancel first; what is left is matched one by one within the tolerance, so
that no order of nearly equal floats can mislead the comparison.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from headrace.flow.batch import Batch
from headrace.schema import DataType, Schema
from headrace.testing.values import Bag, Event, Row, canonical_row, row_order

SHOWN = 20


def events_of(batches: Iterable[Batch]) -> list[Event]:
    """The rows of a stream's batches with their times, in the order in which they came."""
    return [event for batch in batches for event in _events(batch)]


def _events(batch: Batch) -> list[Event]:
    assert batch.end is None, "a batch of a stream has no ends"
    columns = [column.to_pylist() for column in batch.data.columns]
    rows = zip(*columns, strict=True) if columns else [()] * len(batch)
    return [(time, canonical_row(row)) for time, row in zip(batch.start.tolist(), rows, strict=True)]


def assert_same_stream(
    actual: Iterable[Batch | Event],
    expected: Sequence[Event],
    *,
    schema: Schema | None = None,
    relative: float = 1e-9,
    absolute: float = 1e-12,
) -> None:
    """Fail, showing the rows missing and unexpected at each time, unless `actual` is `expected`, in order.

    With a `schema`, each batch must have its column names and types.
    """
    found = list(actual)
    _assert_typed([each for each in found if isinstance(each, Batch)], schema)
    events = [event for each in found for event in _as_events(each)]
    assert_ordered(events)
    report = difference(events, expected, relative=relative, absolute=absolute)
    assert not report, "\n".join([f"the answers differ at {len(report)} times", *report[:SHOWN]])


def assert_ordered(events: Sequence[Event]) -> None:
    """Fail where a time is less than the one before."""
    for position, ((before, _), (time, row)) in enumerate(pairwise(events), start=1):
        assert before <= time, f"row {position} is out of order: {row} at {time} came after time {before}"


def difference(
    actual: Sequence[Event], expected: Sequence[Event], *, relative: float = 1e-9, absolute: float = 1e-12
) -> list[str]:
    """For each time at which the bags differ, in words: what is missing and what is unexpected."""
    got, wanted = _by_time(actual), _by_time(expected)
    report = []
    for time in sorted(got.keys() | wanted.keys()):
        missing, unexpected = unmatched(wanted[time], got[time], relative=relative, absolute=absolute)
        if missing or unexpected:
            report.append(_describe(time, missing, unexpected))
    return report


def unmatched(
    wanted: Bag, got: Bag, *, relative: float = 1e-9, absolute: float = 1e-12
) -> tuple[list[Row], list[Row]]:
    """The rows of each bag that have no partner in the other, by content."""
    missing = _sorted(wanted - got)
    unexpected = _sorted(got - wanted)
    for row in list(missing):
        partner = next((other for other in unexpected if close(row, other, relative, absolute)), None)
        if partner is not None:
            missing.remove(row)
            unexpected.remove(partner)
    return missing, unexpected


def close(left: Row, right: Row, relative: float, absolute: float) -> bool:
    """Whether two rows are equal but for the rounding of floats; NaN equals NaN, null equals null."""
    if len(left) != len(right):
        return False
    return all(_close(a, b, relative, absolute) for a, b in zip(left, right, strict=True))


def _close(a: Any, b: Any, relative: float, absolute: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a is b or math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and bool(a == b)


def _as_events(each: Batch | Event) -> list[Event]:
    return _events(each) if isinstance(each, Batch) else [each]


def _assert_typed(batches: list[Batch], schema: Schema | None) -> None:
    for batch in batches:
        same = schema is None or _columns(batch.data.schema) == _columns(schema)
        assert same, f"the columns are\n{batch.data.schema}\ninstead of\n{schema}"


def _columns(schema: Schema) -> list[tuple[str, DataType]]:
    return [(field.name, field.type) for field in schema]


def _by_time(events: Iterable[Event]) -> defaultdict[int, Bag]:
    bags: defaultdict[int, Bag] = defaultdict(Counter)
    for time, row in events:
        bags[time][canonical_row(row)] += 1
    return bags


def _sorted(bag: Bag) -> list[Row]:
    return sorted(bag.elements(), key=row_order)


def _describe(time: int, missing: list[Row], unexpected: list[Row]) -> str:
    lines = [f"at {time}:"]
    for word, rows in (("missing", missing), ("unexpected", unexpected)):
        lines += [f"  {word:<10} {row}" for row in rows[:SHOWN]]
        if len(rows) > SHOWN:
            lines.append(f"  … and {len(rows) - SHOWN} more {word}")
    return "\n".join(lines)
