"""What the dialect adds to SQL, as parsed: windows, outputs and declarations."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp

from headrace.sql.place import Span

GRANULARITY = "granularity"
"""The key in an aggregate's `meta` for its granularity clause."""
WINDOW = "stream_window"
"""The key in a FROM item's `meta` for its window clause."""
TIME = "time_column"
"""The key in a FROM item's `meta` for the time column that its window names; it must be the stream's."""


@dataclass(frozen=True)
class Duration:
    """`1 HOUR 30 MINUTES`: amounts with their units; a plain number has the unit ''."""

    parts: tuple[tuple[Fraction, str], ...]
    span: Span


@dataclass(frozen=True)
class RangeClause:
    """`[RANGE size]`, `[RANGE size SLIDE slide]` or `[RANGE MIN least, MAX size]`."""

    size: Duration
    slide: Duration | None
    span: Span
    least: Duration | None = None


@dataclass(frozen=True)
class RowsClause:
    """`[ROWS count]` or `[PARTITION BY keys ROWS count]`."""

    count: int
    keys: tuple[exp.Column, ...]
    span: Span


@dataclass(frozen=True)
class SessionClause:
    """`[SESSION gap]` or `[PARTITION BY keys SESSION gap]`."""

    gap: Duration
    span: Span
    keys: tuple[exp.Column, ...] | None = None


@dataclass(frozen=True)
class NowClause:
    """`[NOW]`."""

    span: Span


@dataclass(frozen=True)
class UnboundedClause:
    """`[UNBOUNDED]`, `[ROWS UNBOUNDED]`, `[RANGE UNBOUNDED]`."""

    span: Span


@dataclass(frozen=True)
class GranularityClause:
    """`[GRANULARITY finest]` or `[GRANULARITY COARSEST coarsest, FINEST finest]`, after an aggregate."""

    finest: Duration
    coarsest: Duration | None
    span: Span


WindowClause = RangeClause | RowsClause | NowClause | UnboundedClause | SessionClause


@dataclass(frozen=True)
class SequenceClause:
    """The clauses after the steps of a SEQ: `RECENT PARTITION BY k WITHIN 1 HOUR STRICT`."""

    mode: str
    keys: tuple[exp.Expr, ...]
    within: Duration | None
    strict: bool


class Seq(exp.Expression):
    """`SEQ(a AS x, NOT c AS n, b AS y)`: FROM items and their kinds; its `meta` holds `CLAUSE`."""

    CLAUSE: ClassVar[str] = "sequence"
    arg_types: ClassVar[dict[str, Any]] = {"expressions": True}


class SeqStep(exp.Expression):
    """A step of a SEQ: `kind` is '', 'NOT' or '+'."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True}


class ToStream(exp.Expression):
    """`ISTREAM(query)`, `DSTREAM(query)` or `RSTREAM(query)`; `kind` is the word."""

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True, "with_": False}


@dataclass(frozen=True)
class StreamDeclaration:
    """`CREATE STREAM name (column type, …) TIME column`; `time` may also be INTERNAL or LATENT."""

    name: exp.Identifier
    columns: tuple[tuple[exp.Identifier, exp.DataType], ...]
    time: exp.Identifier | None
    replace: bool


@dataclass(frozen=True)
class ViewDeclaration:
    """`CREATE VIEW name (column, …) AS query`; without columns, it has those of the query."""

    name: exp.Identifier
    columns: tuple[exp.Identifier, ...]
    query: exp.Expr
    replace: bool


@dataclass(frozen=True)
class TableDeclaration:
    """`CREATE TABLE name (column type, …) FROM 'file'`; without columns, it has those of the file."""

    name: exp.Identifier
    columns: tuple[tuple[exp.Identifier, exp.DataType], ...]
    path: exp.Literal
    replace: bool


Declaration = StreamDeclaration | ViewDeclaration | TableDeclaration
