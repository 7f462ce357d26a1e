"""From the tables `bounds` and `skew` to ticks: what streams promise, alone and about each other."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol, TypeVar

from headrace.errors import PipelineError
from headrace.pipeline.spec import BoundsOf, SkewBound, SkewEstimate, SkewTable, rows
from headrace.time.declared import Lateness, LearnedSkew, Skew
from headrace.time.durations import ticks
from headrace.time.estimation import Adaptivity, Adjusting
from headrace.time.quantile import Confidence
from headrace.time.skew import Pair
from headrace.time.timestamp import MAX_TIME

T = TypeVar("T")
Path_ = tuple[str | int, ...]
Streams = Mapping[str, Lateness | None]
"""The streams that may be named, with their bounds; None: their time is not external."""

STEPS = 10
"""The number of steps into which the horizon of an estimate is divided, unless its tick is given."""


class Locating(Protocol):
    """Knows where keys are: an error in `do` gets the place of `path`."""

    def at(self, path: Path_, do: Callable[[], T]) -> T: ...


def _fail(reader: Locating, code: str, message: str, path: Path_, hint: str = "") -> NoReturn:
    """Raise an error at the place of a key."""

    def do() -> NoReturn:
        raise PipelineError(code, message, hint=hint)

    reader.at(path, do)


def maybe(length: str | int | None, domain: int | None) -> Callable[[], int | None]:
    """A function that converts an optional duration to ticks, for `at`."""
    return lambda: None if length is None else ticks(length, domain)


def lateness_of(reader: Locating, place: Path_, bounds: BoundsOf, domain: int | None) -> Lateness:
    """The declared or estimated bounds on how late the rows of a stream are."""
    said: dict[str, Any] = {
        key: reader.at((*place, key), maybe(getattr(bounds, key), domain))
        for key in ("disorder", "latency", "transit", "skew")
    }
    said |= {"slack": bounds.slack, "transit": said["transit"] or 0, "fifo": bounds.fifo}
    if bounds.estimate is None:
        return Lateness(**said)
    other = next((key for key in ("disorder", "slack") if said[key] is not None), None)
    if other is not None:
        _fail(
            reader,
            "HR-F012",
            f"both {other} and estimate are set",
            place,
            "remove one; an estimate can have a floor and a ceiling",
        )
    e = bounds.estimate
    floor = reader.at((*place, "estimate", "floor"), lambda: ticks(e.floor, domain))
    ceiling = reader.at((*place, "estimate", "ceiling"), maybe(e.ceiling, domain))
    made = Confidence(e.loss, floor, MAX_TIME if ceiling is None else ceiling, e.half_life)
    return Lateness(**said, confidence=made)


def skew_of(reader: Locating, at: Path_, table: SkewTable, streams: Streams, domain: int | None) -> Skew:
    """What streams promise about each other, in ticks."""
    found: dict[tuple[str, str], tuple[Pair, ...]] = {}
    for i, bound in enumerate(table.bounds):
        here: Path_ = (*at, "bounds", i)
        for key in ("of", "on"):
            _check_stream(reader, (*here, key), getattr(bound, key), streams)
        pairs = reader.at(here, _pairs(bound, domain))
        found[bound.of, bound.on] = found.get((bound.of, bound.on), ()) + pairs
    _check_groups(reader, (*at, "groups"), table.groups, streams)
    tick = reader.at((*at, "tick"), maybe(table.tick, domain))
    if tick == 0:
        _fail(reader, "HR-F004", "a tick cannot be 0", (*at, "tick"), "leave it out for the clock's own")
    return Skew(
        found,
        reader.at((*at, "timeout"), maybe(table.timeout, domain)),
        table.closure,
        tuple(map(tuple, table.groups)),
        tick or 1,
        None
        if table.estimate is None
        else _learned(reader, (*at, "estimate"), table.estimate, streams, domain),
    )


def _pairs(bound: SkewBound, domain: int | None) -> Callable[[], tuple[Pair, ...]]:
    """A function that converts the pairs to ticks and counts of rows, for `at`."""

    def pair(wait: str | int, delta: str | int) -> Pair:
        count = rows(wait)
        behind = ticks(delta, domain)
        return Pair(ticks(wait, domain), behind) if count is None else Pair.tuples(count, behind)

    return lambda: tuple(pair(wait, delta) for wait, delta in bound.pairs)


def _learned(
    reader: Locating, at: Path_, table: SkewEstimate, streams: Streams, domain: int | None
) -> LearnedSkew:
    """Bounds between streams that are learned; streams with declared bounds are not learned about."""
    for name in table.streams or ():
        _check_stream(reader, (*at, "streams"), name, streams)
        said = streams[name]
        if said is not None and (said.pairs() or said.confidence is not None):
            _fail(
                reader,
                "HR-F012",
                f"stream {name!r} has bounds of its own",
                (*at, "streams"),
                f"remove it from streams, or remove disorder, slack and estimate from the bounds of {name}",
            )
    if table.window is None and not {"alpha", "adjust"}.isdisjoint(table.model_fields_set):
        _fail(
            reader,
            "HR-F005",
            "alpha and adjust need a window",
            at,
            'set window to a number of rows, such as 1000, or to a time, such as "1 minute"',
        )
    free = (name for name, said in streams.items() if said is not None and not said.is_declared)
    names = tuple(table.streams or free)
    if not names:
        _fail(reader, "HR-F012", "every stream has bounds of its own", at, "remove estimate from skew")
    horizon = reader.at((*at, "horizon"), lambda: ticks(table.horizon, domain))
    tick = reader.at((*at, "tick"), maybe(table.tick, domain)) or max(1, horizon // STEPS)
    return LearnedSkew(names, horizon, tick, reader.at(at, lambda: _adaptivity(table, domain)))


def _adaptivity(table: SkewEstimate, domain: int | None) -> Adaptivity | None:
    """W, α and how W changes (Srivastava & Widom, §6.2); None: the greatest skew so far counts."""
    if table.window is None:
        return None
    adjust = None if table.adjust is None else Adjusting(**table.adjust.model_dump())
    count = table.window if isinstance(table.window, int) else rows(table.window)
    if count is not None:
        return Adaptivity(count, table.alpha, adjust)
    return Adaptivity(ticks(table.window, domain), table.alpha, adjust, in_time=True)


def _check_groups(reader: Locating, at: Path_, groups: list[list[str]], streams: Streams) -> None:
    """A stream can be in only one heartbeat group."""
    seen: set[str] = set()
    for i, members in enumerate(groups):
        for name in members:
            _check_stream(reader, (*at, i), name, streams)
            if name in seen:
                _fail(reader, "HR-F016", f"stream {name!r} is in two groups", (*at, i), "remove it from one")
            seen.add(name)


def _check_stream(reader: Locating, at: Path_, name: str, streams: Streams) -> None:
    """Raise an error unless `name` is a stream with external time, and one bound for all of its rows."""
    said = streams.get(name)
    if said is not None and said.sources is not None:
        message = f"stream {name!r} has sources by a column, so [skew] cannot name it"
        _fail(reader, "HR-F151", message, at, "remove the stream from [skew], or remove its sources")
    if streams.get(name) is None:
        near = difflib.get_close_matches(name, streams, n=1)
        what = "does not have external time" if name in streams else "does not exist"
        _fail(
            reader,
            "HR-F016",
            f"stream {name!r} {what}",
            at,
            f"did you mean {near[0]}?" if near else f"streams: {', '.join(streams)}",
        )
