"""The functions that expressions may call, by lower-case name: one table, a family of rows per file."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headrace.expressions.functions import choice, numeric, parts, registry, rounding, temporal, text
from headrace.expressions.functions.registry import ArrayFunction
from headrace.expressions.scope import Rule

FAMILIES: Final = (numeric, rounding, choice, text, parts, temporal)
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
}
FUNCTIONS: Final[dict[str, Rule]] = {rule.name: rule for family in FAMILIES for rule in family.ROWS}
FUNCTIONS.update({alias: FUNCTIONS[name] for alias, name in ALIASES.items()})


def register(
    name: str, function: ArrayFunction, returns: str | pa.DataType, *, replace: bool = False
) -> None:
    """Make a Python function over Arrow arrays callable by `name` in every expression of this process."""
    registry.register(name, function, returns, into=FUNCTIONS, replace=replace)
