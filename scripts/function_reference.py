"""The reference page of functions and aggregates: from the tables of the code, with examples that are run.

The examples of functions are those of `docs/cql/expressions.md`, which a test compares with Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from headrace.expressions.functions import (
    ALIASES,
    CHOICES,
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
from headrace.expressions.functions.rule import FunctionRule, Rewrite
from headrace.sql.binder.aggregate_names import AGGREGATES, MORE
from headrace.testing.asking import ask

EXPRESSIONS: Final = Path(__file__).resolve().parents[1] / "docs" / "cql" / "expressions.md"
HEAD: Final = """# Functions

Every function and aggregate that a query can call, with an example and its value. `…` means more
arguments of the same kind. [Expressions](../cql/expressions.md) has the operators and what differs from
Spark, [aggregates](../cql/aggregates.md) what each aggregate means; you can [write your
own](../cql/user-defined.md). This page is generated, and its examples are run: `python -m
scripts.reference`.
"""
FAMILIES: Final = {
    "Numbers": numeric.ROWS,
    "NULL and choice": CHOICES,
    "Text": (*text.ROWS, *parts.ROWS, *matching.ROWS, *editing.ROWS),
    "Bits and bytes": codes.ROWS,
    "Time": (*temporal.ROWS, *dates.ROWS, *calendar.ROWS),
    "Arrays, maps and structs": (*nested.ROWS, *collections.ROWS, *arrays.ROWS),
    "JSON": json_text.ROWS,
}
OURS: Final = {
    "starts_with": "starts_with('lamp', 'la')",
    "ends_with": "ends_with('lamp', 'mp')",
    "plus_micros": "plus_micros(timestamp_seconds(1), 1000000)",
    "bits_and": "bits_and(7, 3)",
    "bits_or": "bits_or(7, 8)",
    "bits_xor": "bits_xor(5, 1)",
    "bits_not": "bits_not(7)",
}
"""Examples of functions that Spark does not have."""

ROWS: Final = [(0, "lamp", 5), (1, "lamp", 7), (2, "vase", 2), (3, None, None)]
CALLS: Final = {
    **{name: f"{name}(price)" for name in ("count", "sum", "avg", "min", "max", "first", "last")},
    **{name: f"{name}(price)" for name in ("variance", "var_pop", "stddev", "stddev_pop", "median")},
    **{name: f"{name}(price)" for name in ("bit_and", "bit_or", "bit_xor", "collect_list")},
    **{name: f"{name}(item)" for name in ("approx_count_distinct", "collect_set")},
    **{name: f"{name}(item, price)" for name in ("max_by", "min_by")},
    **{name: f"{name}(price, price * price)" for name in ("corr", "covar_pop", "covar_samp")},
    **{name: f"{name}(price, 0.5)" for name in ("percentile", "approx_percentile")},
    **{name: f"{name}(item, 2)" for name in ("topk", "topkdistinct")},
    "count_if": "count_if(price > 4)",
    "bool_and": "bool_and(price > 4)",
    "bool_or": "bool_or(price > 4)",
    "listagg": "listagg(item, ', ')",
}
"""An example of each aggregate, over `ROWS`."""
SAME: Final = {
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "array_agg": "collect_list",
    "string_agg": "listagg",
    "percentile_approx": "approx_percentile",
}
"""Second names of aggregates that have no entry in `AGGREGATES`."""


def functions() -> str:
    """`docs/reference/functions.md`."""
    return "\n".join([HEAD, *_scalars(), *_aggregates()]) + "\n"


def _scalars() -> Iterator[str]:
    """A table for each family of functions."""
    examples = {**_of_the_page(), **OURS}
    names = [rule.name for rows in FAMILIES.values() for rule in rows]
    stream = "CREATE STREAM s (v BIGINT); SELECT {} FROM s"
    listed = ", ".join(f"{examples[name]} AS x{i}" for i, name in enumerate(names))
    ((_, *found),) = ask(stream.format(listed), s=[(0, 1)])
    values = dict(zip(names, found, strict=True))
    others = _by_function(ALIASES)
    for title, rows in FAMILIES.items():
        yield f"## {title}\n\n| function | arguments | also called | example | value |"
        yield "| --- | --- | --- | --- | --- |"
        for rule in sorted(rows, key=lambda rule: rule.name):
            assert isinstance(rule, (FunctionRule, Rewrite))
            count = _arity(rule.least, rule.most)
            example, value = _code(examples[rule.name]), _code(written(values[rule.name]))
            yield f"| `{rule.name}` | {count} | {_names(others, rule.name)} | {example} | {value} |"
        yield ""


def _of_the_page() -> dict[str, str]:
    """The first example of each function in `docs/cql/expressions.md`."""
    found: dict[str, str] = {}
    for name, arguments in re.findall(
        r"^\| `(\w+)(\(.*)` \| `.*` \|$", EXPRESSIONS.read_text(), re.MULTILINE
    ):
        found.setdefault(name, f"{name}{arguments}".replace("\\|", "|"))
    return found


def _aggregates() -> Iterator[str]:
    """The table of aggregates."""
    stream = "CREATE STREAM s (item STRING, price BIGINT); SELECT {} FROM s [RANGE 9 SECONDS SLIDE 9 SECONDS]"
    listed = ", ".join(f"{call} AS x{i}" for i, call in enumerate(CALLS.values()))
    ((_, *found),) = ask(stream.format(listed), s=ROWS)
    values = dict(zip(CALLS, found, strict=True))
    others = _by_function({**{a: b for a, b in AGGREGATES.items() if a != b}, **SAME})
    rows = ", ".join(f"({written(item)}, {written(price)})" for _, item, price in ROWS)
    yield f"## Aggregates\n\nOver the rows (item, price) {rows}:\n"
    yield "| aggregate | also called | example | value |\n| --- | --- | --- | --- |"
    for name in sorted((set(AGGREGATES.values()) | set(MORE)) - set(SAME)):
        yield f"| `{name}` | {_names(others, name)} | {_code(CALLS[name])} | {_code(written(values[name]))} |"


def _by_function(aliases: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alias, name in aliases.items():
        found.setdefault(name, []).append(alias)
    return found


def _names(others: Mapping[str, list[str]], name: str) -> str:
    return ", ".join(f"`{each}`" for each in sorted(others.get(name, ())))


def _arity(least: int, most: int | None) -> str:
    if most is None:
        return f"{least}, …"
    return str(least) if least == most else f"{least} to {most}"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def written(value: Any) -> str:
    """A value as SQL; an instant as clocks in UTC show it."""
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(written, value))}]"
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
