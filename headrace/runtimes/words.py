"""Instants, durations, sizes and tables for people, in the status of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from headrace.drawing.svg import escape
from headrace.time.durations import readable
from headrace.time.timestamp import FARTHEST

MICROS = 1_000_000


def instant(tick: int | None, per_second: int | None = MICROS) -> str:
    """A tick for people: a date if it can be one, else the number."""
    if tick is None or abs(tick) >= FARTHEST:
        return "the beginning"
    at = moment(tick, per_second)
    return str(tick) if at is None else at.isoformat(" ", "milliseconds").replace("+00:00", "Z")


def moment(tick: int, per_second: int | None) -> datetime | None:
    """A tick as a date; None if it is a sequence number, or too small to be meant as one."""
    if per_second is None or abs(tick) * MICROS // per_second < 10**13:
        return None
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=tick * MICROS // per_second)
    except OverflowError:
        return None


def time_of_day(tick: int, per_second: int | None, now: int) -> str:
    """A tick as 14:44:57, with the date if that is not the date of `now`."""
    at, today = moment(tick, per_second), moment(now, per_second)
    if at is None:
        return str(tick)
    same_day = today is not None and at.date() == today.date()
    return at.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")


def length(ticks: int, per_second: int | None = MICROS) -> str:
    """Ticks as a duration; less than 1000 are assumed to be sequence numbers."""
    return readable(ticks, per_second if ticks >= 1_000 or per_second != MICROS else None)


def lasting(seconds: float) -> str:
    """Seconds as people say them: 0.3 s, 24 s, 12 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 600 else readable(round(seconds * MICROS), MICROS)


def size(bytes: int) -> str:
    """Bytes in kB or MB."""
    return f"{bytes / 1e6:,.1f} MB" if bytes >= 1e5 else f"{bytes / 1e3:,.1f} kB"


def listed(names: Sequence[str]) -> str:
    """a, b and c; of many only the first."""
    if len(names) > 4:
        return f"{', '.join(names[:3])} and {len(names) - 3} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else list(names))


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in HTML."""
    names, *lines = ([escape(cell) for cell in row] for row in (head, *rows))
    top = "".join(f'<th style="text-align: left">{name}</th>' for name in names)
    cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{cells}</tbody></table>"
