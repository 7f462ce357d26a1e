"""Parts of the sentences of several causes."""

from __future__ import annotations

from headrace.runtimes.why.found import Found
from headrace.runtimes.words import lasting, length, listed, size


def subject(found: Found) -> tuple[str, str, str]:
    """The subject of a sentence, with its verb and its pronoun."""
    names = found.queries
    if len(names) == 1:
        return f"Query {names[0]}", "has", "It holds"
    return f"Queries {listed(names)}", "have", "They hold"


def waited(found: Found, rest: str) -> str:
    """Query joined has waited 24 s for stream buys, …. It holds 1,240 rows."""
    who, has, holds = subject(found)
    if not found.waits:
        return f"{who} {has} nothing to do: {found.stream} {rest}."
    how_long = "" if found.waited is None else f" {lasting(found.waited)}"
    also = f" The same is true of {listed(found.also)}." if found.also else ""
    held = (
        f"{found.rows:,} row{'' if found.rows == 1 else 's'}"
        if found.rows
        else f"{size(found.bytes)} of state"
    )
    return f"{who} {has} waited{how_long} for stream {found.stream}, {rest}. {holds} {held}.{also}"


def silent_since(found: Found) -> str:
    """Since when a stream is silent."""
    arrived = found.read.arrived if found.read.arrived is not None else found.status.begun
    return "silent" if arrived is None else f"silent since {found.at(arrived)}"


def bound(found: Found) -> str:
    """What the stream may do, by its bounds."""
    stream, per_second = found.read, found.status.ticks_per_second
    if stream.latency is not None:
        return f"allowed to be {length(stream.latency, per_second)} late"
    if stream.learned:
        return "with a bound that is learned from its rows"
    if stream.disorder is None:
        return "with bounds that depend on other streams"
    return f"allowed to be {length(stream.disorder, per_second)} late"


def set_bound(found: Found, key: str, value: str, into: str = "to") -> str:
    """How to set a bound: in the file and by a command, or in Python; `into` is the word for the place."""
    status, stream = found.status, found.stream
    if status.file is None:
        return f'"{key}": "{value}" in bounds["{stream}"]'
    command = f'headrace control {status.file} bounds {stream} --{key} "{value}"'
    return f'{key} = "{value}" {into} the bounds under [streams.{stream}], or run: {command}'


def patience(found: Found) -> str:
    """A latency to propose: that of the disorder, but at least five seconds."""
    least = 5 * found.status.clock_per_second
    return length(max(found.read.disorder or 0, least), found.status.clock_per_second)


def source(found: Found) -> str:
    """What the stream reads."""
    return f" ({found.read.source})" if found.stream and found.read.source else ""
