"""`bounds=`: how late the rows of each stream may be, as promises for the engine."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from headrace.engine import Rules
from headrace.engine.inputs import Inputs
from headrace.engine.timekeeper import Heartbeats
from headrace.errors import PipelineError, SparkError
from headrace.pipeline.bounds import lateness_of, skew_of
from headrace.pipeline.load import Reader
from headrace.pipeline.spec import BoundsOf, SkewTable
from headrace.time.bounds import Bounds
from headrace.time.declared import Declared, Lateness
from headrace.time.durations import Duration, ticks
from headrace.time.ets import DisorderPromise, Promise, SkewPromise, StrongestPromise, TimerPromise
from headrace.time.grouping import Grouped
from headrace.time.heartbeat import HeartbeatGenerator
from headrace.time.sources import GROUPS, INSTANTS, SourceGroups, SourcesPromise
from headrace.time.timestamp import MAX_TIME

KEYS: Final = (*BoundsOf.model_fields, "sources")
ALONE: Final = frozenset(("disorder", "latency", "skew"))
"""Bounds that need nothing but the stream itself: a promise for each stream, without a shared generator."""
BY_SOURCE: Final = frozenset(("disorder", "latency", "estimate"))
"""Bounds that can hold for each group of a stream's sources."""
SOURCES: Final = ("column", "groups", "idle", "choose")
"""The keys of `sources`."""
StreamBounds = Mapping[str, Any] | Promise
AllBounds = Mapping[str, StreamBounds] | Bounds | Grouped | Heartbeats | None

_EXAMPLE: Final = 'write bounds={"bids": {"disorder": "10 seconds"}}'


def inputs_of(
    bounds: AllBounds,
    streams: list[str],
    enforce: str,
    guard: Duration | None,
    per_second: int | None,
    skew: Mapping[str, Any] | None = None,
    witnesses: Collection[str] = (),
    stamped: Collection[str] = (),
) -> Inputs:
    """The user's bounds for the streams of a query, in the form that the engine takes.

    `skew` is the table of that name in pipeline files; it may mention `witnesses`. `stamped` are the streams
    whose rows do not bring their times: nothing bounds them.
    """
    ahead = MAX_TIME if guard is None else ticks(guard, per_second, "guard")
    given = Rules(disordered=True, enforce=enforce, guard=ahead, ticks_per_second=per_second)
    rules = dict.fromkeys(streams, given)
    if skew is not None and not isinstance(bounds, Mapping | None):
        message = f"skew is set, and bounds is a {type(bounds).__name__}, which covers all streams"
        raise SparkError("HR-SP13", message, place="skew", hint="leave one of them out")
    if bounds is None and skew is None:
        return Inputs(rules=rules)
    if isinstance(bounds, Bounds | Grouped):
        return Inputs(HeartbeatGenerator(bounds, ordered=False), rules=rules)
    if isinstance(bounds, HeartbeatGenerator):
        return Inputs(bounds.unordered(), rules=rules)
    bounds = {} if bounds is None else bounds
    if not isinstance(bounds, Mapping):
        return Inputs(_heartbeats(bounds), rules=rules)
    for name in bounds:
        if name not in streams:
            raise SparkError(
                "HR-SP13", f"bounds for {name!r}, which the query does not read", hint=nearest(name, streams)
            )
    grouped = {n: given for n, given in bounds.items() if isinstance(given, Mapping) and "sources" in given}
    if grouped:
        rest = {name: given for name, given in bounds.items() if name not in grouped}
        others = [name for name in streams if name not in grouped]
        whole = inputs_of(rest or None, others, enforce, guard, per_second, skew, witnesses, stamped)
        by_source = {name: promise(name, given, per_second) for name, given in grouped.items()}
        return replace(whole, promises={**whole.promises, **by_source}, rules=rules)
    if skew is not None or any(isinstance(each, Mapping) and each.keys() - ALONE for each in bounds.values()):
        said = _Declaring(per_second).declared(bounds, [*streams, *witnesses], stamped, skew or {})
        known = {n: each for n, each in said.streams.items() if n in witnesses or said.is_bounded(n)}
        made = Declared(known, said.skew)
        return Inputs(made.heartbeats(), made.promises(), rules=rules)
    return Inputs(
        promises={name: promise(name, given, per_second) for name, given in bounds.items()}, rules=rules
    )


