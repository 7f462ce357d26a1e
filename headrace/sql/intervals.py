"""INTERVAL: a time moved by a fixed number of microseconds, as in `ts - INTERVAL 10 SECONDS`.

Months and years have no fixed length, and an interval is no value of its own: both are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from sqlglot import exp

from headrace.expressions import Arithmetic, Expression, Function, Literal
from headrace.sql.catalog import MICROSECONDS
from headrace.sql.codes import Code
from headrace.sql.place import fail
from headrace.time.durations import UNITS

PART: Final = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")
AMOUNT: Final = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,6})?")
LONGEST: Final = 2**62
Build = Callable[[Any, Any], Expression]


def moved(op: str, build: Build) -> Build:
    """`a + b` or `a - b`, where one side may be an interval."""
    sign = 1 if op == "+" else -1

    def rule(resolver: Any, node: exp.Add | exp.Sub) -> Expression:
        left, right = length(node.this), length(node.expression)
        if right is not None and left is None:
            return _plus(build(resolver, node.this), sign * right, node)
        if left is not None and right is None and sign > 0:
            return _plus(build(resolver, node.expression), left, node)
        if left is not None:
            fail(Code.NOT_CQL, "an INTERVAL is no value of its own", node, "write ts - INTERVAL 10 SECONDS")
        return Arithmetic(op, build(resolver, node.this), build(resolver, node.expression))

    return rule


def _plus(time: Expression, ticks: int, place: exp.Expr) -> Expression:
    if abs(ticks) > LONGEST:
        fail(Code.DURATION, "this interval is longer than time", place)
    return Function("plus_micros", (time, Literal(ticks)))


def length(node: exp.Expr) -> int | None:
    """The microseconds of an interval, or of a sum of intervals; None for anything else."""
    if isinstance(node, exp.Paren):
        return length(node.this)
    if isinstance(node, (exp.Add, exp.Sub)):
        right = length(node.expression)
        left = None if right is None else length(node.this)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    return _read(node) if isinstance(node, exp.Interval) else None


def _read(node: exp.Interval) -> int:
    """`10 SECONDS`, `'10' SECONDS`, `'1 day 2 hours'`."""
    unit, written = node.args.get("unit"), node.this
    if isinstance(written, exp.Literal) and isinstance(unit, exp.Var) and AMOUNT.fullmatch(written.name):
        return _micros(written.name, unit.name, node)
    if isinstance(written, exp.Literal) and unit is None:
        text = written.name.strip()
        parts = PART.findall(text)
        if parts and not PART.sub("", text):
            return sum(_micros(amount, each, node) for amount, each in parts)
    fail(Code.DURATION, "this INTERVAL cannot be read", node, "INTERVAL 10 SECONDS, INTERVAL '1 day 2 hours'")


def _micros(amount: str, unit: str, place: exp.Expr) -> int:
    seconds = UNITS.get(unit.upper())
    if seconds is None:
        hint = "units run from MICROSECONDS to WEEKS; months and years have no fixed length"
        fail(Code.DURATION, f"no INTERVAL in {unit}", place, hint)
    return int(Fraction(amount) * seconds * MICROSECONDS)
