"""The face of the language: a text in, a plan out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlglot import exp

from headrace.drawing import Explanation
from headrace.errors import SqlError
from headrace.plan.nodes import Plan, Source
from headrace.plan.rewrite import Fired, Optimized, optimized
from headrace.schema import Schema
from headrace.sql.catalog import MICROSECONDS, Catalog, Relation, StreamDef, Streams, TableDef
from headrace.sql.codes import Code
from headrace.sql.declaration_parser import DECLARATION
from headrace.sql.declarations import declare_in
from headrace.sql.environment import Environment
from headrace.sql.explain import explained
from headrace.sql.outputs import by_default
from headrace.sql.parse import parse
from headrace.sql.place import fail, reporting
from headrace.sql.rank_bounds import is_unlimited
from headrace.sql.tops import BOUNDED
from headrace.sql.translate import translate


@dataclass(frozen=True)
class Query:
    """A continuous query: what was written and what it means. `plan` denotes a stream.

    `logical` is the plan as it was written, `plan` the one that runs: the same answer after rewriting.
    """

    name: str
    text: str
    logical: Plan
    ticks_per_second: int | None = MICROSECONDS
    tables: tuple[TableDef, ...] = ()
    """The tables it reads, with their rows where these are known; `Engine.add` loads those."""
    streams: tuple[StreamDef, ...] = ()

    @property
    def time_columns(self) -> dict[str, str]:
        """The column that gives the time of a row, by stream, where one is declared."""
        return {each.name: each.time_column for each in self.streams if each.time_column is not None}

    @cached_property
    def _optimized(self) -> Optimized:
        return optimized(self.logical)

    @property
    def plan(self) -> Plan:
        """The plan after rewriting."""
        return self._optimized.plan

    @property
    def rewrites(self) -> tuple[Fired, ...]:
        """The rules that made `plan` of `logical`, in the order in which they fired."""
        return self._optimized.fired

    @property
    def schema(self) -> Schema:
        """The columns of the answer."""
        return self.logical.schema

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams it reads, in the order of their first mention."""
        return tuple(dict.fromkeys(leaf for leaf in _leaves(self.logical) if isinstance(leaf, Source)))

    def explain(self, format: str = "text") -> Explanation:
        """The plan as written and as it runs, how streams can be divided, and what Spark runs natively.

        `format` is "text", "mermaid", "svg" or "html"; `Engine.explain` says what runs in an engine.
        """
        return explained(self.name, self.text, self.logical, self._optimized, self.ticks_per_second, format)

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


LONGEST: Final = 1 << 17
"""Characters of a query: as many as are read within seconds."""


def query(
    text: str,
    streams: Streams | Catalog = (),
    *,
    name: str = "query",
    ticks_per_second: int | None = MICROSECONDS,
) -> Query:
    """The one query in `text`, over `streams` and what the text itself declares.

    `ticks_per_second` is the time of streams that do not say theirs; None: sequence numbers.
    """
    known = streams if isinstance(streams, Catalog) else Catalog(streams, ticks_per_second=ticks_per_second)
    catalog = known.copy()
    with reporting(_checked(text)):
        found, place = _one_query(text, catalog)
        if is_unlimited(found.plan):
            fail(Code.UNBOUNDED_NUMBER, "ROW_NUMBER() numbers all rows there ever are", place, BOUNDED)
        relation = by_default(found, place)
        if relation.is_static:
            hint = "join the table with a stream, or read the file with headrace.read_table"
            fail(Code.NO_STREAM, "this query reads tables only, and so never answers anew", place, hint)
    leaves = _leaves(relation.plan)
    tables = tuple(each for each in catalog.tables.values() if each.plan in leaves)
    read = tuple(each for each in catalog.streams.values() if each.source in leaves)
    return Query(name, text, relation.plan, relation.ticks_per_second, tables, read)


def meaning(text: str, catalog: Catalog) -> Relation:
    """What the one query in `text` means before anything makes a stream of a relation."""
    with reporting(_checked(text)):
        return _one_query(text, catalog.copy())[0]


def _one_query(text: str, catalog: Catalog) -> tuple[Relation, exp.Expr]:
    queries = _run(text, catalog)
    if len(queries) != 1:
        hint = "end the text with one SELECT" if not queries else "call query once for each"
        place = queries[1] if queries else None
        fail(Code.ONE_QUERY, f"the text holds {len(queries)} queries, not one", place, hint)
    return translate(Environment(catalog, text), queries[0]), queries[0]


def declare(text: str, catalog: Catalog) -> None:
    """Add what `text` declares to `catalog`: all of it, or nothing on an error."""
    trial = catalog.copy()
    with reporting(_checked(text)):
        queries = _run(text, trial)
        if queries:
            fail(Code.ONE_QUERY, "this is a query, not a declaration", queries[0], "use query(…)")
    catalog.become(trial)


def _run(text: str, catalog: Catalog) -> list[exp.Expr]:
    """Carry out the declarations, give back the queries."""
    queries = []
    for statement in parse(text):
        if DECLARATION in statement.meta:
            declare_in(Environment(catalog, text), statement.meta[DECLARATION])
        else:
            queries.append(statement)
    return queries


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise SqlError(Code.SYNTAX, f"a query is text, not {type(text).__name__}")
    if len(text) > LONGEST:
        message = f"the text has {len(text):,} characters; the limit is {LONGEST:,}"
        raise SqlError(Code.TOO_LONG, message, hint="put long lists of values into a table, and join with it")
    return text


def _leaves(plan: Plan) -> list[Plan]:
    return [leaf for each in plan.inputs for leaf in _leaves(each)] if plan.inputs else [plan]
