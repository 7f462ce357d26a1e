"""`window(range="10 minutes", slide="1 minute")` as a window clause: a row per form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.builder.durations import duration
from headrace.builder.expressions import piece
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.sql.codes import Code

Keys = str | Expression | Sequence[str | Expression]


def listed(given: Keys) -> list[str | Expression]:
    """One thing or several, as a list."""
    return [given] if isinstance(given, (str, Expression)) else list(given)


def count_of(given: object, what: str) -> int:
    """A whole number of rows, at least one."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise SqlError(Code.WINDOW, f"{what} takes a whole number of rows, at least 1, not {given!r}")
    return given


def _partition(keys: Keys) -> str:
    return ", ".join(piece(each, "a key").text for each in listed(keys))


FORMS: Final[dict[frozenset[str], Callable[..., str]]] = {
    frozenset({"range"}): lambda range: f"RANGE {duration(range)}",
    frozenset({"range", "slide"}): lambda range, slide: f"RANGE {duration(range)} SLIDE {duration(slide)}",
    frozenset({"range", "min"}): lambda range, min: f"RANGE MIN {duration(min)}, MAX {duration(range)}",
    frozenset({"rows"}): lambda rows: f"ROWS {count_of(rows, 'rows')}",
    frozenset({"rows", "partition_by"}): (
        lambda rows, partition_by: f"PARTITION BY {_partition(partition_by)} ROWS {count_of(rows, 'rows')}"
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
"""How windows begin that mean nothing before something is aggregated."""


def window_clause(**given: Any) -> str:
    """The clause that says what was given; None and False mean that nothing was."""
    said = {name: value for name, value in given.items() if value is not None and value is not False}
    form = FORMS.get(frozenset(said))
    if form is None:
        forms = "; ".join(" and ".join(sorted(each)) for each in FORMS)
        named = " and ".join(said) if said else "nothing"
        raise SqlError(Code.WINDOW, f"no window is made of {named}", hint=f"windows are made of: {forms}")
    return f"[{form(**said)}]"
