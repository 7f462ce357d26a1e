"""Whether two results are the same stream: equal bags at every time, floats up to rounding.

Equal rows cancel out first; the rest are matched one by one within the tolerance, so that the order of nearly
equal floats does not matter.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from headrace.flow.batch import Batch
from headrace.schema import DataType, Schema

# Values of rows as plain Python: a single NaN, and the order by content.


Row = tuple[Any, ...]
Bag = Counter[Row]
Event = tuple[int, Row]

NAN: Final = math.nan


class Struct(dict[str, Any]):
    """A struct that can be counted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def canonical(value: Any) -> Any:
    """The value itself, but every NaN as the same object, so that rows with it are equal; lists as tuples."""
    if isinstance(value, (list, tuple)):
        return tuple(map(canonical, value))
    if isinstance(value, dict):
        return Struct((name, canonical(each)) for name, each in value.items())
    return NAN if isinstance(value, float) and math.isnan(value) else value


def canonical_row(values: Iterable[Any]) -> Row:
    """The values as a row."""
    return tuple(map(canonical, values))


def order_key(value: Any) -> tuple[Any, ...]:
    """Sorts values of one type: nulls first, NaN last (`headrace.plan.analysis.ordering`)."""
    if value is None:
        return (0,)
    return (2,) if canonical(value) is NAN else (1, value)


def row_order(row: Row) -> tuple[tuple[Any, ...], ...]:
    """Sorts rows of one schema by content, column by column."""
    return tuple(map(order_key, row))


SHOWN = 20


def events_of(batches: Iterable[Batch]) -> list[Event]:
    """The rows of a stream's batches with their times, in order of arrival."""
    return [event for batch in batches for event in _events(batch)]


def _events(batch: Batch) -> list[Event]:
    """The rows of a batch with their times, as Python values."""
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
    """Fail with the missing and unexpected rows at each time, unless `actual` equals `expected`, in order.

    With a `schema`, each batch must have its column names and types.
    """
    found = list(actual)
    _assert_typed([each for each in found if isinstance(each, Batch)], schema)
    events = [event for each in found for event in _as_events(each)]
    assert_ordered(events)
    report = difference(events, expected, relative=relative, absolute=absolute)
    assert not report, "\n".join([f"the answers differ at {len(report)} times", *report[:SHOWN]])


def assert_ordered(events: Sequence[Event]) -> None:
    """Fail if a time is less than the one before."""
    for position, ((before, _), (time, row)) in enumerate(pairwise(events), start=1):
        assert before <= time, f"row {position} is out of order: {row} at {time} comes after time {before}"


def difference(
    actual: Sequence[Event], expected: Sequence[Event], *, relative: float = 1e-9, absolute: float = 1e-12
) -> list[str]:
    """A text for each time at which the bags differ: the missing and the unexpected rows."""
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
    """The rows of each bag without a partner in the other, by content."""
    missing = _sorted(wanted - got)
    unexpected = _sorted(got - wanted)
    for row in list(missing):
        partner = next((other for other in unexpected if close(row, other, relative, absolute)), None)
        if partner is not None:
            missing.remove(row)
            unexpected.remove(partner)
    return missing, unexpected


def close(left: Row, right: Row, relative: float, absolute: float) -> bool:
    """Whether two rows are equal up to the rounding of floats; NaN equals NaN, null equals null."""
    if len(left) != len(right):
        return False
    return all(_close(a, b, relative, absolute) for a, b in zip(left, right, strict=True))


def _close(a: Any, b: Any, relative: float, absolute: float) -> bool:
    """Equal, or floats that differ only by rounding."""
    if isinstance(a, float) and isinstance(b, float):
        return a is b or math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and bool(a == b)


def _as_events(each: Batch | Event) -> list[Event]:
    return _events(each) if isinstance(each, Batch) else [each]


def _assert_typed(batches: list[Batch], schema: Schema | None) -> None:
    """Fail if a batch has other columns or types than expected."""
    for batch in batches:
        same = schema is None or _columns(batch.data.schema) == _columns(schema)
        assert same, f"the columns are\n{batch.data.schema}\ninstead of\n{schema}"


def _columns(schema: Schema) -> list[tuple[str, DataType]]:
    return [(field.name, field.type) for field in schema]


def _by_time(events: Iterable[Event]) -> defaultdict[int, Bag]:
    """The rows as one bag for each time."""
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
