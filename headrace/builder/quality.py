"""The quality that rows were given, as columns: `headrace_window("a")`, `headrace_granularity()`."""

from __future__ import annotations

from headrace.builder.expressions import Call
from headrace.sql.fragments import identifier


def headrace_window(of: str | None = None) -> Call:
    """The size of the window of a FROM item, or of the only one, that a row was given, in ticks.

    In `agg`, outside of an aggregate: the smallest among the rows of a group.
    """
    return Call(f"headrace_window({'' if of is None else identifier(of)})")


def headrace_granularity() -> Call:
    """The granularity to which a row was rounded, in ticks; of a group the coarsest among its rows."""
    return Call("headrace_granularity()")
