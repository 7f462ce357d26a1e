"""What the dialect adds to SQL, as parsed: windows, outputs and declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from headrace.plan.nodes.match import After, Pattern
from headrace.sql.place import Span

GRANULARITY = "granularity"
"""The key in an aggregate's `meta` for its granularity clause."""
WINDOW = "stream_window"
"""The key in a FROM item's `meta` for its window clause."""
SHOWN = "rows_with_bounds"
"""The key in a FROM item's `meta` that says: its rows are shown, with the bounds of their windows."""
KNOWS_BOUNDS = "rows_know_bounds"
"""The key in a FROM item's `meta` that says: a query reads the bounds of the windows of its rows."""
WITHIN = "distinct_within"
"""The key in the first column's `meta` for the time of `DISTINCT ON (…) WITHIN 1 HOUR`."""
TIME = "time_column"
"""The key in a FROM item's `meta` for the time column that its window names; it must be the stream's."""


@dataclass(frozen=True)
class Duration:
    """`1 HOUR 30 MINUTES`: amounts with their units; a plain number has the unit ''."""

    parts: tuple[tuple[Fraction, str], ...]
    span: Span


@dataclass(frozen=True)
class RangeClause:
    """`[RANGE size]`, with `SLIDE slide OFFSET offset`; `MIN least, MAX size` in place of the size.

    `grows`: windows begin at multiples of the size and grow by the slide, as Flink's CUMULATE.
    """

    size: Duration
    slide: Duration | None
    span: Span
    least: Duration | None = None
    offset: Duration | None = None
    grows: bool = False


@dataclass(frozen=True)
class RowsClause:
    """`[ROWS count]`, `[ROWS MIN least, MAX count]` or `[ROWS count SLIDE slide]`, all with PARTITION BY."""

    count: int
    keys: tuple[exp.Column, ...]
    span: Span
    slide: int = 1
    least: int | None = None


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
    pattern: SeqPattern | None = None
    """How the steps follow each other, if not simply one after the other."""


@dataclass(frozen=True)
class SeqRepeat:
    """A step by its number, or a part in parentheses, so many times."""

    part: SeqPattern
    least: int
    most: int | None


@dataclass(frozen=True)
class SeqParts:
    """Parts that follow each other (`,`), of which one comes (`OR`), or that come in any order (`AND`)."""

    word: str
    parts: tuple[SeqPattern, ...]


SeqPattern = int | SeqRepeat | SeqParts


class Seq(exp.Expression):
    """`SEQ(a AS x, NOT c AS n, b AS y)`: FROM items and their kinds; its `meta` holds `CLAUSE`."""

    CLAUSE: ClassVar[str] = "sequence"
    arg_types: ClassVar[dict[str, Any]] = {"expressions": True}


class SeqStep(exp.Expression):
    """A step of a SEQ: `kind` is '', 'NOT' or '+'. `meta` holds the `LASTING` of `NOT c FOR 1 SECOND`."""

    LASTING: ClassVar[str] = "lasting"
    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True}


@dataclass(frozen=True)
class RecognizeClause:
    """The pattern of MATCH_RECOGNIZE with the places of its variables, AFTER MATCH SKIP, and WITHIN."""

    pattern: Pattern
    variables: Mapping[str, Token]
    after: After
    to: exp.Identifier | None
    within: Duration | None


class Recognize(exp.Expression):
    """`s MATCH_RECOGNIZE (…)`; its `meta` holds `CLAUSE`. Measures and definitions are aliases."""

    CLAUSE: ClassVar[str] = "match_recognize"
    arg_types: ClassVar[dict[str, Any]] = {
        "this": True,
        "partition": False,
        "order": False,
        "measures": False,
        "define": False,
        "alias": False,
    }


class ToStream(exp.Expression):
    """`ISTREAM(query)`, or the same with DSTREAM, RSTREAM, CHANGELOG or UNORDERED; `kind` is the word.

    `keys` are the columns of `CHANGELOG(query) PRIMARY KEY (k)`.
    """

    arg_types: ClassVar[dict[str, Any]] = {"this": True, "kind": True, "with_": False, "keys": False}


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


@dataclass(frozen=True)
class FormatClause:
    """`FORMAT FLINK (op)`: how rows say what they do, and the column with the operation, if it is named."""

    name: exp.Identifier
    operation: exp.Identifier | None


@dataclass(frozen=True)
class ChangingTableDeclaration:
    """`CREATE TABLE name (column type, …) PRIMARY KEY (k, …) FROM stream`, and how its rows change the table.

    `stream` is a name or a query in parentheses.
    """

    name: exp.Identifier
    columns: tuple[tuple[exp.Identifier, exp.DataType], ...]
    keys: tuple[exp.Identifier, ...]
    stream: exp.Expr
    format: FormatClause | None
    delete: exp.Expr | None
    ignore: exp.Expr | None
    replace: bool


@dataclass(frozen=True)
class InsertClause:
    """`INSERT INTO table (column, …) VALUES (…)` or `SELECT …`; into RETURN if there is no table."""

    table: exp.Identifier | None
    columns: tuple[exp.Identifier, ...]
    values: tuple[exp.Expr, ...]
    query: exp.Expr | None
    span: Span


@dataclass(frozen=True)
class UpdateClause:
    """`UPDATE table SET column = value, … WHERE …`."""

    table: exp.Identifier
    values: tuple[tuple[exp.Identifier, exp.Expr], ...]
    where: exp.Expr | None
    span: Span


@dataclass(frozen=True)
class DeleteClause:
    """`DELETE FROM table WHERE …`."""

    table: exp.Identifier
    where: exp.Expr | None
    span: Span


StatementClause = InsertClause | UpdateClause | DeleteClause


@dataclass(frozen=True)
class AggregateDeclaration:
    """`CREATE AGGREGATE name(argument type, …) : type { TABLE …; INITIALIZE: {…} ITERATE: {…} … }`."""

    name: exp.Identifier
    arguments: tuple[tuple[exp.Identifier, exp.DataType], ...]
    result: exp.DataType
    tables: tuple[tuple[exp.Identifier, tuple[tuple[exp.Identifier, exp.DataType], ...]], ...]
    blocks: Mapping[str, tuple[StatementClause, ...]]
    replace: bool


Declaration = (
    StreamDeclaration | ViewDeclaration | TableDeclaration | ChangingTableDeclaration | AggregateDeclaration
)
