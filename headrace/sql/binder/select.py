"""SELECT: FROM, WHERE, GROUP BY, HAVING, the list, DISTINCT, in that order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import exp

from headrace.expressions import Column, Expression
from headrace.plan.nodes.core import Distinct, Plan, Project
from headrace.plan.nodes.windows import Session
from headrace.sql.binder.aggregation import aggregated
from headrace.sql.binder.environment import Environment
from headrace.sql.binder.from_clause import From, Translate, joined, read_from, selected
from headrace.sql.binder.lag import LagResolver
from headrace.sql.binder.resolver import Resolver
from headrace.sql.binder.scope import Item
from headrace.sql.binder.select_list import (
    Listed,
    SelectList,
    has_aggregate,
    listed,
    projected,
    read_select_list,
)
from headrace.sql.binder.sequences import read_sequence
from headrace.sql.binder.to_stream import OUTPUTS
from headrace.sql.binder.top_n import BOUNDED, Ranking, bounded, is_unlimited, read_ranking
from headrace.sql.binder.typed import conjuncts
from headrace.sql.binder.window_functions import move_windows
from headrace.sql.catalog import Relation
from headrace.sql.parser.clauses import TIME, WINDOW
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
        """All conditions on the rows, those of ON first."""
        clause = None if self.source.takes_where else self.node.args.get("where")
        resolver = Resolver(self.source.scope, "WHERE", self.listing.aliases)
        return self.source.conditions + conjuncts(resolver, clause.this if clause else None)

    @cached_property
    def columns(self) -> list[Listed]:
        return listed(self.env, self.source.scope, self.listing.nodes)

    @cached_property
    def ranking(self) -> Ranking | None:
        """The part that takes only the first rows, if any."""
        return read_ranking(self.node, self.columns, self.source.scope)

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
    move_windows(node)
    source = read_sequence(env, node, translate) or read_from(env, node, translate)
    body = Body(env, node, read_select_list(node), source)
    _check_sessions(body)
    _check_window_functions(body)
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


def _check_window_functions(body: Body) -> None:
    """Check that a window function is aggregated: in Flink its rows carry the bounds of each window."""
    start = body.node.args.get("from_")
    items = [start.this, *(each.this for each in body.node.args.get("joins") or ())] if start else []
    called = next((each for each in items if TIME in each.meta), None)
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
    implicit = plan.is_relation and not made and all(item.is_implicit for item in items)
    return Relation(plan, body.source.ticks_per_second, implicit, _time_column(items, plan))


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
    if len(scope.items) > 1 or body.listing.distinct or body.ranking is not None:
        plan = joined(scope, body.where)
    else:
        plan = selected(scope.items[0].as_written, body.where)
    resolver = LagResolver(scope, plan)
    made = [(each.name, each.resolved(resolver)) for each in body.inner]
    return projected(resolver.looking_back(plan), made)


def _grouped(body: Body) -> Plan:
    """A SELECT with grouping; it needs a window, because otherwise a group would never be complete."""
    scope = body.source.scope
    streams = [item for item in scope.items if not item.input.is_static]
    if streams and all(item.is_implicit for item in streams):
        hint = f"write {streams[0].name} [RANGE 10 MINUTES], or [UNBOUNDED] to aggregate all rows"
        fail(Code.NO_WINDOW, "an aggregate needs a window on the stream", body.source.place, hint)
    group = body.node.args.get("group")
    return aggregated(scope, body.where, group, body.inner, body.having, body.listing.aliases)
