"""`headrace why`: what each operator is waiting for, since when, and what would release it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.time.durations import readable
from headrace.time.timestamp import FARTHEST

SECOND = 1_000_000
KILLED = "killed"
"""The state of a run whose status says running, but whose process has ended."""


def reasons(status: dict[str, Any]) -> list[str]:
    """A sentence for each waiting operator, or one sentence if none is waiting."""
    streams = status.get("streams", {})
    shed = [_shed(name, stream) for name, stream in streams.items() if stream.get("rows_shed")]
    return _waiting(status) + shed + _reordered(status)


def _reordered(status: dict[str, Any]) -> list[str]:
    """Sentences about joins and conditions that run in a different order."""
    joins = [
        f"Query {query!r} runs its joins in another order than planned: {o}."
        for query, o in _said(status, "orders")
    ]
    tried = [
        f"{name} tests its conditions in the order {order}; percentages are the rows that pass."
        for name, order in _said(status, "conditions")
    ]
    return joins + tried


def _said(status: dict[str, Any], what: str) -> Iterable[tuple[str, str]]:
    """The entries of one part of the status; empty if it is absent."""
    found: dict[str, str] = status.get(what, {})
    return found.items()


def _shed(name: str, stream: dict[str, Any]) -> str:
    shed, came = stream["rows_shed"], stream["rows_in"]
    return (
        f"Stream {name!r} dropped {shed:,} of {came:,} rows ({shed / came:.1%}): they "
        "arrived faster than they could be processed, and load shedding (shed) is on."
    )


def _waiting(status: dict[str, Any]) -> list[str]:
    """A sentence for each waiting operator, and whether the run has ended."""
    if status["state"] == "finished":
        return ["The run is finished: every stream has ended, and nothing is waiting."]
    gone = ["The run was killed; this is the last status that it wrote. Run it again to continue."]
    said = gone if status["state"] == KILLED else []
    said += [_waits(status, name, waiting) for name, waiting in status["waiting"].items()]
    return said or ["Nothing is waiting: every row that arrived has been processed as far as it can be."]


def _waits(status: dict[str, Any], name: str, waiting: dict[str, Any]) -> str:
    """The sentence about one waiting operator."""
    since = f" since {instant(waiting['since'])}" if waiting["since"] is not None else ""
    streams = waiting["streams"]
    for_whom = " and ".join(f"stream {each!r}" for each in streams) or "an operator before it"
    first = f"{name} is waiting{since} for the heartbeat of {for_whom} to reach {instant(waiting['wanted'])}."
    return " ".join([first, *(_stream(status["streams"][each], each, waiting) for each in streams)])


def _stream(stream: dict[str, Any], name: str, waiting: dict[str, Any]) -> str:
    """What is known about a stream that an operator waits for, and what would release it."""
    if stream["heartbeat"] is None:
        if not stream["rows_in"]:
            return (
                f"{name!r} has not sent a row yet, and nothing says how late its rows may be: "
                "its first row, or a latency bound, would release it."
            )
        return f"{name!r} has no heartbeat yet: its bounds do not imply one so far."
    behind = length(waiting["wanted"] - stream["heartbeat"])
    return (
        f"The heartbeat of {name!r} is at {instant(stream['heartbeat'])}, {behind} short. A row newer by "
        "that much, the end of the stream, or a latency bound shorter than its idle time would release it."
    )


def instant(tick: int | None) -> str:
    """A tick for people: a date if it can be one, else the number."""
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
    """Ticks as a duration; 1000 or more are assumed to be microseconds."""
    return readable(ticks, SECOND if ticks >= 1_000 else None)
