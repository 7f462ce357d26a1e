"""What each operator waits for, since when, who holds it back, and what would release it, in sentences."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.time.timestamp import FARTHEST

SECOND = 1_000_000
KILLED = "killed"
"""The state of a run that says it is running, and is not."""


def reasons(status: dict[str, Any]) -> list[str]:
    """A sentence for each operator that waits, and one if none does."""
    streams = status.get("streams", {})
    shed = [_shed(name, stream) for name, stream in streams.items() if stream.get("rows_shed")]
    return _waiting(status) + shed + _reordered(status)


def _reordered(status: dict[str, Any]) -> list[str]:
    joins = [f"{query!r} joins in another order than planned: {o}." for query, o in _said(status, "orders")]
    tried = [
        f"{name} tries its conditions as {order} (what passes)."
        for name, order in _said(status, "conditions")
    ]
    return joins + tried


def _said(status: dict[str, Any], what: str) -> Iterable[tuple[str, str]]:
    found: dict[str, str] = status.get(what, {})
    return found.items()


def _shed(name: str, stream: dict[str, Any]) -> str:
    shed, came = stream["rows_shed"], stream["rows_in"]
    return (
        f"Of stream {name!r} {shed:,} rows of {came:,} ({shed / came:.1%}) were shed: they "
        "came faster than they could be answered for, and its table says shed."
    )


def _waiting(status: dict[str, Any]) -> list[str]:
    if status["state"] == "finished":
        return ["The run is finished: every stream has ended, and nothing waits."]
    gone = ["The run ended without a word; this is its last. Run it again and it goes on."]
    said = gone if status["state"] == KILLED else []
    said += [_waits(status, name, waiting) for name, waiting in status["waiting"].items()]
    return said or ["Nothing waits: every row that came is answered for, as far as the query asks."]


def _waits(status: dict[str, Any], name: str, waiting: dict[str, Any]) -> str:
    since = f" since {instant(waiting['since'])}" if waiting["since"] is not None else ""
    streams = waiting["streams"]
    for_whom = " and ".join(f"stream {each!r}" for each in streams) or "an operator before it"
    first = f"{name} waits{since} for {for_whom} to pass {instant(waiting['wanted'])}."
    return " ".join([first, *(_stream(status["streams"][each], each, waiting) for each in streams)])


def _stream(stream: dict[str, Any], name: str, waiting: dict[str, Any]) -> str:
    if stream["heartbeat"] is None:
        if not stream["rows_in"]:
            return (
                f"{name!r} has brought no row yet, and nothing says how late it may be: a first row, or a "
                "latency bound, would help."
            )
        return f"{name!r} has promised nothing yet: its bounds have proved nothing."
    behind = length(waiting["wanted"] - stream["heartbeat"])
    return (
        f"{name!r} has promised time up to {instant(stream['heartbeat'])}, {behind} short; a row later by "
        "that much, a latency bound shorter than its silence, or the end of the stream would release it."
    )


def instant(tick: int | None) -> str:
    """A tick as a person reads it: a date if it can be one, else the number."""
    if tick is None or abs(tick) >= FARTHEST:
        return "the beginning"
    if abs(tick) < 10**13:
        return str(tick)
    try:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=tick)
        return at.isoformat(" ", "milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(tick)


def length(ticks: int) -> str:
    """Ticks as a length of time, taking them for microseconds where they are many."""
    if ticks < 1_000:
        return f"{ticks} ticks"
    if ticks < SECOND:
        return f"{ticks / 1000:.4g} ms"
    return f"{ticks / SECOND:.4g} s" if ticks < 600 * SECOND else f"{ticks / SECOND / 60:.4g} min"
