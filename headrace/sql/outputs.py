"""From a relation back to a stream: ISTREAM, DSTREAM, RSTREAM, and what is meant where none is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headrace.plan.nodes import DStream, IStream, RStream
from headrace.plan.windows import Ticks
from headrace.sql.catalog import Relation
from headrace.sql.codes import Code
from headrace.sql.lifetimes import FOREVER, keeps_all, lasts, ticks_of
from headrace.sql.place import Place, fail


def _istream(relation: Relation, place: Place) -> Relation:
    """The rows that come; of a stream those are all its rows."""
    return relation if relation.is_stream else replace(relation, plan=IStream(relation.plan), implicit=False)


def _dstream(relation: Relation, place: Place) -> Relation:
    if relation.is_stream:
        hint = "give the stream a window, as in [RANGE 10 MINUTES]"
        fail(Code.MEANINGLESS_OUTPUT, "no row leaves a stream without a window", place, hint)
    if relation.implicit and keeps_all(relation.plan):
        hint = "give the streams windows, as in [RANGE 10 MINUTES]"
        fail(Code.MEANINGLESS_OUTPUT, "streams without windows keep all rows: none leaves", place, hint)
    return replace(relation, plan=DStream(relation.plan), implicit=False)


def _rstream(relation: Relation, place: Place) -> Relation:
    """Every row again at each slide, or at each tick if nothing slides."""
    if relation.is_stream or lasts(relation.plan) == FOREVER:
        hint = "bound it, as in [NOW] or [RANGE 10 MINUTES SLIDE 1 MINUTE], or write ISTREAM"
        fail(Code.ENDLESS, "RSTREAM repeats rows that never leave without end", place, hint)
    return _reported(relation, _ticks(relation, place) or Ticks(1))


OUTPUTS: Final[dict[str, Callable[[Relation, Place], Relation]]] = {
    "ISTREAM": _istream,
    "DSTREAM": _dstream,
    "RSTREAM": _rstream,
}


def by_default(relation: Relation, place: Place) -> Relation:
    """A stream is left alone, a sliding query reports each window once, any other relation its new rows."""
    if relation.is_stream:
        return relation
    ticks = _ticks(relation, place)
    if ticks is None or lasts(relation.plan) == FOREVER:
        return _istream(relation, place)
    return _reported(relation, ticks)


def _reported(relation: Relation, ticks: Ticks) -> Relation:
    return replace(relation, plan=RStream(relation.plan, ticks.slide, ticks.phase), implicit=False)


def _ticks(relation: Relation, place: Place) -> Ticks | None:
    found = ticks_of(relation.plan)
    if len({ticks.slide for ticks in found}) > 1:
        hint = "write ISTREAM(…), or let all windows slide by the same amount"
        fail(Code.SLIDES, "the windows slide by different amounts", place, hint)
    if len(found) > 1:
        hint = "write ISTREAM(…), or let their ranges differ by a multiple of the SLIDE"
        fail(Code.SLIDES, "the windows end at different instants", place, hint)
    return next(iter(found), None)
