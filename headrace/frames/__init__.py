"""Queries in one call: over tables (`sql`) and over live sources (`run`); what bounds cost (`bounds`)."""

from headrace.frames.answer import sql
from headrace.frames.bound_costs import BoundCosts, bounds
from headrace.frames.live import Run, run
from headrace.frames.result import Result

__all__ = ["BoundCosts", "Result", "Run", "bounds", "run", "sql"]