class _Declaring(Reader):
    """Reads bounds as a pipeline file writes them; errors name the option in place of a line."""

    def __init__(self, per_second: int | None) -> None:
        super().__init__("", Path(), "", {})
        self._per_second = per_second

    def declared(
        self,
        bounds: Mapping[str, Any],
        streams: list[str],
        stamped: Collection[str],
        skew: Mapping[str, Any],
    ) -> Declared:
        """The bounds of all streams, alone and about each other."""
        try:
            found = {n: self._lateness(n, bounds.get(n, {})) for n in streams if n not in stamped}
            table, known = self.valid(SkewTable, _plain(skew)), {**dict.fromkeys(stamped), **found}
            return Declared(found, skew_of(self, ("skew",), table, known, self._per_second))
        except PipelineError as error:
            place = error.place.removeprefix(": ")
            raise SparkError("HR-SP13", error.message, place=place, hint=error.hint) from error

    def _lateness(self, name: str, given: Any) -> Lateness:
        """The bounds of one stream, which mean what they mean in a file."""
        if not isinstance(given, Mapping):
            message = f"a bound of type {type(given).__name__} cannot be combined with bounds between streams"
            raise SparkError("HR-SP13", message, place=name, hint=_EXAMPLE)
        for key in given:
            _check_key(name, key)
        self.name = f"bounds, {name}"
        found = lateness_of(self, (), self.valid(BoundsOf, _plain(given)), self._per_second)
        self.name = ""
        return found


def _plain(given: Any) -> Any:
    """Options as a pipeline file would have them: durations are text."""
    if isinstance(given, timedelta):
        return f"{given // timedelta(microseconds=1)} us"
    if isinstance(given, Mapping):
        return {key: _plain(value) for key, value in given.items()}
    return [_plain(each) for each in given] if isinstance(given, list | tuple) else given


def _check_key(stream: str, key: str) -> None:
    """Raise HR-SP13 for a bound that does not exist."""
    if key not in KEYS:
        raise SparkError("HR-SP13", f"unknown bound {key!r}", place=stream, hint=nearest(key, KEYS))


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
        _check_key(name, key)
    if "sources" in given:
        return _by_source(name, given, per_second)
    found: dict[str, int] = {key: ticks(value, per_second, name) for key, value in given.items()}
    made: list[Promise] = []
    if "disorder" in found:
        made.append(DisorderPromise(found["disorder"] + 1, found.get("latency")))
    elif "latency" in found:
        made.append(TimerPromise(found["latency"]))
    if "skew" in found:
        made.append(SkewPromise(found["skew"]))
    if not made:
        raise SparkError(
            "HR-SP13", "the bounds are empty", place=name, hint="use disorder, latency, skew, or several"
        )
    return made[0] if len(made) == 1 else StrongestPromise(tuple(made))


def _by_source(name: str, given: Mapping[str, Any], per_second: int | None) -> SourcesPromise:
    """Bounds for each group of the sources of a stream."""
    said = {key: value for key, value in given.items() if key != "sources"}
    if said.keys() - BY_SOURCE:
        message = f"sources and {min(said.keys() - BY_SOURCE)} cannot be combined"
        raise SparkError("HR-SP50", message, place=name, hint=f"use {', '.join(sorted(BY_SOURCE))}")
    by = source_groups(name, given["sources"], per_second)
    known = _Declaring(per_second).declared({name: said}, [name], (), {}).streams[name]
    behind = None if known.disorder is None else known.disorder + 1
    return SourcesPromise(by, behind, known.latency, known.confidence)


def source_groups(name: str, given: Any, per_second: int | None) -> SourceGroups:
    """`sources`: the name of a column, or a mapping with it."""
    table: dict[str, Any] = {"column": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("column"), str):
        message = f"sources must name a column, got {given!r}"
        raise SparkError("HR-SP50", message, place=name, hint='write "sources": {"column": "device"}')
    for key in table:
        if key not in SOURCES:
            hint = nearest(key, SOURCES)
            raise SparkError("HR-SP50", f"unknown key {key!r} of sources", place=name, hint=hint)
    idle = None if table.get("idle") is None else ticks(table["idle"], per_second, name)
    choose_after = INSTANTS if table.get("choose", True) else None
    return SourceGroups(table["column"], table.get("groups", GROUPS), idle, choose_after)


def nearest(name: str, known: Collection[str]) -> str:
    """A hint for a name that is not known."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
