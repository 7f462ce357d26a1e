"""`bounds=`: how late the rows of each stream may be, as promises for the engine."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, Final

from headrace.engine import Rules
from headrace.engine.inputs import Inputs
from headrace.engine.timekeeper import Heartbeats
from headrace.errors import SparkError
from headrace.time.bounds import Bounds
from headrace.time.durations import Duration, ticks
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.grouping import Grouped
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.timestamp import MAX_TIME

KEYS: Final = ("disorder", "latency", "skew")
StreamBounds = Mapping[str, Duration] | Promise
AllBounds = Mapping[str, StreamBounds] | Bounds | Grouped | Heartbeats | None

_EXAMPLE: Final = 'write bounds={"bids": {"disorder": "10 seconds"}}'


def inputs_of(
    bounds: AllBounds, streams: list[str], enforce: str, guard: Duration | None, per_second: int | None
) -> Inputs:
    """The user's bounds for the streams of a query, in the form that the engine takes."""
    ahead = MAX_TIME if guard is None else ticks(guard, per_second, "guard")
    given = Rules(disordered=True, enforce=enforce, guard=ahead, ticks_per_second=per_second)
    rules = dict.fromkeys(streams, given)
    if bounds is None:
        return Inputs(rules=rules)
    if isinstance(bounds, Bounds | Grouped):
        return Inputs(HeartbeatGenerator(bounds, ordered=False), rules=rules)
    if isinstance(bounds, HeartbeatGenerator):
        return Inputs(bounds.unordered(), rules=rules)
    if not isinstance(bounds, Mapping):
        return Inputs(_heartbeats(bounds), rules=rules)
    for name in bounds:
        if name not in streams:
            raise SparkError(
                "HR-SP13", f"bounds for {name!r}, which the query does not read", hint=nearest(name, streams)
            )
    return Inputs(
        promises={name: promise(name, given, per_second) for name, given in bounds.items()}, rules=rules
    )


def _heartbeats(bounds: Any) -> Heartbeats:
    """The bounds as a heartbeat generator, or HR-SP13. Checked by duck typing."""
    if not hasattr(bounds, "heard_by"):
        message = f"bounds must map streams to their bounds, got {type(bounds).__name__}"
        raise SparkError("HR-SP13", message, hint=_EXAMPLE)
    known: Heartbeats = bounds
    return known


def promise(name: str, given: StreamBounds, per_second: int | None) -> Promise:
    """The promise of one stream."""
    if isinstance(given, Duration):
        raise SparkError("HR-SP13", f"{given!r} does not say which bound it is", place=name, hint=_EXAMPLE)
    if not isinstance(given, Mapping):
        return given
    for key in given:
        if key not in KEYS:
            raise SparkError("HR-SP13", f"unknown bound {key!r}", place=name, hint=nearest(key, KEYS))
    found: dict[str, Any] = {key: ticks(value, per_second, name) for key, value in given.items()}
    if found.keys() == {"latency"}:
        return TimerPromise(found["latency"])
    if found.keys() == {"skew"}:
        return SkewPromise(found["skew"])
    if "disorder" not in found or "skew" in found:
        raise SparkError(
            "HR-SP13",
            f"bounds {sorted(found)} cannot be combined" if found else "the bounds are empty",
            place=name,
            hint="use disorder, latency, both of these, or skew alone",
        )
    return DisorderPromise(found["disorder"], found.get("latency"))


def nearest(name: str, known: Collection[str]) -> str:
    """A hint for a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
