"""By what the first rows come first: columns and expressions, upwards or downwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.builder.expressions import piece
from headrace.builder.windows import Keys, count_of, listed
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.sql.codes import Code
from headrace.sql.fragments import ordered


@dataclass(frozen=True)
class Descending:
    """The greatest first."""

    of: str | Expression


By = str | Expression | Descending


def desc(of: str | Expression) -> Descending:
    """`of`, the greatest first: `top(3, by=desc("price"))`."""
    return Descending(of)


def row_number(by: By | Sequence[By], partition_by: Keys | None) -> str:
    """The number of a row within its partition, by the order."""
    orders = [by] if isinstance(by, (str, Expression, Descending)) else list(by)
    if not orders:
        raise SqlError(
            Code.SYNTAX, "the first rows are the first by something", hint='top(3, by="price DESC")'
        )
    order = f"ORDER BY {', '.join(map(_order, orders))}"
    keys = [piece(each, "a key").text for each in listed(partition_by)] if partition_by is not None else []
    parts = [f"PARTITION BY {', '.join(keys)}"] if keys else []
    return f"ROW_NUMBER() OVER ({' '.join([*parts, order])})"


def _order(of: By) -> str:
    if isinstance(of, Descending):
        return f"{piece(of.of).text} DESC"
    return piece(of).text if isinstance(of, Expression) else ordered(of)


def bound(n: object) -> int:
    """How many rows are the first."""
    return count_of(n, "top")
