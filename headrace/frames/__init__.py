"""Queries in one call: over tables (`sql`) and over live sources (`run`)."""

from headrace.frames.answer import sql
from headrace.frames.live import Run, run
from headrace.frames.result import Result

__all__ = ["Result", "Run", "run", "sql"]
