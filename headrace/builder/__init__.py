"""Queries composed in Python, with the same features and plans as CQL text.

`stream(…).where(…).window(…)`.
"""

from __future__ import annotations

from headrace.builder.aggregates import (
    aggregate,
    avg,
    count,
    count_distinct,
    desc,
    first,
    lag,
    last,
    max_,
    min_,
    stddev,
    sum_,
    variance,
)
from headrace.builder.builder import Builder, Grouped, stream, table
from headrace.builder.expressions import expr
from headrace.builder.sequences import missing, repeated, sequence
from headrace.builder.windows import headrace_granularity, headrace_window
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
