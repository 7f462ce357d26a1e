"""What users say of the lateness of their streams, made into promises."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from headrace.engine.inputs import Inputs
from headrace.engine.timekeeper import Heartbeats
from headrace.errors import SparkError
from headrace.graph.admission import Rules
from headrace.time.bounds import Bounds
from headrace.time.durations import Duration, ticks
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, TimerPromise
from headrace.time.grouping import Grouped
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.timestamp import MAX_TIME

KEYS = ("disorder", "latency", "skew")
StreamBounds = Mapping[str, Duration] | Promise
AllBounds = Mapping[str, StreamBounds] | Bounds | Grouped | Heartbeats | None


def inputs_of(
    bounds: AllBounds, streams: list[str], enforce: str, guard: Duration | None, per_second: int | None
) -> Inputs:
    """Inputs of a query from what its user says of its streams."""
    ahead = MAX_TIME if guard is None else ticks(guard, per_second, "guard")
    rules = {name: Rules(disordered=True, enforce=enforce, guard=ahead) for name in streams}
    if bounds is None:
        return Inputs(rules=rules)
    if isinstance(bounds, Bounds | Grouped):
        return Inputs(HeartbeatGenerator(bounds, ordered=False), rules=rules)
    if isinstance(bounds, HeartbeatGenerator):
        return Inputs(bounds.unordered(), rules=rules)
    if not isinstance(bounds, Mapping):
        return Inputs(bounds, rules=rules)
    for name in bounds:
        if name not in streams:
            raise SparkError(
                "HR-SP13", f"bounds for {name!r}, which the query does not read", hint=_near(name, streams)
            )
    return Inputs(
        promises={name: promise(name, said, per_second) for name, said in bounds.items()}, rules=rules
    )


def promise(name: str, said: StreamBounds, per_second: int | None) -> Promise:
    """The promise of one stream."""
    if not isinstance(said, Mapping):
        return said
    for key in said:
        if key not in KEYS:
            raise SparkError("HR-SP13", f"unknown bound {key!r}", place=name, hint=_near(key, KEYS))
    found: dict[str, Any] = {key: ticks(value, per_second, name) for key, value in said.items()}
    if found.keys() == {"latency"}:
        return TimerPromise(found["latency"])
    if found.keys() == {"skew"}:
        return SkewPromise(found["skew"])
    if "disorder" not in found or "skew" in found:
        raise SparkError(
            "HR-SP13",
            f"bounds {sorted(found)} do not go together" if found else "its bounds are empty",
            place=name,
            hint="disorder, latency, both of these, or skew",
        )
    return DisorderPromise(found["disorder"], found.get("latency"))


def _near(name: str, known: tuple[str, ...] | list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
