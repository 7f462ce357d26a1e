"""Queries composed in Python, with the power and the plans of the text: `stream(…).where(…).window(…)`."""

from __future__ import annotations

from headrace.builder.aggregates import (
    aggregate,
    avg,
    count,
    count_distinct,
    first,
    lag,
    last,
    max_,
    min_,
    stddev,
    sum_,
    variance,
)
from headrace.builder.builder import Builder
from headrace.builder.expressions import expr
from headrace.builder.grouped import Grouped
from headrace.builder.ordering import desc
from headrace.builder.quality import headrace_granularity, headrace_window
from headrace.builder.sequences import missing, repeated, sequence
from headrace.builder.stream import stream, table
from headrace.expressions import coalesce, col, fn, lit, when

__all__ = [
    "Builder",
    "Grouped",
    "aggregate",
    "avg",
    "coalesce",
    "col",
    "count",
    "count_distinct",
    "desc",
    "expr",
    "first",
    "fn",
    "headrace_granularity",
    "headrace_window",
    "lag",
    "last",
    "lit",
    "max_",
    "min_",
    "missing",
    "repeated",
    "sequence",
    "stddev",
    "stream",
    "sum_",
    "table",
    "variance",
    "when",
]
