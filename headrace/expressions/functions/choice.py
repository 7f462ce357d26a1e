"""Functions that choose: `if`, `nullif`, `coalesce`, `ifnull`."""

from __future__ import annotations

from typing import Final

from headrace.expressions.conditional import case, coalesce, nullif
from headrace.expressions.functions.rule import Rewrite
from headrace.expressions.scope import Rule

ROWS: Final[tuple[Rule, ...]] = (
    Rewrite("if", lambda condition, value, other: case([(condition, value)], other), 3, 3),
    Rewrite("nullif", nullif, 2, 2),
    Rewrite("coalesce", coalesce, 1, None),
    Rewrite("ifnull", coalesce, 2, 2),
)
