"""Which class keeps which partial value by pane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from headrace.operators.accumulators.codecs import Codec, codec_for
from headrace.operators.accumulators.pane_blocks import Extremes
from headrace.operators.accumulators.pane_distinct import DistinctCounts
from headrace.operators.accumulators.pane_ends import Firsts, Lasts
from headrace.operators.accumulators.pane_folds import folded_panes
from headrace.operators.accumulators.pane_values import NullCounts, PaneValue, RealSums, RowCounts, WholeSums
from headrace.operators.accumulators.panes import PaneLog
from headrace.operators.accumulators.specs import (
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
    """What keeps each spec, and the codecs of the columns that need one."""
    coded = dict.fromkeys(s.column for s in specs if isinstance(s, OfColumn) and type(s) in CODED)
    codecs = {column: codec_for(below.field(column).type) for column in coded}
    return [_keeper(spec, log, below, codecs) for spec in specs], codecs


def _keeper(spec: Spec, log: PaneLog, below: Schema, codecs: dict[str, Codec]) -> PaneValue:
    if isinstance(spec, OfColumn) and type(spec) in CODED:
        return CODED[type(spec)](spec, log, codecs[spec.column])
    return PLAIN[type(spec)](spec, log, below)
