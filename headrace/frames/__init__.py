"""Queries over tables in one call: DataFrames, Arrow, files and lists in; a result that gives them back."""

from headrace.frames.answer import sql
from headrace.frames.result import Result

__all__ = ["Result", "sql"]
