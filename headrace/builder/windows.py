"""`window(range="10 minutes", slide="1 minute")` as a window clause: a table with one entry per form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.builder.expressions import Call, piece
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.sql import fragments
from headrace.sql.fragments import identifier
from headrace.sql.place import Code
from headrace.time.durations import Duration

# Durations: "10 minutes", a `timedelta`, or a number of ticks.


MICROSECOND: Final = dt.timedelta(microseconds=1)
UNITS: Final = (
    (dt.timedelta(days=1), "DAYS"),
    (dt.timedelta(hours=1), "HOURS"),
    (dt.timedelta(minutes=1), "MINUTES"),
    (dt.timedelta(seconds=1), "SECONDS"),
    (dt.timedelta(milliseconds=1), "MILLISECONDS"),
    (MICROSECOND, "MICROSECONDS"),
)


def duration(of: Duration) -> str:
    """The duration as CQL writes it."""
    if isinstance(of, dt.timedelta):
        return _of_timedelta(of)
    if isinstance(of, int) and not isinstance(of, bool):
        return f"{_positive(of)} TICKS"
    if not isinstance(of, str):
        hint = 'pass "10 minutes", a timedelta or a number of ticks'
        raise SqlError(Code.DURATION, f"{of!r} is not a duration", hint=hint)
    return fragments.duration(of)


def _of_timedelta(of: dt.timedelta) -> str:
    """A timedelta in the largest unit that divides it."""
    size, unit = next((each for each in UNITS if of % each[0] == dt.timedelta(0)), UNITS[-1])
    return f"{_positive(of // size)} {unit}"


def _positive(count: int) -> int:
    """A number of ticks, at least 1."""
    if count < 1:
        raise SqlError(
            Code.DURATION, "a duration must be at least one tick", hint='pass "10 minutes", for example'
        )
    return count


Keys = str | Expression | Sequence[str | Expression]


def listed(given: Keys) -> list[str | Expression]:
    """One value or several, as a list."""
    return [given] if isinstance(given, (str, Expression)) else list(given)


def count_of(given: object, what: str) -> int:
    """A whole number of rows, at least one."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise SqlError(Code.WINDOW, f"{what} takes a whole number of rows, at least 1, and got {given!r}")
    return given


def _partition(keys: Keys) -> str:
    return ", ".join(piece(each, "a key").text for each in listed(keys))


def _rows(rows: object, min: object = None) -> str:
    """A number of rows, or two between which it may change."""
    if min is None:
        return f"ROWS {count_of(rows, 'rows')}"
    return f"ROWS MIN {count_of(min, 'min')}, MAX {count_of(rows, 'rows')}"


FORMS: Final[dict[frozenset[str], Callable[..., str]]] = {
    frozenset({"range"}): lambda range: f"RANGE {duration(range)}",
    frozenset({"range", "slide"}): lambda range, slide: f"RANGE {duration(range)} SLIDE {duration(slide)}",
    frozenset({"range", "min"}): lambda range, min: f"RANGE MIN {duration(min)}, MAX {duration(range)}",
    frozenset({"range", "min", "slide"}): (
        lambda range, min, slide: f"RANGE MIN {duration(min)}, MAX {duration(range)} SLIDE {duration(slide)}"
    ),
    frozenset({"rows"}): _rows,
    frozenset({"rows", "min"}): _rows,
    frozenset({"rows", "partition_by"}): (
        lambda rows, partition_by: f"PARTITION BY {_partition(partition_by)} {_rows(rows)}"
    ),
    frozenset({"rows", "min", "partition_by"}): (
        lambda rows, min, partition_by: f"PARTITION BY {_partition(partition_by)} {_rows(rows, min)}"
    ),
    frozenset({"session"}): lambda session: f"SESSION {duration(session)}",
    frozenset({"session", "partition_by"}): (
        lambda session, partition_by: (
            f"PARTITION BY {_partition(partition_by) or '()'} SESSION {duration(session)}"
        )
    ),
    frozenset({"now"}): lambda now: "NOW",
    frozenset({"unbounded"}): lambda unbounded: "UNBOUNDED",
}


PENDING: Final = ("[SESSION",)
"""The beginnings of windows that are valid only with an aggregate."""


def window_clause(**given: Any) -> str:
    """The window clause for these arguments; None and False count as absent."""
    said = {name: value for name, value in given.items() if value is not None and value is not False}
    form = FORMS.get(frozenset(said))
    if form is None:
        forms = "; ".join(" and ".join(sorted(each)) for each in FORMS)
        named = " and ".join(said) if said else "nothing"
        raise SqlError(
            Code.WINDOW, f"a window cannot be made from {named}", hint=f"possible arguments: {forms}"
        )
    return f"[{form(**said)}]"


# The quality of rows as columns: `headrace_window("a")`, `headrace_granularity()`.


def headrace_window(of: str | None = None) -> Call:
    """The window size of a row, in ticks, for a named FROM item or the only one.

    In `agg`, outside an aggregate: the smallest among the rows of a group.
    """
    return Call(f"headrace_window({'' if of is None else identifier(of)})")


def headrace_granularity() -> Call:
    """The granularity to which a row was rounded, in ticks; for a group, the coarsest of its rows."""
    return Call("headrace_granularity()")
