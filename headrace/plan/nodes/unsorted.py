"""Aggregates over windows, of rows in any order."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.plan.nodes.core import SlidingAggregate


@dataclass(frozen=True)
class UnsortedWindows(SlidingAggregate):
    """`SlidingAggregate` over rows in any order: open panes are held, and no row is."""
