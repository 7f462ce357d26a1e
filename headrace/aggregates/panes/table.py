"""Which class keeps which partial value by pane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.aggregates.codecs import Codec, codec_for
from headrace.aggregates.panes.distinct import DistinctCounts
from headrace.aggregates.panes.folds import folded_panes
from headrace.aggregates.panes.log import PaneLog
from headrace.aggregates.panes.values import (
    Extremes,
    Firsts,
    Lasts,
    NullCounts,
    PaneValue,
    RealSums,
    RowCounts,
    WholeSums,
)
from headrace.aggregates.specs import (
    Distinct,
    First,
    Folded,
    Greatest,
    Last,
    Least,
    Nulls,
    OfColumn,
    Real,
    Rows,
    Spec,
    Whole,
)
from headrace.schema import Schema

PLAIN: Final[dict[type[Any], Callable[[Any, PaneLog, Schema], PaneValue]]] = {
    Rows: RowCounts,
    Nulls: NullCounts,
    Whole: WholeSums,
    Real: RealSums,
    Distinct: DistinctCounts,
    Folded: folded_panes,
}
"""Values made of numbers and counts."""

CODED: Final[dict[type[Any], Callable[[Any, PaneLog, Codec], PaneValue]]] = {
    Least: lambda spec, log, codec: Extremes(spec, log, codec, 0),
    Greatest: lambda spec, log, codec: Extremes(spec, log, codec, -1),
    First: Firsts,
    Last: Lasts,
}
"""Values kept as words of a codec, which those of one column share."""


def pane_values(
    specs: Sequence[Spec], log: PaneLog, below: Schema
) -> tuple[list[PaneValue], dict[str, Codec]]:
    """The object that keeps each spec, and the codecs of the columns that need one."""
    coded = dict.fromkeys(s.column for s in specs if isinstance(s, OfColumn) and type(s) in CODED)
    codecs = {column: codec_for(below.field(column).type) for column in coded}
    return [_keeper(spec, log, below, codecs) for spec in specs], codecs


def _keeper(spec: Spec, log: PaneLog, below: Schema, codecs: dict[str, Codec]) -> PaneValue:
    """The object that keeps one partial value; those of `CODED` types share the codec of their column."""
    if isinstance(spec, OfColumn) and type(spec) in CODED:
        return CODED[type(spec)](spec, log, codecs[spec.column])
    return PLAIN[type(spec)](spec, log, below)
