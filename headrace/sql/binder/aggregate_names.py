"""The aggregates by their SQL names."""

from __future__ import annotations

from typing import Final

from headrace.plan.nodes.aggregates import FUNCTIONS

SPELLINGS: Final = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var_samp": "variance",
    "first_value": "first",
    "last_value": "last",
    "any_value": "first",
}
AGGREGATES: Final[dict[str, str]] = {
    **{name: name for name in FUNCTIONS if name != "count_distinct"},
    **SPELLINGS,
}
"""From the name in SQL to the name in `headrace.plan.nodes.aggregates`."""

DISTINCT: Final = {"count": "count_distinct", "min": "min", "max": "max"}
"""The aggregates that compute `f(DISTINCT x)`, where supported."""

SEES_NULLS: Final = frozenset({"first", "last"})
"""Aggregates that also see null values, so that FILTER cannot be implemented with nulls."""

MORE: Final = frozenset(
    {"count_if", "bool_and", "every", "bool_or", "some", "any", "approx_count_distinct", "max_by", "min_by"}
    | {"median", "percentile", "collect_list", "array_agg", "collect_set", "listagg", "string_agg"}
    | {"approx_percentile", "percentile_approx", "topk", "topkdistinct", "corr", "covar_pop", "covar_samp"}
    | {"bit_and", "bit_or", "bit_xor"}
)
"""The names that `headrace.sql.binder.more_aggregates` reads. A user may define them otherwise."""
