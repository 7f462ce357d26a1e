"""Queries composed in Python: each method adds the SQL clause of the same name.

A builder writes CQL and binds it immediately, so that a composed query and the same query as text have the
same plan and the same errors. Calls take effect in the order in which they are written: if SQL would apply
the new clause before an existing one, the query so far becomes a subquery in FROM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from headrace.builder.aggregates import By, bound, row_number
from headrace.builder.expressions import piece
from headrace.builder.statement import Combined, Item, Joined, Output, Select, Statement
from headrace.builder.windows import Keys, window_clause
from headrace.drawing import Explanation
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.plan.nodes.core import Plan
from headrace.schema import Schema
from headrace.sql import Catalog, Code, Query, TableDef, query
from headrace.sql.catalog import Relation
from headrace.sql.fragments import identifier
from headrace.sql.query import meaning
from headrace.time.durations import Duration

if TYPE_CHECKING:
    from headrace.builder.sequences import Step
import pyarrow as pa

from headrace.builder.statement import SequenceItem
from headrace.builder.windows import listed
from headrace.plan.nodes.core import Source, Table, TimeKind
from headrace.sql import MICROSECONDS, StreamDef
from headrace.sql.catalog import Streams

Given = str | Expression
CLAUSES = ("window", "joins", "where", "keys", "columns", "having", "distinct", "qualify")
"""Clauses in the order in which they take effect."""

SEVERAL = frozenset({"joins", "where", "having"})
"""Clauses that can be added to several times."""


@dataclass(frozen=True, eq=False)
class Builder:
    """A query under construction. Every method returns a new builder and leaves this one unchanged.

    `name` qualifies its columns after a join with other builders.
    """

    catalog: Catalog
    statement: Statement
    name: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.statement, Select) and self.statement.is_pending):
            _ = self._meaning

    @cached_property
    def _meaning(self) -> Relation:
        """The relation so far; computed immediately, so that the call that causes an error raises it."""
        return meaning(self.text, self.catalog)

    @property
    def text(self) -> str:
        """The query as CQL."""
        return "\n".join(self.statement.lines())

    @property
    def schema(self) -> Schema:
        """The columns so far."""
        return self._meaning.plan.schema

    @cached_property
    def _query(self) -> Query:
        return query(self.text, self.catalog)

    @property
    def plan(self) -> Plan:
        """The plan that an engine runs; a relation becomes a stream by the same default as in CQL text."""
        return self._query.plan

    @property
    def tables(self) -> tuple[TableDef, ...]:
        """The tables it reads, with their rows if known."""
        return self._query.tables

    @property
    def ticks_per_second(self) -> int | None:
        """Ticks per second of its time; None: sequence numbers."""
        return self._query.ticks_per_second

    def named(self, name: str) -> Query:
        """The query, ready for an engine."""
        if not isinstance(name, str) or not name:
            raise SqlError(Code.SYNTAX, f"the name of a query must be a non-empty string, got {name!r}")
        return replace(self._query, name=name)

    def alias(self, name: str) -> Builder:
        """The same query under another name, as in `FROM bids AS b`."""
        identifier(name)
        bare = self.statement.bare if isinstance(self.statement, Select) else None
        item = Item(self.statement, alias=name) if bare is None else replace(bare, alias=name)
        return replace(self, statement=Select(item), name=name)

    def where(self, *conditions: Given) -> Builder:
        """The rows that meet all conditions."""
        ready = self._open("where")
        return self._with(replace(ready, where=ready.where + anded(conditions)))

    def select(self, *columns: Given, **named: Given) -> Builder:
        """Choose columns; `double="price * 2"` and `"price * 2 AS double"` are equivalent."""
        return self._with(replace(self._open("columns"), columns=columns_of(columns, named)))

    def window(
        self,
        range: Duration | None = None,
        *,
        min: Duration | int | None = None,
        slide: Duration | None = None,
        rows: int | None = None,
        partition_by: Keys | None = None,
        session: Duration | None = None,
        now: bool = False,
        unbounded: bool = False,
    ) -> Builder:
        """Put a window on a stream: `[RANGE … SLIDE …]`, `[PARTITION BY … ROWS …]`, `[NOW]`, …

        With `min`, the window is adaptive and `range` or `rows` is its maximum: `[RANGE MIN …, MAX …]`.
        """
        clause = window_clause(
            range=range,
            min=min,
            slide=slide,
            rows=rows,
            partition_by=partition_by,
            session=session,
            now=now,
            unbounded=unbounded,
        )
        ready = self._open("window")
        if ready.item.window:
            ready = Select(Item(ready, alias=self.name))
        return self._with(replace(ready, item=replace(ready.item, window=clause)))

    def group_by(self, *keys: Given, **named: Given) -> Grouped:
        """Group the rows; follow with `agg` or `select` to choose the columns."""

        return Grouped(self, keys, tuple(named.items()))

    def agg(self, *columns: Given, **named: Given) -> Builder:
        """Aggregate all rows together."""
        return self.group_by().agg(*columns, **named)

    def having(self, *conditions: Given) -> Builder:
        """Keep the groups that meet all conditions, which may use the names that `agg` defined."""
        ready = self._open("having")
        return self._with(replace(ready, having=ready.having + anded(conditions)))

    def top(
        self, n: int, by: By | Sequence[By], partition_by: Keys | None = None, *, number: str | None = None
    ) -> Builder:
        """The first `n` rows by an order such as "price DESC", overall or per partition.

        `number` names a column for the row number.
        """
        rank, most = row_number(by, partition_by), bound(n)
        ready = self._open("keys")
        if number is None:
            return self._with(replace(ready, qualify=f"{rank} <= {most}"))
        place = identifier(number)
        return self._with(replace(ready, columns=("*", f"{rank} AS {place}"), qualify=f"{place} <= {most}"))

    def join(self, other: Builder, on: Keys | None = None) -> Builder:
        """Join: pairs of rows that are valid at the same time and meet all conditions.

        A condition is an expression over both sides (`"a.id = b.auction"`), or a column that both have.
        """
        ready, item = self._open("joins"), builder(other)._item()
        joined = Joined(item, conditions(on, ready.item, item))
        return self._of_several(replace(ready, joins=(*ready.joins, joined)), (other,))

    def sequence(
        self,
        *steps: Builder | Step,
        mode: str,
        partition_by: Keys | None = None,
        within: Duration | None = None,
        strict: bool = False,
    ) -> Builder:
        """Match rows of this stream followed by rows of the others: see `headrace.builder.sequence`."""
        from headrace.builder.sequences import sequence

        return sequence(self, *steps, mode=mode, partition_by=partition_by, within=within, strict=strict)

    def union(self, *others: Builder) -> Builder:
        """The rows of all queries, without duplicates: UNION."""
        return self._combined("UNION", others)

    def union_all(self, *others: Builder) -> Builder:
        """The rows of all queries: UNION ALL. Streams stay a stream."""
        return self._combined("UNION ALL", others)

    def except_(self, other: Builder) -> Builder:
        """The rows that the other query does not have, without duplicates: EXCEPT."""
        return self._combined("EXCEPT", (other,))

    def except_all(self, other: Builder) -> Builder:
        """The difference of bags: EXCEPT ALL."""
        return self._combined("EXCEPT ALL", (other,))

    def distinct(self) -> Builder:
        """Rows without duplicates: SELECT DISTINCT."""
        return self._with(replace(self._open("distinct"), distinct=True))

    def istream(self) -> Builder:
        """The inserted rows, as a stream."""
        return self._with(Output("ISTREAM", self.statement))

    def dstream(self) -> Builder:
        """The deleted rows, as a stream."""
        return self._with(Output("DSTREAM", self.statement))

    def rstream(self) -> Builder:
        """All rows again at each slide, as a stream."""
        return self._with(Output("RSTREAM", self.statement))

    def changelog(self, *key: str) -> Builder:
        """All changes, as a stream with their operation; with a key, one change of a key at an instant."""
        return self._with(Output("CHANGELOG", self.statement, tuple(identifier(each) for each in key)))

    def _with(self, statement: Statement) -> Builder:
        return replace(self, statement=statement)

    def _of_several(self, statement: Statement, others: tuple[Builder, ...]) -> Builder:
        """A builder over several others: it knows all their streams and has no name."""
        catalog = reduce(Catalog.merged, (each.catalog for each in others), self.catalog)
        return Builder(catalog, statement)

    def _open(self, clause: str) -> Select:
        """A SELECT to which `clause` can be added: this one, or one that reads from it."""
        if isinstance(self.statement, Select) and _takes(self.statement, clause):
            return self.statement
        return Select(self._item())

    def _item(self) -> Item:
        """The query so far as a FROM item."""
        if isinstance(self.statement, Select) and self.statement.bare is not None:
            return self.statement.bare
        return Item(self.statement, alias=self.name)

    def _combined(self, word: str, others: tuple[Builder, ...]) -> Builder:
        """A set operation; a chain of the same UNION stays flat."""
        branches = [each.statement for each in (self, *map(builder, others))]
        statement = self.statement
        if isinstance(statement, Combined) and statement.word == word and word.startswith("UNION"):
            branches[:1] = statement.branches
        return self._of_several(Combined(word, tuple(branches)), others)

    def explain(self, format: str = "text") -> Explanation:
        """Explain the query so far: see `Query.explain`."""
        return self._query.explain(format)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __repr__(self) -> str:
        return self.text


def _takes(statement: Select, clause: str) -> bool:
    """Whether `clause` takes effect after every clause that the statement already has."""
    after = CLAUSES[CLAUSES.index(clause) + (clause in SEVERAL) :]
    return not any(statement.item.window if each == "window" else getattr(statement, each) for each in after)


def builder(of: object) -> Builder:
    """`of` if it is a builder, else an error."""
    if not isinstance(of, Builder):
        hint = "make one with headrace.stream(…)"
        raise SqlError(
            Code.STREAMS,
            f"expected a stream or query made with headrace.stream, got {type(of).__name__}",
            hint=hint,
        )
    return of


def anded(given: tuple[Given, ...]) -> tuple[str, ...]:
    """Conditions as operands of AND, in parentheses where needed."""
    pieces = [piece(each, "a condition") for each in given]
    return tuple(f"({each.text})" if each.is_loose else each.text for each in pieces)


def columns_of(given: tuple[Given, ...], named: dict[str, Given]) -> tuple[str, ...]:
    """A SELECT list."""
    plain = [piece(each, "a column", may_name=True).text for each in given]
    return (*plain, *(f"{piece(each).text} AS {identifier(name)}" for name, each in named.items()))


# group_by(): rows by group, before their columns are chosen.


@dataclass(frozen=True, eq=False)
class Grouped:
    """The result of `group_by`; `named` keys are (name, expression)."""

    rows: Builder
    keys: tuple[Given, ...]
    named: tuple[tuple[str, Given], ...]
    conditions: tuple[str, ...] = ()

    def having(self, *conditions: Given) -> Grouped:
        """The groups that meet all conditions."""
        return replace(self, conditions=self.conditions + anded(conditions))

    def agg(self, *columns: Given, **named: Given) -> Builder:
        """The keys and these columns, for each group."""
        keys = columns_of(self.keys, dict(self.named))
        return self._grouped(keys + columns_of(columns, named))

    def select(self, *columns: Given, **named: Given) -> Builder:
        """Only these columns, for each group."""
        return self._grouped(columns_of(columns, named))

    def _grouped(self, columns: tuple[str, ...]) -> Builder:
        """The grouped SELECT with these columns."""
        ready = self.rows._open("keys")
        keys = tuple(piece(each, "a key").text for each in (*self.keys, *(key for _, key in self.named)))
        statement = replace(ready, keys=keys, columns=columns, having=self.conditions)
        return self.rows._with(statement)


# `on=…` as conditions: a column that both sides have, or any condition.


def conditions(on: Keys | None, left: Item | SequenceItem, right: Item) -> tuple[str, ...]:
    """The join conditions; a bare column means that it is equal on both sides."""
    if on is None:
        return ()
    return tuple(_condition(each, left, right) for each in listed(on))


def _condition(of: object, left: Item | SequenceItem, right: Item) -> str:
    """One condition as CQL; a bare column becomes `left.c = right.c`."""
    found = piece(of, "a condition")
    if not found.column:
        return f"({found.text})" if found.is_loose else found.text
    if not left.name or not right.name:
        hint = f"name both sides with alias(…), or write on='a.{found.column} = b.{found.column}'"
        raise SqlError(
            Code.AMBIGUOUS_COLUMN, f"on={found.text!r}: one side of the join has no name", hint=hint
        )
    names = (f"{identifier(each.name)}.{identifier(found.column)}" for each in (left, right))
    return " = ".join(names)


# `headrace.stream(…)` and `headrace.table(…)`: where a query starts.


def stream(
    of: str | StreamDef | TableDef | Source | Table | Query,
    streams: Schema | Streams | Catalog = (),
    *,
    time: TimeKind = TimeKind.EXTERNAL,
    time_column: str | None = None,
    ticks_per_second: int | None = MICROSECONDS,
) -> Builder:
    """The rows of a stream, from which a query is composed call by call.

    `of` is the definition of a stream, a query whose answer is read, or a name: of a stream with the Arrow
    schema `streams`, or of one in `streams`. `time`, `time_column` and `ticks_per_second` apply to a stream
    that does not define its own.
    """
    if isinstance(of, Query):
        catalog, name = Catalog(), of.name
        catalog.add_view(name, Relation(of.plan, of.ticks_per_second))
        for each in of.tables:
            catalog.add_table(each)
    elif isinstance(of, str) and isinstance(streams, pa.Schema):
        catalog, name = Catalog([StreamDef(of, streams, time, time_column, ticks_per_second)]), of
    elif isinstance(of, str):
        known = (
            streams if isinstance(streams, Catalog) else Catalog(streams, ticks_per_second=ticks_per_second)
        )
        catalog, name = known.copy(), of
    else:
        catalog = Catalog([of], ticks_per_second=ticks_per_second)
        name = catalog.names[0]
    return Builder(catalog, Select(Item(name)), name)


def table(of: str | TableDef | Table, rows: pa.Table | Schema | None = None) -> Builder:
    """A static table to join with streams: a definition, or a name with its rows.

    With a schema instead of rows, the rows are loaded later by `engine.load`.
    """
    if isinstance(of, str):
        data = rows if isinstance(rows, pa.Table) else None
        if not isinstance(rows, (pa.Table, pa.Schema)):
            hint = "pass a pyarrow.Table or a schema; headrace.read_table(path) reads a file"
            raise SqlError(Code.STREAMS, f"table {of!r} has neither rows nor a schema", hint=hint)
        of = TableDef(of, rows if data is None else data.schema, data)
    return stream(of)
