"""The aggregates by the names that SQL has for them."""

from __future__ import annotations

from typing import Final

from headrace.plan.aggregates import FUNCTIONS

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
"""From the name in SQL to the name in `headrace.plan.aggregates`."""

DISTINCT: Final = {"count": "count_distinct", "min": "min", "max": "max"}
"""What an aggregate of DISTINCT values is, for those that have one."""

SEES_NULLS: Final = frozenset({"first", "last"})
"""Those that count rows whose value is null, so that no FILTER can be made of nulls."""
