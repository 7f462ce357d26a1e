"""The entry point of CQL: a query text in, a plan out."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from sqlglot import exp

from headrace.drawing import Explanation, Section
from headrace.errors import SqlError
from headrace.graph.service import USUAL, Service
from headrace.plan.analysis.native import Native, is_native, native_parts
from headrace.plan.analysis.stages import stages
from headrace.plan.nodes.core import Plan, Source
from headrace.plan.nodes.trees import sources_of, walk
from headrace.plan.rewrite import Fired, Optimized, optimized
from headrace.plan.show import Span, in_units, plan_diagram, show
from headrace.schema import Schema
from headrace.sql.binder.declarations import declare_in
from headrace.sql.binder.environment import Environment
from headrace.sql.binder.to_stream import by_default
from headrace.sql.binder.top_n import BOUNDED, is_unlimited
from headrace.sql.binder.translate import outermost, translate
from headrace.sql.catalog import MICROSECONDS, Catalog, Relation, StreamDef, Streams, TableDef
from headrace.sql.parser.declarations import DECLARATION
from headrace.sql.parser.parse import parse
from headrace.sql.place import Code, fail, reporting


@dataclass(frozen=True)
class Query:
    """A continuous query: its text and its plan, which always yields a stream.

    `logical` is the plan as written; `plan` is the rewritten plan that runs, with the same answer.
    """

    name: str
    text: str
    logical: Plan
    ticks_per_second: int | None = MICROSECONDS
    tables: tuple[TableDef, ...] = ()
    """The tables it reads, with their rows if known; `Engine.add` loads those."""
    streams: tuple[StreamDef, ...] = ()
    shared: Plan | None = None
    """The plan to run instead, with the same answer, if it shares nodes with other queries (`with_plan`)."""
    ordered: bool = True
    """Whether results leave in time order; if not, none waits for its place in it."""
    importance: float = 1.0
    """How much its quality counts, beside that of others, where a budget makes windows smaller."""
    service: Service = USUAL
    """What the query expects of the scheduler: a deadline, a share, a priority."""

    @property
    def time_columns(self) -> dict[str, str]:
        """The declared time column of each stream that has one."""
        return {each.name: each.time_column for each in self.streams if each.time_column is not None}

    @cached_property
    def _optimized(self) -> Optimized:
        return optimized(self.logical)

    @property
    def plan(self) -> Plan:
        """The plan that runs: after rewriting, or as `with_plan` says."""
        return self.optimized_plan if self.shared is None else self.shared

    @property
    def optimized_plan(self) -> Plan:
        """The plan after rewriting."""
        return self._optimized.plan

    def with_plan(self, plan: Plan) -> Query:
        """The same query, run by a plan that shares more with others (`headrace.plan.rewrite.share`)."""
        return replace(self, shared=plan)

    @property
    def rewrites(self) -> tuple[Fired, ...]:
        """The rewrite rules that turned `logical` into `plan`, in the order in which they fired."""
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
        """The plan as written and as it runs, how streams can be partitioned, and what Spark runs natively.

        `format` is "text", "mermaid", "svg" or "html"; `Engine.explain` shows what runs in an engine.
        """
        return explained(self.name, self.text, self.logical, self._optimized, self.ticks_per_second, format)

    def run(self, sources: Mapping[str, Any] | None = None, /, **options: Any) -> Any:
        """Run it over live sources, in this process: `headrace.run` with this query."""
        return importlib.import_module("headrace.frames").run(self, sources, **options)

    def subscribe(
        self, function: Callable[[Any], object], sources: Mapping[str, Any] | None = None, /, **options: Any
    ) -> Any:
        """Run it over live sources in a thread, and call a function with each result.

            with query.subscribe(print, bids=bids) as run:
                ...

        Returns the run: `wait` waits for its end, `stop` stops it, and so does leaving the block.
        """
        return self.run(sources, **options).subscribe(function).start()

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()


LONGEST: Final = 1 << 17
"""The maximum number of characters of a query, which keeps parsing within seconds."""


def query(
    text: str,
    streams: Streams | Catalog = (),
    *,
    name: str = "query",
    ticks_per_second: int | None = MICROSECONDS,
    ordered: bool = True,
    importance: float = 1.0,
    service: Service = USUAL,
) -> Query:
    """Parse and bind the one query in `text`, over `streams` and the declarations in the text.

    `ticks_per_second` is the default for streams that do not set it; None: sequence numbers. Results need not
    be `ordered` by time if this says so, or `UNORDERED(…)` in the text: then no row waits for its place in
    time, a group that a punctuation closes is answered before its window ends, and one by the column of
    `sources` when its own source is complete.
    `importance`: how much the quality of this query counts beside that of others that share a memory budget.
    `service`: its deadline, share and priority.
    """
    known = streams if isinstance(streams, Catalog) else Catalog(streams, ticks_per_second=ticks_per_second)
    catalog = known.copy()
    with reporting(_checked(text)):
        found, place, unordered = _one_query(text, catalog)
        if is_unlimited(found.plan):
            fail(
                Code.UNBOUNDED_NUMBER,
                "this ROW_NUMBER() has no limit, so it would keep all rows",
                place,
                BOUNDED,
            )
        relation = by_default(found, place)
        if relation.is_static:
            hint = "join the table with a stream, or read the file with headrace.read_table"
            fail(Code.NO_STREAM, "this query reads only tables, so its answer never changes", place, hint)
    leaves = _leaves(relation.plan)
    tables = tuple(each for each in catalog.tables.values() if each.plan in leaves)
    read = tuple(each for each in catalog.streams.values() if each.source in leaves)
    made = Query(name, text, relation.plan, relation.ticks_per_second, tables, read)
    return replace(made, ordered=ordered and not unordered, importance=importance, service=service)


def meaning(text: str, catalog: Catalog) -> Relation:
    """The relation that the one query in `text` denotes, before it is turned into a stream."""
    with reporting(_checked(text)):
        return _one_query(text, catalog.copy())[0]


def _one_query(text: str, catalog: Catalog) -> tuple[Relation, exp.Expr, bool]:
    """The relation and the syntax tree of the only query in `text`, and whether it is UNORDERED."""
    queries = _run(text, catalog)
    if len(queries) != 1:
        hint = "end the text with one SELECT" if not queries else "call query() once for each"
        place = queries[1] if queries else None
        fail(Code.ONE_QUERY, f"expected one query, and the text has {len(queries)}", place, hint)
    inside, unordered = outermost(queries[0])
    return translate(Environment(catalog, text), inside), inside, unordered


def declare(text: str, catalog: Catalog) -> None:
    """Add the declarations in `text` to `catalog`: all of them, or none if there is an error."""
    trial = catalog.copy()
    with reporting(_checked(text)):
        queries = _run(text, trial)
        if queries:
            fail(Code.ONE_QUERY, "this is a query, not a declaration", queries[0], "pass it to query(…)")
    catalog.become(trial)


def _run(text: str, catalog: Catalog) -> list[exp.Expr]:
    """Execute the declarations and return the queries."""
    queries = []
    for statement in parse(text):
        if DECLARATION in statement.meta:
            declare_in(Environment(catalog, text), statement.meta[DECLARATION])
        else:
            queries.append(statement)
    return queries


def _checked(text: object) -> str:
    """The text, if it is a string of acceptable length."""
    if not isinstance(text, str):
        raise SqlError(Code.SYNTAX, f"a query must be a string, got {type(text).__name__}")
    if len(text) > LONGEST:
        message = f"the text has {len(text):,} characters; the limit is {LONGEST:,}"
        raise SqlError(Code.TOO_LONG, message, hint="put long lists of values into a table, and join with it")
    return text


def _leaves(plan: Plan) -> list[Plan]:
    """The leaves of a plan: its streams and tables."""
    return [leaf for each in plan.inputs for leaf in _leaves(each)] if plan.inputs else [plan]


# EXPLAIN before a query runs: its plan, its partition keys, and what Spark runs natively.


WIDTH: Final = 100


def explained(
    name: str, text: str, logical: Plan, found: Optimized, ticks_per_second: int | None, format: str = "text"
) -> Explanation:
    """An explanation of a query from its plan alone; times have units if a tick has a fixed length."""
    plan = found.plan
    native = native_parts(plan)
    span = in_units(ticks_per_second)
    diagram = plan_diagram(plan, name, _native_nodes(plan, native), span)
    sections = (
        Section("query", text.strip()),
        Section("plan as written", show(logical, span)),
        *_rewritten(found, span),
        Section("partition keys", "\n".join(_division(plan))),
        Section("on Spark", "\n".join(_on_spark(plan, native))),
    )
    return Explanation(diagram, sections, format)


def _rewritten(found: Optimized, span: Span) -> Iterator[Section]:
    """The rules that fired, and the resulting plan."""
    if found.fired:
        lines = [textwrap.shorten(f"  {each.what(span)}", WIDTH, placeholder=" …") for each in found.fired]
        yield Section("rewritten", "\n".join(f"  {line}" for line in lines))
        yield Section("plan", show(found.plan, span))


def _division(plan: Plan) -> Iterator[str]:
    """One line per stage, with the name under which the next stage reads it."""
    found = stages(plan)
    for number, stage in enumerate(found, 1):
        name = f"stage {number}: " if len(found) > 1 else ""
        into = f" -> {stage.output.name}" if stage.output is not None else ""
        yield f"  {name}{stage.partitioning}{into}"


def _on_spark(plan: Plan, native: Native) -> Iterator[str]:
    """What Spark runs natively for each stream, and what is left to the engine."""
    for source in dict.fromkeys(sources_of(plan)):
        names = _kinds(native.prefixes.get(source.name, source))
        yield f"  {source.name}: {', then '.join(names) or 'nothing'} natively"
    if isinstance(native.core, Source):
        yield "  nothing is left for the engine"
        return
    yield "  the engine runs the rest"
    if native.suffix is not None:
        yield f"  its answer: {', then '.join(_kinds(native.suffix))} natively"


def _kinds(chain: Plan) -> list[str]:
    """The operators of a chain, from its source up."""
    kinds = [type(part).__name__.lower() for part in walk(chain) if not isinstance(part, Source)]
    return kinds[::-1]


def _native_nodes(plan: Plan, native: Native) -> set[Plan]:
    """The plan nodes that Spark runs natively, without the sources."""
    found = {part for chain in native.prefixes.values() for part in walk(chain)}
    while is_native(plan) and not plan.is_relation:
        found.add(plan)
        plan = plan.inputs[0]
    return {part for part in found if not isinstance(part, Source)}
