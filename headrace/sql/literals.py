"""Numbers as Spark reads them: whole ones are int or bigint, `1.5` is a decimal, `1e0` a double."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

from sqlglot import exp

from headrace.expressions import Expression, Literal
from headrace.sql.codes import Code
from headrace.sql.place import fail

DIGITS: Final = 38
WHOLE: Final = re.compile(r"[0-9]+", re.ASCII)
FRACTION: Final = re.compile(r"[0-9]*\.[0-9]*", re.ASCII)
FLOAT: Final = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][+-]?[0-9]+", re.ASCII)


def literal(node: exp.Literal) -> Expression:
    """A quoted text, or a number."""
    if node.is_string:
        return Literal(str(node.this))
    text = str(node.this)
    if WHOLE.fullmatch(text) and len(text) <= DIGITS:
        value = int(text)
        return Literal(value if value < 2**63 else Decimal(text))
    if FRACTION.fullmatch(text) and 1 < len(text) <= DIGITS:
        return Literal(Decimal(text))
    if FLOAT.fullmatch(text) and math.isfinite(float(text)):
        return Literal(float(text))
    fail(Code.LITERAL, f"{text[:50]!r} is no number that a column could hold", node)
