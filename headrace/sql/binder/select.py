"""SELECT: FROM, WHERE, GROUP BY, HAVING, the list, DISTINCT, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.plan.nodes.core import Distinct, Plan, Project
from headrace.plan.nodes.distinct_on import DistinctOn
from headrace.plan.nodes.windows import Session
from headrace.sql.binder.aggregation import aggregated
from headrace.sql.binder.environment import Environment
from headrace.sql.binder.from_clause import From, Translate, read_from
from headrace.sql.binder.joins import joined, selected
from headrace.sql.binder.lead import has_lead
from headrace.sql.binder.over import OverResolver, name_windows, qualified, runs, windows_in
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item, fresh
from headrace.sql.binder.select_list import (
    Listed,
    SelectList,
    has_aggregate,
    listed,
    projected,
    read_select_list,
)
from headrace.sql.binder.sequences import read_sequence
from headrace.sql.binder.subqueries import conditions_of, move_semi_joins, with_subqueries
from headrace.sql.binder.to_stream import OUTPUTS
from headrace.sql.binder.top_n import BOUNDED, Ranking, bounded, is_unlimited, read_ranking
from headrace.sql.binder.typed import conjuncts, expression
from headrace.sql.binder.unnest import move_explode
from headrace.sql.binder.window_bounds import SHOWN as BOUNDS
from headrace.sql.binder.window_functions import move_windows
from headrace.sql.binder.windows import ticks
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import KNOWS_BOUNDS, SHOWN, TIME, WINDOW
from headrace.sql.parser.parse import check_read
from headrace.sql.place import Code, fail


@dataclass(frozen=True)
class Body:
    """A SELECT whose FROM has been read."""

    env: Environment
    node: exp.Select
    listing: SelectList
    source: From

    @cached_property
    def where(self) -> list[Expression]:
        """All conditions on the rows, without those that read other queries."""
        resolver = Resolver(self.source.scope, "WHERE", self.listing.aliases)
        return [each for node in conditions_of(self.source, self.node) for each in conjuncts(resolver, node)]

    @cached_property
    def columns(self) -> list[Listed]:
        return listed(self.env, self.source.scope, self.listing.nodes)

    @cached_property
    def stream(self) -> Plan:
        """The rows of the only item as they are written, before WHERE."""
        return self.source.scope.items[0].as_written

    @cached_property
    def is_running(self) -> bool:
        """Whether functions with OVER are answered row by row, and QUALIFY filters the answers."""
        clauses = [found for part in ("order", "limit") if (found := self.node.args.get(part)) is not None]
        if clauses or self.listing.distinct or self.is_grouped or self.source.scope.halves:
            return False
        qualify = self.node.args.get("qualify")
        overs = list(windows_in([*self.listing.nodes, *([qualify] if qualify else [])]))
        return runs(self.source.scope, self.stream, overs)

    @cached_property
    def ranking(self) -> Ranking | None:
        """The part that takes only the first rows, if any."""
        return None if self.is_running else read_ranking(self.node, self.columns, self.source.scope)

    @property
    def inner(self) -> list[Listed]:
        """The columns that are computed before the first rows are taken."""
        return self.ranking.inner if self.ranking else self.columns

    @property
    def having(self) -> exp.Expr | None:
        clause = self.node.args.get("having")
        return clause.this if clause else None

    @property
    def is_grouped(self) -> bool:
        """Whether the SELECT has GROUP BY or an aggregate."""
        asked = [self.having, self.node.args.get("order"), self.node.args.get("qualify")]
        aggregates = self.listing.has_aggregates or any(map(has_aggregate, asked))
        return bool(self.node.args.get("group")) or aggregates


def select(env: Environment, node: exp.Select, translate: Translate) -> Relation:
    """The meaning of a SELECT: a stream if it only filters and projects one, else a relation."""
    check_read(node)
    name_windows(node)
    move_windows(node)
    move_explode(node)
    _show_windows(node)
    move_semi_joins(node)
    source = read_sequence(env, node, translate) or read_from(env, node, translate)
    source = with_subqueries(env, node, source, translate)
    body = Body(env, node, read_select_list(node), source)
    _check_sessions(body)
    _check_window_functions(body)
    if body.listing.on:
        _check_distinct_on(body)
    plan = bounded(_topped(body, _grouped(body) if body.is_grouped else _plain(body)))
    if any(is_unlimited(item.input.plan) for item in body.source.scope.items) and is_unlimited(plan):
        fail(
            Code.UNBOUNDED_NUMBER,
            "this ROW_NUMBER() has no limit, so it would keep all rows",
            body.source.place,
            BOUNDED,
        )
    relation = _relation(body, plan)
    return OUTPUTS[body.listing.output](relation, body.listing.place) if body.listing.output else relation


def _check_sessions(body: Body) -> None:
    """Check that a session window is aggregated: rows form sessions by the keys of that aggregate only."""
    items = body.source.scope.items
    if not any(isinstance(item.window, Session) for item in items):
        return
    if not body.is_grouped or len(items) > 1:
        what = "joined" if len(items) > 1 else "shown row by row"
        hint = "aggregate one stream, as in SELECT k, count(*) FROM s [SESSION 30 SECONDS] GROUP BY k"
        fail(
            Code.SESSION,
            f"rows of a SESSION window cannot be {what}, only aggregated",
            body.source.place,
            hint,
        )


def _show_windows(node: exp.Select) -> None:
    """Say of a window function that is not aggregated that its rows carry the bounds of their windows."""
    start = node.args.get("from_")
    clauses = [node.args.get(part) for part in ("having", "order", "qualify")]
    grouped = node.args.get("group") or any(map(has_aggregate, [*node.expressions, *clauses]))
    if start is None or grouped:
        return
    if TIME in start.this.meta and not node.args.get("joins"):
        start.this.meta[SHOWN] = True
    if any(each.name.lower() in BOUNDS for each in node.find_all(exp.Column)):
        for item in (start.this, *(each.this for each in node.args.get("joins") or ())):
            if TIME not in item.meta:
                item.meta[KNOWS_BOUNDS] = True


def _check_window_functions(body: Body) -> None:
    """Check that a window function is aggregated, or shown with the bounds of each window."""
    start = body.node.args.get("from_")
    items = [start.this, *(each.this for each in body.node.args.get("joins") or ())] if start else []
    shown = next((each for each in items if SHOWN in each.meta), None)
    if shown is not None and body.ranking is not None:
        hint = "write FROM s [RANGE 10 MINUTES SLIDE 10 MINUTES]: each window has its own first rows"
        message = "the first rows of a window function are not known before its windows end"
        fail(Code.WINDOW, message, shown.meta[WINDOW].span, hint)
    called = next((each for each in items if TIME in each.meta and SHOWN not in each.meta), None)
    if called is not None and (not body.is_grouped or len(items) > 1):
        what = "joined" if len(items) > 1 else "shown row by row"
        hint = "aggregate one stream, or write FROM s [RANGE 10 MINUTES SLIDE 5 MINUTES] for its rows"
        fail(
            Code.WINDOW,
            f"rows of this window cannot be {what}, only aggregated",
            called.meta[WINDOW].span,
            hint,
        )


def _relation(body: Body, plan: Plan) -> Relation:
    """The relation of a SELECT whose plan is complete."""
    items = body.source.scope.items
    made = body.is_grouped or body.ranking is not None
    halves = body.source.scope.halves
    implicit = plan.is_relation and not made and not halves and all(item.is_implicit for item in items)
    time = None if has_lead(body.node) else _time_column(items, plan)
    return Relation(plan, body.source.ticks_per_second, implicit, time)


def _time_column(items: Sequence[Item], plan: Plan) -> str | None:
    """The name of the time column of the only stream, if it is still present."""
    time = items[0].input.time_column if len(items) == 1 and not plan.is_relation else None
    if time is None or not isinstance(plan, Project):
        return time
    return next((name for name, each in plan.columns if each == Column(time)), None)


def _topped(body: Body, plan: Plan) -> Plan:
    """Apply QUALIFY, then DISTINCT, then LIMIT, as in SQL."""
    ranking = body.ranking
    if ranking is not None and body.listing.distinct and not ranking.last and ranking.rank is None:
        return Distinct(ranking.of(plan))
    if ranking is not None and body.listing.distinct and (ranking.hides or ranking.rank):
        hint = "move DISTINCT to a subquery, or add the columns of ORDER BY to SELECT"
        fail(Code.OVER, "with DISTINCT, rows can only be ordered by columns of SELECT", ranking.place, hint)
    different = Distinct(plan) if body.listing.distinct else plan
    return different if ranking is None else ranking.of(different)


def _plain(body: Body) -> Plan:
    """A SELECT without grouping. It stays a stream if no operation needs to see two rows at once."""
    if body.having is not None:
        fail(Code.HAVING, "HAVING needs GROUP BY or an aggregate", body.having, "use WHERE to filter rows")
    scope = body.source.scope
    if len(scope.items) > 1 or scope.halves or body.listing.distinct or body.ranking is not None:
        plan = joined(scope, body.where)
    else:
        plan = selected(body.stream, body.where)
    resolver = OverResolver(scope, plan)
    made = [(each.name, each.resolved(resolver)) for each in body.inner]
    kept: list[Expression] = []
    if body.is_running:
        kept = conjuncts(resolver, qualified(body.node.args.get("qualify"), body.listing.aliases, scope))
    answered = selected(resolver.looking_back(plan), kept)
    return projected(_first_of_each(body, answered) if body.listing.on else answered, made)


ON: Final = "write SELECT DISTINCT ON (k) WITHIN 1 HOUR k, x FROM s"


def _first_of_each(body: Body, plan: Plan) -> Plan:
    """The rows of DISTINCT ON; keys that are not columns are computed first."""
    within, resolver = body.listing.within, Resolver(body.source.scope, "DISTINCT ON")
    keys = [expression(resolver, each) for each in body.listing.on]
    taken = {name.lower() for name in plan.schema.names}
    names = [each.name if isinstance(each, Column) else fresh("key", taken) for each in keys]
    if any(not isinstance(each, Column) for each in keys):
        kept = [(name, Column(name)) for name in plan.schema.names]
        pairs = zip(names, keys, strict=True)
        plan = Project(plan, (*kept, *(pair for pair in pairs if not isinstance(pair[1], Column))))
    length = None if within is None else ticks(within, body.source.ticks_per_second)
    return DistinctOn(plan, tuple(dict.fromkeys(names)), length)


def _check_distinct_on(body: Body) -> None:
    """Check that DISTINCT ON has a stream and no clause that it cannot be combined with."""
    scope, place = body.source.scope, body.listing.on[0]
    if body.is_grouped or len(scope.items) > 1 or scope.halves or body.stream.is_relation:
        hint = f"{ON}; of a window, QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts) = 1"
        fail(Code.NOT_CQL, "DISTINCT ON works on the rows of one stream, without a window", place, hint)
    if any(body.node.args.get(part) for part in ("order", "limit")) or body.ranking is not None:
        hint = "it keeps the first row of each key by time; remove ORDER BY, LIMIT and QUALIFY"
        fail(Code.NOT_CQL, "DISTINCT ON cannot be combined with another choice of rows", place, hint)


GROUP_WINDOWS: Final = frozenset({"TUMBLE", "HOP", "SESSION"})


def _grouped(body: Body) -> Plan:
    """A SELECT with grouping; it needs a window, because otherwise a group would never be complete."""
    scope, group = body.source.scope, body.node.args.get("group")
    streams = [item for item in scope.items if not item.input.is_static]
    if streams and all(item.is_implicit for item in streams):
        hint = f"write {streams[0].name} [RANGE 10 MINUTES], or [UNBOUNDED] to aggregate all rows"
        hint = _group_window(group, streams[0].name) or hint
        fail(Code.NO_WINDOW, "an aggregate needs a window on the stream", body.source.place, hint)
    return aggregated(scope, body.where, group, body.inner, body.having, body.listing.aliases)


def _group_window(group: exp.Expr | None, stream: str) -> str | None:
    """Flink's older windows, which are functions in GROUP BY, as window functions of FROM."""
    for each in [] if group is None else group.expressions:
        if isinstance(each, exp.Anonymous) and each.name.upper() in GROUP_WINDOWS and each.expressions:
            time, *sizes = (part.sql("spark") for part in each.expressions)
            called = f"{each.name.upper()}(TABLE {stream}, {', '.join((f'DESCRIPTOR({time})', *sizes))})"
            return f"write FROM TABLE({called}) GROUP BY window_start, window_end"
    return None
