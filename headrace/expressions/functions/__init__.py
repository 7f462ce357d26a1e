"""The functions that expressions may call, by lower-case name: one table, a family of rows per file."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.expressions.choice import case, coalesce, nullif
from headrace.expressions.functions import (
    arrays,
    calendar,
    codes,
    collections,
    dates,
    editing,
    json_text,
    matching,
    nested,
    numeric,
    parts,
    temporal,
    text,
)
from headrace.expressions.functions.rule import ArrayFunction, Rewrite, register_in
from headrace.expressions.logic import IS_NOT_NULL, IS_NULL, null_test
from headrace.expressions.scope import Rule

CHOICES: Final[tuple[Rule, ...]] = (
    Rewrite("if", lambda condition, value, other: case([(condition, value)], other), 3, 3),
    Rewrite("nullif", nullif, 2, 2),
    Rewrite("coalesce", coalesce, 1, None),
    Rewrite("ifnull", coalesce, 2, 2),
    Rewrite("isnull", lambda value: null_test(IS_NULL, value), 1, 1),
    Rewrite("isnotnull", lambda value: null_test(IS_NOT_NULL, value), 1, 1),
    Rewrite("nvl2", lambda given, value, other: case([(null_test(IS_NOT_NULL, given), value)], other), 3, 3),
)
NESTED: Final = (nested.ROWS, collections.ROWS, arrays.ROWS, json_text.ROWS)
FAMILIES: Final = (
    *(numeric.ROWS, CHOICES, text.ROWS, parts.ROWS, matching.ROWS, editing.ROWS, codes.ROWS),
    *(temporal.ROWS, dates.ROWS, calendar.ROWS),
    *NESTED,
)
ALIASES: Final = {
    "pow": "power",
    "ceiling": "ceil",
    "signum": "sign",
    "ucase": "upper",
    "lcase": "lower",
    "len": "length",
    "char_length": "length",
    "substr": "substring",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "nvl": "ifnull",
    "dayofmonth": "day",
    "date_diff": "datediff",
    "dateadd": "date_add",
    "position": "locate",
    "character_length": "length",
    "sha": "sha1",
    "btrim": "trim",
    "cardinality": "size",
    "array_size": "size",
    "json_value": "get_json_object",
    "rlike": "regexp_like",
    "char": "chr",
}
FUNCTIONS: Final[dict[str, Rule]] = {rule.name: rule for family in FAMILIES for rule in family}
FUNCTIONS.update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})


def register(
    name: str, function: ArrayFunction, returns: str | pa.DataType, *, replace: bool = False
) -> None:
    """Make a Python function over Arrow arrays callable by `name` in every expression of this process."""
    register_in(name, function, returns, into=FUNCTIONS, replace=replace)
