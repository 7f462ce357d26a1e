"""Queries composed in Python: each call adds what the words of the same name add to a text.

A builder writes CQL and has it read at once, so that a composed query and the same query as text are one
plan, refused for the same reasons with the same codes. Calls take effect in the order in which they stand:
where SQL would apply the new clause before one that is there, what is there becomes a query in FROM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from headrace.builder.expressions import piece
from headrace.builder.joins import conditions
from headrace.builder.ordering import By, bound, row_number
from headrace.builder.statement import Combined, Item, Joined, Output, Select, Statement
from headrace.builder.windows import Keys, window_clause
from headrace.drawing import Explanation
from headrace.errors import SqlError
from headrace.expressions import Expression
from headrace.plan.nodes import Plan
from headrace.schema import Schema
from headrace.sql import Catalog, Code, Query, TableDef, query
from headrace.sql.catalog import Relation
from headrace.sql.fragments import identifier
from headrace.sql.query import meaning
from headrace.time.durations import Duration

if TYPE_CHECKING:
    from headrace.builder.grouped import Grouped
    from headrace.builder.sequences import Step

Given = str | Expression
CLAUSES = ("window", "joins", "where", "keys", "columns", "having", "distinct", "qualify")
"""In the order in which they take effect."""

SEVERAL = frozenset({"joins", "where", "having"})
"""Those of which more can be added to what is there."""


@dataclass(frozen=True, eq=False)
class Builder:
    """A query so far. Every method gives a new one and leaves this one as it is.

    `name` is what its columns may be qualified with once it is joined with others.
    """

    catalog: Catalog
    statement: Statement
    name: str | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.statement, Select) and self.statement.is_pending):
            _ = self._meaning

    @cached_property
    def _meaning(self) -> Relation:
        """What it means so far: read at once, so that the call that is wrong is the one that fails."""
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
        """The plan that an engine runs, made a stream as a text without ISTREAM and its like is."""
        return self._query.plan

    @property
    def tables(self) -> tuple[TableDef, ...]:
        """The tables it reads, with their rows where these are known."""
        return self._query.tables

    @property
    def ticks_per_second(self) -> int | None:
        """What a tick of its time is; None: sequence numbers."""
        return self._query.ticks_per_second

    def named(self, name: str) -> Query:
        """The query, ready for an engine."""
        if not isinstance(name, str) or not name:
            raise SqlError(Code.SYNTAX, f"a query's name is a text, not {name!r}")
        return replace(self._query, name=name)

    def alias(self, name: str) -> Builder:
        """The same under another name, as in `FROM bids AS b`."""
        identifier(name)
        bare = self.statement.bare if isinstance(self.statement, Select) else None
        item = Item(self.statement, alias=name) if bare is None else replace(bare, alias=name)
        return replace(self, statement=Select(item), name=name)

    def where(self, *conditions: Given) -> Builder:
        """The rows that meet all conditions."""
        ready = self._open("where")
        return self._with(replace(ready, where=ready.where + anded(conditions)))

    def select(self, *columns: Given, **named: Given) -> Builder:
        """These columns; `double="price * 2"` and `"price * 2 AS double"` say the same."""
        return self._with(replace(self._open("columns"), columns=columns_of(columns, named)))

    def window(
        self,
        range: Duration | None = None,
        *,
        min: Duration | None = None,
        slide: Duration | None = None,
        rows: int | None = None,
        partition_by: Keys | None = None,
        session: Duration | None = None,
        now: bool = False,
        unbounded: bool = False,
    ) -> Builder:
        """A stream seen through a window: `[RANGE … SLIDE …]`, `[PARTITION BY … ROWS …]`, `[NOW]`, …

        With `min` the range is the most that the window may be, and may change: `[RANGE MIN …, MAX …]`.
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
        """Rows by group; `agg` or `select` says what of each group."""
        from headrace.builder.grouped import Grouped

        return Grouped(self, keys, tuple(named.items()))

    def agg(self, *columns: Given, **named: Given) -> Builder:
        """Aggregates of all rows together."""
        return self.group_by().agg(*columns, **named)

    def having(self, *conditions: Given) -> Builder:
        """The groups that meet all conditions, which may name what `agg` computed."""
        ready = self._open("having")
        return self._with(replace(ready, having=ready.having + anded(conditions)))

    def top(
        self, n: int, by: By | Sequence[By], partition_by: Keys | None = None, *, number: str | None = None
    ) -> Builder:
        """The first `n` rows by an order such as "price DESC", of all or of each partition.

        `number` names a column that says which place a row has.
        """
        rank, most = row_number(by, partition_by), bound(n)
        ready = self._open("keys")
        if number is None:
            return self._with(replace(ready, qualify=f"{rank} <= {most}"))
        place = identifier(number)
        return self._with(replace(ready, columns=("*", f"{rank} AS {place}"), qualify=f"{place} <= {most}"))

    def join(self, other: Builder, on: Keys | None = None) -> Builder:
        """Pairs of rows valid at the same time that meet all conditions.

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
        """Rows of this stream and then of the others: `headrace.builder.sequence` with this one first."""
        from headrace.builder.sequences import sequence

        return sequence(self, *steps, mode=mode, partition_by=partition_by, within=within, strict=strict)

    def union(self, *others: Builder) -> Builder:
        """The rows of all, each content once: UNION."""
        return self._combined("UNION", others)

    def union_all(self, *others: Builder) -> Builder:
        """The rows of all: UNION ALL. Streams stay a stream."""
        return self._combined("UNION ALL", others)

    def except_(self, other: Builder) -> Builder:
        """What the other has not, each content once: EXCEPT."""
        return self._combined("EXCEPT", (other,))

    def except_all(self, other: Builder) -> Builder:
        """The difference of bags: EXCEPT ALL."""
        return self._combined("EXCEPT ALL", (other,))

    def distinct(self) -> Builder:
        """Each content once while a copy is valid."""
        return self._with(replace(self._open("distinct"), distinct=True))

    def istream(self) -> Builder:
        """The rows that come, as a stream."""
        return self._with(Output("ISTREAM", self.statement))

    def dstream(self) -> Builder:
        """The rows that leave, as a stream."""
        return self._with(Output("DSTREAM", self.statement))

    def rstream(self) -> Builder:
        """All rows again at each slide, as a stream."""
        return self._with(Output("RSTREAM", self.statement))

    def _with(self, statement: Statement) -> Builder:
        return replace(self, statement=statement)

    def _of_several(self, statement: Statement, others: tuple[Builder, ...]) -> Builder:
        """What knows the streams of all and has the name of none."""
        catalog = reduce(Catalog.merged, (each.catalog for each in others), self.catalog)
        return Builder(catalog, statement)

    def _open(self, clause: str) -> Select:
        """A SELECT to which `clause` can be added: this one, or one from this."""
        if isinstance(self.statement, Select) and _takes(self.statement, clause):
            return self.statement
        return Select(self._item())

    def _item(self) -> Item:
        """The query so far as a FROM item."""
        if isinstance(self.statement, Select) and self.statement.bare is not None:
            return self.statement.bare
        return Item(self.statement, alias=self.name)

    def _combined(self, word: str, others: tuple[Builder, ...]) -> Builder:
        branches = [each.statement for each in (self, *map(builder, others))]
        statement = self.statement
        if isinstance(statement, Combined) and statement.word == word and word.startswith("UNION"):
            branches[:1] = statement.branches
        return self._of_several(Combined(word, tuple(branches)), others)

    def explain(self, format: str = "text") -> Explanation:
        """What the query so far would be: `Query.explain`."""
        return self._query.explain(format)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __repr__(self) -> str:
        return self.text


def _takes(statement: Select, clause: str) -> bool:
    """Whether `clause` takes effect after everything that is there."""
    after = CLAUSES[CLAUSES.index(clause) + (clause in SEVERAL) :]
    return not any(statement.item.window if each == "window" else getattr(statement, each) for each in after)


def builder(of: object) -> Builder:
    """`of`, if it is one."""
    if not isinstance(of, Builder):
        hint = "make one with headrace.stream(…)"
        raise SqlError(Code.STREAMS, f"{type(of).__name__} is no stream to combine with", hint=hint)
    return of


def anded(given: tuple[Given, ...]) -> tuple[str, ...]:
    """Conditions as they stand between ANDs."""
    pieces = [piece(each, "a condition") for each in given]
    return tuple(f"({each.text})" if each.is_loose else each.text for each in pieces)


def columns_of(given: tuple[Given, ...], named: dict[str, Given]) -> tuple[str, ...]:
    """A SELECT list."""
    plain = [piece(each, "a column", may_name=True).text for each in given]
    return (*plain, *(f"{piece(each).text} AS {identifier(name)}" for name, each in named.items()))
